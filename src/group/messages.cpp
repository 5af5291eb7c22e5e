// Short messages between ranks of one host at once: no Operation, list, allocation or clock.
#include "group/group.hpp"

namespace tutti::detail {

bool Group::send_now(int peer, std::uint64_t channel, std::uint64_t fingerprint, std::span<const std::byte> payload) {
    if (!shares_memory_with(peer)) return false;
    const BiasedMutex::Entry entry(mutex_);
    if (!entry || failure_ || has_verdict_.load(std::memory_order_relaxed)) return false;
    if (!mailbox_->send_now(peer, channel, fingerprint, payload)) return false;
    // Here it costs nobody but this rank: the message is on its way meanwhile.
    recorder_.settle(recorder_.begin_brief(
        {.fingerprint = fingerprint, .bytes = payload.size(), .peer = peer, .kind = record::Kind::send}));
    return true;
}

bool Group::receive_now(transport::Transfer& receive) {
    if (receive.peer < 0 || !shares_memory_with(receive.peer)) return false;
    const BiasedMutex::Entry entry(mutex_);
    if (!entry || failure_ || has_verdict_.load(std::memory_order_relaxed) || !collectives_.empty() ||
        !messages_.empty()) {
        return false;
    }
    const std::uint64_t begun = record::ticks();
    if (!mailbox_->receive_now(receive, spins_)) return false;
    recorder_.settle(recorder_.begin_brief({.fingerprint = receive.fingerprint,
                                            .bytes = receive.bytes,
                                            .peer = receive.peer,
                                            .kind = record::Kind::receive},
                                           begun));
    return true;
}

}  // namespace tutti::detail
