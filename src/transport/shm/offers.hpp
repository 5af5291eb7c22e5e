// Offers: a rank leaves a message in its own memory, and offers it to a receiver on the same host, which reads it
// there.
//
// A rank that frees its memory while a receiver may still read there withdraws all its offers. Reader and owner
// synchronise by Dekker's algorithm: the reader stores that it reads, then checks that the offer stands; the owner
// stores that the offer is withdrawn, then waits for the readers. Each executes a full fence in between, so that at
// least one of them sees the other's store. The owner does not wait for a reader that has been stopped: such a reader
// checks again after it has read.
//
// Threads: one thread of a rank at a time.
#pragma once

#include "core/assert.hpp"
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
    Offers(std::shared_ptr<Arena> arena, int local_rank) : arena_(std::move(arena)), local_rank_(local_rank) {
        TUTTI_ASSERT(arena_ != nullptr);
        TUTTI_ASSERT(local_rank >= 0 && local_rank < arena_->layout().ranks);
    }

    /// Runs `read`, which reads a message that the arena rank `peer` offers. False: the offer was withdrawn before or
    /// during the read, and the bytes read, if any, may have any value.
    template <class Read>
    bool read_from(int peer, Read read) const {
        TUTTI_ASSERT(peer >= 0 && peer < arena_->layout().ranks);
        auto& reading_from = arena_->control(local_rank_).reading_from;
        reading_from.store(static_cast<std::uint32_t>(peer) + 1, std::memory_order_seq_cst);
        std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with the one in withdraw()
        if (stand(peer)) read();
        // Loads stay before loads: a reader that has read bytes written after a withdrawal sees the withdrawal.
        std::atomic_thread_fence(std::memory_order_seq_cst);
        const bool stood = stand(peer);
        reading_from.store(0, std::memory_order_release);  // after the reads; withdraw() acquires it
        return stood;
    }
    /// Withdraws all offers, for good: when it returns, no rank reads this rank's messages any more. `memory`: gives
    /// the process memory of an arena rank, as for reading; may return null.
    void withdraw(const std::function<const PeerMemory*(int peer)>& memory) const noexcept;

 private:
    bool stand(int peer) const noexcept { return arena_->control(peer).withdrawn.load(std::memory_order_acquire) == 0; }

    std::shared_ptr<Arena> arena_;
    int local_rank_;
};

}  // namespace tutti::transport
