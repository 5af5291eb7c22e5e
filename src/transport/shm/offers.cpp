#include "transport/shm/offers.hpp"

#include "core/assert.hpp"

#include <sched.h>

namespace tutti::transport {

void Offers::withdraw(const std::function<const PeerMemory*(int peer)>& memory) const noexcept {
    TUTTI_ASSERT(static_cast<bool>(memory));
    arena_->control(local_rank_).withdrawn.store(1, std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with the first one in read_from()
    for (int peer = 0; peer < arena_->layout().ranks; ++peer) {
        const auto& reading_from = arena_->control(peer).reading_from;
        while (peer != local_rank_ &&
               reading_from.load(std::memory_order_acquire) == static_cast<std::uint32_t>(local_rank_) + 1) {
            const PeerMemory* reader = memory(peer);
            if (reader == nullptr || !reader->running()) break;
            ::sched_yield();
        }
    }
}

}  // namespace tutti::transport
