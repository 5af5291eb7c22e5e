// Short messages between ranks of one host at once: no Operation, list, allocation or clock.
#include "group/group.hpp"

namespace tutti::detail {

bool Group::send_now(int peer, std::uint64_t channel, std::uint64_t fingerprint, std::span<const std::byte> payload) {
    if (!shares_memory_with(peer)) return false;
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock || failure_ || has_verdict_.load(std::memory_order_relaxed)) return false;
    return mailbox_->send_now(peer, channel, fingerprint, payload);
}

bool Group::receive_now(transport::Transfer& receive) {
    if (receive.peer < 0 || !shares_memory_with(receive.peer)) return false;
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock || failure_ || has_verdict_.load(std::memory_order_relaxed) || !collectives_.empty() ||
        !messages_.empty()) {
        return false;
    }
    return mailbox_->receive_now(receive, spins_);
}

}  // namespace tutti::detail
