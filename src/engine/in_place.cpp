// Schedules in place: how ranks of one host meet, and how they reach each other's buffers, which lie in memory that all
// map, or in ordinary memory, from and to which the kernel copies.
//
// An operation that fails gives its buffers back to the caller while others may still touch them. So it revokes its
// word at `meet`, which is a matter for two: a reader looks, after it has read, whether the buffer still stood; a
// writer says first that it writes (writing_to), then looks whether the buffer stands, and the rank that revokes waits
// for the writers. Either sees the other, as both make a full fence in between (Dekker's algorithm).
#include "engine/execution.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>
#include <utility>

namespace tutti::engine {

using schedule::Buffer;
using schedule::Operand;
using schedule::Step;
using schedule::StepKind;
using transport::PeerMemory;

namespace {

// How long a peer from whose memory the kernel does not copy may take to be gone. After that it is a refusal.
constexpr std::chrono::milliseconds ending{200};
// A result is written to several places in pieces that stay in the first-level cache.
constexpr std::size_t piece_bytes = 8192;
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

/// Where this rank's buffers lie, as far as others may touch them. A rank that could not touch the others' buffers says
/// that they cannot reach its own.
transport::NamedBuffers Execution::name_buffers(const Step& meet) const {
    const bool by_kernel = !schedule_->maps && context_.memory;
    transport::NamedBuffers named{.reachable = schedule_->maps || by_kernel ? 1U : 0U};
    for (const Buffer buffer : {Buffer::input, Buffer::output}) {
        std::uint64_t end = 0;
        for (std::uint32_t i = 0; i < meet.operand_count; ++i) {
            const schedule::Chunk& chunk = schedule_->operands[meet.first_operand + i].chunk;
            if (chunk.buffer == buffer) end = std::max(end, chunk.offset + chunk.count);
        }
        if (end == 0) continue;
        const std::byte* base = buffer == Buffer::input ? operands_.input : operands_.output;
        if (base == nullptr) {  // a call in place, of a schedule that needs an input of its own
            named.reachable = 0;
            continue;
        }
        std::uint64_t& name = buffer == Buffer::input ? named.input : named.output;
        if (context_.symmetric != nullptr) name = context_.symmetric->find(base, end * element_bytes_).bits();
        if (name == 0 && by_kernel && is_reachable(base, end * element_bytes_))
            name = reinterpret_cast<std::uint64_t>(base);
        if (name == 0) named.reachable = 0;
    }
    if (schedule_->input_is_output) named.input = named.output;
    return named;
}

bool Execution::meet(const Step& step) {
    const std::uint64_t publication = base_ + step.round;
    if (!met_) {
        if (!has_room(publication)) return false;
        const transport::NamedBuffers mine = name_buffers(step);
        std::memcpy(context_.arena->slot(context_.local_rank, publication), &mine, sizeof mine);
        named_.assign(context_.local_of.size(), mine);
        met_ = true;
        tell_published(publication);
    }
    for (std::size_t r = 0; r < context_.local_of.size(); ++r) {
        const int local = context_.local_of[r];
        if (local >= 0 && local != context_.local_rank && !usable(static_cast<int>(r), publication)) return false;
    }
    for (std::size_t r = 0; r < context_.local_of.size(); ++r) {
        const int local = context_.local_of[r];
        if (local < 0) continue;
        if (local != context_.local_rank)
            std::memcpy(&named_[r], context_.arena->slot(local, publication), sizeof named_[r]);
        if (named_[r].reachable == 0) falls_back_ = true;
    }
    return !falls_back_;
}

Execution::Far Execution::far(int peer, const schedule::Chunk& chunk) const {
    const transport::NamedBuffers& theirs = named_[static_cast<std::size_t>(peer)];
    const std::uint64_t name =
        (chunk.buffer == Buffer::input ? theirs.input : theirs.output) + chunk.offset * element_bytes_;
    const transport::Place place(name);  // an offset is the lower bits of a place, and of an address
    if (!place) return {.address = name};
    const int local = context_.local_of[static_cast<std::size_t>(peer)];
    std::byte* const at = context_.symmetric->address(place, local, bytes(chunk));
    if (at == nullptr) {
        throw InternalError(fmt::format("{}: rank {} names symmetric memory that this rank does not map (segment {})",
                                        schedule_->algorithm, peer, place.segment()));
    }
    return {.at = at};
}

bool Execution::run_in_place(const Step& step) {
    const Operand& source = schedule_->operands[step.first_operand];
    switch (step.kind) {
        case StepKind::get: {
            if (!published(source.peer, base_)) return false;  // it has given the operation up
            const Far from = far(source.peer, source.chunk);
            if (from.at == nullptr)
                return read_from(source.peer, base_, from.address, {address(step.target), bytes(step.target)});
            std::memcpy(address(step.target), from.at, bytes(step.target));
            return true;
        }
        case StepKind::put: {
            if (!published(step.peer, base_)) return false;
            const Far to = far(step.peer, step.target);
            if (to.at == nullptr)
                return write_to(step.peer, base_, to.address, {address(source.chunk), bytes(source.chunk)});
            std::memcpy(to.at, address(source.chunk), bytes(source.chunk));
            return true;
        }
        case StepKind::read_combine: return combine_in_place(step);
        default: return false;
    }
}

/// All buffers are mapped here.
bool Execution::combine_in_place(const Step& step) {
    inputs_.clear();
    for (std::uint32_t i = 0; i < step.operand_count; ++i) {
        const Operand& operand = schedule_->operands[step.first_operand + i];
        inputs_.push_back(operand.peer < 0 ? address(operand.chunk) : far(operand.peer, operand.chunk).at);
    }
    std::byte* const target = step.peer < 0 ? address(step.target) : far(step.peer, step.target).at;
    std::vector<std::byte*>& others = other_targets_;
    others.clear();
    for (std::size_t r = 0; step.everywhere && r < context_.local_of.size(); ++r) {
        const int local = context_.local_of[r];
        if (local >= 0 && local != context_.local_rank) others.push_back(far(static_cast<int>(r), step.target).at);
    }
    // With several targets in pieces, which the copies find in the first-level cache.
    std::vector<const void*>& at = inputs_of_piece_;
    at.resize(inputs_.size());
    const std::uint64_t piece = others.empty() ? step.target.count : piece_bytes / element_bytes_;
    for (std::uint64_t done = 0; done < step.target.count; done += piece) {
        const std::uint64_t now = std::min(piece, step.target.count - done);
        const std::size_t offset = done * element_bytes_;
        for (std::size_t i = 0; i < at.size(); ++i) at[i] = static_cast<const std::byte*>(inputs_[i]) + offset;
        kernels::combine(operands_.op, operands_.dtype, target + offset, at, now, step.finish ? operands_.divisor : 1);
        for (std::byte* other : others) std::memcpy(other + offset, target + offset, now * element_bytes_);
    }
    return true;
}

const PeerMemory* Execution::memory_of(int peer) const {
    return context_.memory(context_.world_of.empty() ? peer : context_.world_of[static_cast<std::size_t>(peer)]);
}

/// False: the peer has revoked it, or has died; its group learns why.
bool Execution::read_from(int peer, std::uint64_t publication, std::uint64_t address, std::span<std::byte> into) const {
    const PeerMemory* memory = memory_of(peer);
    const bool copied = memory != nullptr && memory->read(into.data(), address, into.size());
    // The kernel's loads stay before this one: a rank that has read bytes written after a revocation sees the
    // revocation.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (!published(peer, publication) || (memory != nullptr && !(copied ? memory->same() : memory->alive(ending))))
        return false;
    if (copied) return true;
    throw DistBackendError(fmt::format("{}: the kernel refuses to read {} bytes of the memory of rank {}",
                                       schedule_->algorithm, into.size(), peer));
}

bool Execution::write_to(int peer, std::uint64_t publication, std::uint64_t address,
                         std::span<const std::byte> from) const {
    const PeerMemory* memory = memory_of(peer);
    auto& writing_to = context_.arena->control(context_.local_rank).writing_to;
    const int local = context_.local_of[static_cast<std::size_t>(peer)];
    writing_to.store(static_cast<std::uint32_t>(local) + 1, std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with the one in revoke()
    const bool copied = memory != nullptr && published(peer, publication) && memory->same() &&
                        memory->write(address, from.data(), from.size());
    writing_to.store(0, std::memory_order_release);  // behind the writes; revoke() acquires it
    if (copied || !published(peer, publication) || (memory != nullptr && !memory->alive(ending))) return copied;
    throw DistBackendError(fmt::format("{}: the kernel refuses to write {} bytes to the memory of rank {}",
                                       schedule_->algorithm, from.size(), peer));
}

/// When this returns, no other rank reads or writes the buffers of this rank any more.
void Execution::revoke() const noexcept {
    auto& own = context_.arena->control(context_.local_rank);
    for (auto& stamp : own.stamps) stamp.store(0, std::memory_order_seq_cst);
    std::atomic_thread_fence(
        std::memory_order_seq_cst);  // pairs with the one in write_to(), and keeps the loads below behind
    for (std::size_t r = 0; r < context_.local_of.size(); ++r) {
        const int local = context_.local_of[r];
        if (local < 0 || local == context_.local_rank) continue;
        const auto& writing_to = context_.arena->control(local).writing_to;
        while (writing_to.load(std::memory_order_acquire) == static_cast<std::uint32_t>(context_.local_rank) + 1) {
            const PeerMemory* memory = memory_of(static_cast<int>(r));
            if (memory == nullptr || !memory->running()) break;
            std::this_thread::sleep_for(writing);
        }
    }
}

}  // namespace tutti::engine
