// Buffers in ordinary memory that a schedule publishes in place: the kernel copies from and to them.
//
// An operation that fails gives its buffers back to the caller while others may still name them. So it revokes what it
// has published, which is a matter for two: who reads looks, after it has read, whether what it read was still
// published; who writes says so first (writing_to), then looks whether the offer still stands, and who revokes waits
// for those who write. Either sees the other, as both make a full fence in between (Dekker's algorithm).
#include "engine/execution.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <thread>
#include <utility>

namespace tutti::engine {

using schedule::Buffer;
using schedule::Step;
using schedule::StepKind;
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

void Execution::name_by_address() {
    for (const Buffer buffer : {Buffer::input, Buffer::output}) {
        const auto index = static_cast<std::size_t>(buffer);
        const std::byte* base = buffer == Buffer::input ? operands_.input : operands_.output;
        const std::size_t bytes = schedule_->published_end[index] * element_bytes_;
        if (bytes > 0 && !places_[index] && is_reachable(base, bytes)) addresses_[index] = base;
    }
}

const PeerMemory* Execution::memory_of(int peer) const {
    return ground_.memory(ground_.world_of.empty() ? peer : ground_.world_of[static_cast<std::size_t>(peer)]);
}

/// False: it is not published any more, or the peer has died; its group learns why.
bool Execution::read_from(int peer, std::uint64_t publication, std::uint64_t address, std::span<std::byte> into) const {
    const PeerMemory* memory = memory_of(peer);
    const bool copied = memory != nullptr && memory->read(into.data(), address, into.size());
    // The kernel's loads stay before this one: who has read what was written after a revocation sees the revocation.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (!published(peer, publication) || (memory != nullptr && !(copied ? memory->same() : memory->alive(ending))))
        return false;
    if (copied) return true;
    throw DistBackendError(fmt::format("{}: the kernel refuses to read {} bytes of the memory of rank {}",
                                       schedule_->algorithm, into.size(), peer));
}

/// Reads what `step` names, at `address`, and with the same call what the next reads do, as far as it is published, and
/// follows in the memory of both: a call takes as long as copying some 10 KB. As combine_on, it ends before a new run.
bool Execution::read_on(const Step& step, std::uint64_t address) {
    std::uint64_t count = step.target.count;
    std::size_t last = next_shared_;
    for (std::size_t i = last + 1; i < states_.size(); ++i) {
        const Step& next = schedule_->steps[i];
        if (next.kind != StepKind::read) {
            if (next.kind == StepKind::read_combine || next.kind == StepKind::write || next.kind == StepKind::settle)
                break;
            continue;
        }
        const std::uint64_t publication = base_ + next.round;
        if (next.peer != step.peer || next.delivered || next.target.count == 0 ||
            next.target.buffer != step.target.buffer || next.target.offset != step.target.offset + count ||
            !ready(next) || !published(next.peer, publication) || begins_run(next.peer, publication) ||
            source(next.peer, publication, next.slot_offset, next.target.count).address !=
                address + count * element_bytes_)
            break;
        count += next.target.count;
        last = i;
    }
    const std::span into(this->address(step.target), count * element_bytes_);
    const auto read = [&] { return read_from(step.peer, base_ + step.round, address, into); };
    if (!timed_reading(transport::CopyChoice::Way::kernel, into.size(), read)) return false;
    done_through(last, StepKind::read);
    return true;
}

/// The steps of this kind from the current one to `last` were done with it.
void Execution::done_through(std::size_t last, StepKind kind) {
    for (std::size_t i = next_shared_; i <= last; ++i) {
        if (schedule_->steps[i].kind == kind) states_[i] = State::done;
    }
}

bool Execution::write_to(int peer, std::uint64_t publication, std::uint64_t address,
                         std::span<const std::byte> from) const {
    const PeerMemory* memory = memory_of(peer);
    auto& writing_to = ground_.arena->control(ground_.local_rank).writing_to;
    const int local = ground_.local_of[static_cast<std::size_t>(peer)];
    writing_to.store(static_cast<std::uint32_t>(local) + 1, std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with the one in revoke()
    const bool copied = memory != nullptr && published(peer, publication) && memory->same() &&
                        memory->write(address, from.data(), from.size());
    writing_to.store(0, std::memory_order_release);  // behind what was written; revoke() acquires it
    if (copied || !published(peer, publication) || (memory != nullptr && !memory->alive(ending))) return copied;
    throw DistBackendError(fmt::format("{}: the kernel refuses to write {} bytes to the memory of rank {}",
                                       schedule_->algorithm, from.size(), peer));
}

/// From here on nobody reads or writes the buffers of this rank any more.
void Execution::revoke() const noexcept {
    if (std::ranges::all_of(addresses_, [](const std::byte* at) { return at == nullptr; })) return;
    auto& own = ground_.arena->control(ground_.local_rank);
    for (auto& stamp : own.stamps) stamp.store(0, std::memory_order_seq_cst);
    std::atomic_thread_fence(
        std::memory_order_seq_cst);  // pairs with the one in write_to(), and keeps what follows behind
    for (std::size_t r = 0; r < ground_.local_of.size(); ++r) {
        const int local = ground_.local_of[r];
        if (local < 0 || local == ground_.local_rank) continue;
        const auto& writing_to = ground_.arena->control(local).writing_to;
        while (writing_to.load(std::memory_order_acquire) == static_cast<std::uint32_t>(ground_.local_rank) + 1) {
            const PeerMemory* memory = memory_of(static_cast<int>(r));
            if (memory == nullptr || !memory->running()) break;
            std::this_thread::sleep_for(writing);
        }
    }
}

}  // namespace tutti::engine
