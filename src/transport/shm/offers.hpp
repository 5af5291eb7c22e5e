// Offers: messages that ranks of one host leave where they lie, for their receivers to read, and how they take them
// back.
//
// A rank that lets go of its memory while a receiver may still read there withdraws all that it has offered. That is a
// matter for two: who reads says so first, then looks whether the offer stands; who withdraws says so, then waits for
// those who read. Either sees the other, as both make a full fence in between (Dekker's algorithm). A reader that has
// been stopped is not waited for: it looks once more after it has read.
//
// Threads: one thread of a rank at a time.
#pragma once

#include "transport/shm/arena.hpp"
#include "transport/shm/peer_memory.hpp"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

namespace tutti::transport {

class Offers {
 public:
    Offers(std::shared_ptr<Arena> arena, int local_rank) : arena_(std::move(arena)), local_rank_(local_rank) {}

    /// Runs `read`, which reads what the arena rank `peer` offers. False: the offer did not stand until its end, and
    /// what was read, if anything, may be anything.
    template <class Read>
    bool read_from(int peer, Read read) const {
        auto& reading_from = arena_->control(local_rank_).reading_from;
        reading_from.store(static_cast<std::uint32_t>(peer) + 1, std::memory_order_seq_cst);
        std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with the one in withdraw()
        if (stand(peer)) read();
        // Loads stay before loads: who has read what was written after a withdrawal sees the withdrawal.
        std::atomic_thread_fence(std::memory_order_seq_cst);
        const bool stood = stand(peer);
        reading_from.store(0, std::memory_order_release);  // behind what was read; withdraw() acquires it
        return stood;
    }
    /// For good: nobody reads this rank's messages any more when it returns. `memory`: of an arena rank, as for
    /// reading; may be null.
    void withdraw(const std::function<const PeerMemory*(int peer)>& memory) const noexcept;

 private:
    bool stand(int peer) const noexcept { return arena_->control(peer).withdrawn.load(std::memory_order_acquire) == 0; }

    std::shared_ptr<Arena> arena_;
    int local_rank_;
};

}  // namespace tutti::transport
