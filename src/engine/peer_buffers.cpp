#include "engine/peer_buffers.hpp"

#include "core/assert.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

namespace tutti::engine {

using schedule::Buffer;
using schedule::Chunk;
using schedule::Step;
using transport::NamedBuffers;
using transport::PeerMemory;

namespace {

// How long a peer from whose memory the kernel does not copy may take to be gone. After that it is a refusal.
constexpr std::chrono::milliseconds ending{200};
// Between two looks whether a peer still writes.
constexpr std::chrono::microseconds writing{50};

// Asking the kernel takes as long as copying some KB; programs use the same buffers again and again.
bool is_reachable(const std::byte* at, std::size_t bytes) {
    static thread_local std::array<std::pair<const std::byte*, std::size_t>, 16> known;
    static thread_local std::size_t next = 0;
    if (std::ranges::find(known, std::pair(at, bytes)) != known.end()) return true;
    if (!PeerMemory::reachable(at, bytes)) return false;
    known[next++ % known.size()] = {at, bytes};
    return true;
}

}  // namespace

void PeerBuffers::begin(const schedule::Schedule& schedule, const Operands& operands) {
    schedule_ = &schedule;
    operands_ = &operands;
    has_named_ = out_of_reach_ = false;
}

/// Where this rank's buffers lie, as far as others may touch them. A rank that could not touch the others' buffers says
/// that they cannot reach its own.
NamedBuffers PeerBuffers::name(const Step& meet) const {
    TUTTI_ASSERT(schedule_ != nullptr && operands_ != nullptr);
    TUTTI_ASSERT(meet.kind == schedule::StepKind::meet);
    const bool by_kernel = !schedule_->maps && context_.memory;
    const std::size_t element_bytes = operands_->element_bytes();
    NamedBuffers named{.reachable = schedule_->maps || by_kernel ? 1U : 0U};
    for (const Buffer buffer : {Buffer::input, Buffer::output}) {
        std::uint64_t end = 0;
        for (std::uint32_t i = 0; i < meet.operand_count; ++i) {
            const Chunk& chunk = schedule_->operands[meet.first_operand + i].chunk;
            if (chunk.buffer == buffer) end = std::max(end, chunk.offset + chunk.count);
        }
        if (end == 0) continue;
        const std::byte* base = buffer == Buffer::input ? operands_->input : operands_->output;
        if (base == nullptr) {  // a call in place, of a schedule that needs an input of its own
            named.reachable = 0;
            continue;
        }
        std::uint64_t& name = buffer == Buffer::input ? named.input : named.output;
        if (context_.symmetric != nullptr) name = context_.symmetric->find(base, end * element_bytes).bits();
        if (name == 0 && by_kernel && is_reachable(base, end * element_bytes))
            name = reinterpret_cast<std::uint64_t>(base);
        if (name == 0) named.reachable = 0;
    }
    if (schedule_->input_is_output) named.input = named.output;
    return named;
}

bool PeerBuffers::meet(const Step& meet) {
    TUTTI_ASSERT(schedule_->in_place && meet.kind == schedule::StepKind::meet);
    TUTTI_ASSERT(!out_of_reach_);
    const std::uint64_t publication = publications_.of(meet);
    if (!has_named_) {
        if (!publications_.has_room(publication)) return false;
        const NamedBuffers mine = name(meet);
        std::memcpy(publications_.own_slot(publication), &mine, sizeof mine);
        named_.assign(context_.local_of.size(), mine);
        has_named_ = true;
        publications_.tell(publication);
    }
    TUTTI_ASSERT(has_named_ && named_.size() == context_.local_of.size());
    bool all_have = true;
    context_.for_each_neighbour(
        [&](int rank, int /*local*/) { all_have = all_have && publications_.is_usable(rank, publication); });
    if (!all_have) return false;
    context_.for_each_neighbour([&](int rank, int local) {
        NamedBuffers& theirs = named_[static_cast<std::size_t>(rank)];
        std::memcpy(&theirs, context_.arena->slot(local, publication), sizeof theirs);
    });
    // Of ranks that are on other hosts it holds what this one has named.
    out_of_reach_ = std::ranges::any_of(named_, [](const NamedBuffers& one) { return one.reachable == 0; });
    return !out_of_reach_;
}

PeerBuffers::Far PeerBuffers::find(int peer, const Chunk& chunk) const {
    TUTTI_ASSERT(static_cast<std::size_t>(peer) < named_.size());
    TUTTI_ASSERT(chunk.buffer == Buffer::input || chunk.buffer == Buffer::output);
    const std::size_t element_bytes = operands_->element_bytes();
    const NamedBuffers& theirs = named_[static_cast<std::size_t>(peer)];
    const std::uint64_t name =
        (chunk.buffer == Buffer::input ? theirs.input : theirs.output) + chunk.offset * element_bytes;
    const transport::Place place(name);  // an offset is the lower bits of a place, and of an address
    if (!place) return {.address = name};
    const int local = context_.local_of[static_cast<std::size_t>(peer)];
    std::byte* const at = context_.symmetric->address(place, local, chunk.count * element_bytes);
    if (at == nullptr) {
        throw InternalError(fmt::format("{}: rank {} names symmetric memory that this rank does not map (segment {})",
                                        schedule_->algorithm, peer, place.segment()));
    }
    return {.at = at};
}

bool PeerBuffers::get(int peer, const Chunk& chunk, std::span<std::byte> into) const {
    TUTTI_ASSERT(has_named_ && !out_of_reach_);
    TUTTI_ASSERT(into.size() == chunk.count * operands_->element_bytes());
    if (!stands(peer)) return false;  // it has given the operation up
    const Far from = find(peer, chunk);
    if (from.at == nullptr) return read(peer, from.address, into);
    std::memcpy(into.data(), from.at, into.size());
    return true;
}

bool PeerBuffers::put(int peer, const Chunk& chunk, std::span<const std::byte> from) const {
    TUTTI_ASSERT(has_named_ && !out_of_reach_);
    TUTTI_ASSERT(from.size() == chunk.count * operands_->element_bytes());
    if (!stands(peer)) return false;
    const Far to = find(peer, chunk);
    if (to.at == nullptr) return write(peer, to.address, from);
    std::memcpy(to.at, from.data(), from.size());
    return true;
}

bool PeerBuffers::read(int peer, std::uint64_t address, std::span<std::byte> into) const {
    TUTTI_ASSERT(address != 0);
    const PeerMemory* memory = memory_of(peer);
    const bool copied = memory != nullptr && memory->read(into.data(), address, into.size());
    // The kernel's loads stay before this one: a rank that has read bytes written after a revocation sees the
    // revocation.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (!stands(peer) || (memory != nullptr && !(copied ? memory->same() : memory->alive(ending)))) return false;
    if (copied) return true;
    throw DistBackendError(fmt::format("{}: the kernel refuses to read {} bytes of the memory of rank {}",
                                       schedule_->algorithm, into.size(), peer));
}

bool PeerBuffers::write(int peer, std::uint64_t address, std::span<const std::byte> from) const {
    TUTTI_ASSERT(address != 0);
    const PeerMemory* memory = memory_of(peer);
    auto& writing_to = context_.arena->control(context_.local_rank).writing_to;
    const int local = context_.local_of[static_cast<std::size_t>(peer)];
    TUTTI_ASSERT(local >= 0 && local != context_.local_rank);
    writing_to.store(static_cast<std::uint32_t>(local) + 1, std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with the one in revoke()
    const bool copied =
        memory != nullptr && stands(peer) && memory->same() && memory->write(address, from.data(), from.size());
    writing_to.store(0, std::memory_order_release);  // behind the writes; revoke() acquires it
    if (copied || !stands(peer) || (memory != nullptr && !memory->alive(ending))) return copied;
    throw DistBackendError(fmt::format("{}: the kernel refuses to write {} bytes to the memory of rank {}",
                                       schedule_->algorithm, from.size(), peer));
}

void PeerBuffers::revoke() const noexcept {
    if (!has_named_) return;
    auto& own = context_.arena->control(context_.local_rank);
    for (auto& stamp : own.stamps) stamp.store(0, std::memory_order_seq_cst);
    // Pairs with the one in write(), and keeps the loads below behind.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    context_.for_each_neighbour([&](int rank, int local) {
        const auto& writing_to = context_.arena->control(local).writing_to;
        while (writing_to.load(std::memory_order_acquire) == static_cast<std::uint32_t>(context_.local_rank) + 1) {
            const PeerMemory* memory = memory_of(rank);
            if (memory == nullptr || !memory->running()) break;
            std::this_thread::sleep_for(writing);
        }
    });
}

}  // namespace tutti::engine
