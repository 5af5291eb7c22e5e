// Short messages between ranks of one host at once: no Operation, list, allocation or clock. And looks for messages.
#include "core/assert.hpp"
#include "group/group.hpp"
#include "operation/channel.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

namespace tutti::detail {

bool Group::send_now(int peer, std::uint64_t channel, std::uint64_t fingerprint, std::span<const std::byte> payload) {
    TUTTI_ASSERT(peer >= 0 && Channel::group(channel) == index_);
    if (memory_.arena() == nullptr || !world_->neighbours().share_memory_with(peer)) return false;
    const BiasedMutex::Entry entry(world_->flight().mutex());
    if (!entry || !world_->flight().sound() || short_calls_.closed()) return false;
    if (!world_->flight().mailboxes().own().send_now(peer, channel, fingerprint, payload)) return false;
    // Here it costs no rank but this one: the message is on its way meanwhile.
    const int to = ranks_.rank_of(peer);
    TUTTI_ASSERT(to >= 0);
    recorder_.complete(recorder_.begin_brief({.sequence = recorder_.number_message(record::Kind::send, to),
                                              .fingerprint = fingerprint,
                                              .bytes = payload.size(),
                                              .peer = to,
                                              .tag = Channel::tag(channel),
                                              .kind = record::Kind::send}));
    return true;
}

bool Group::receive_now(transport::Transfer& receive) {
    TUTTI_ASSERT(Channel::group(receive.channel) == index_);
    if (memory_.arena() == nullptr || receive.peer < 0 || !world_->neighbours().share_memory_with(receive.peer))
        return false;
    const BiasedMutex::Entry entry(world_->flight().mutex());
    if (!entry || !world_->flight().quiet() || short_calls_.closed()) return false;
    const std::uint64_t begun = record::ticks();
    if (!world_->flight().mailboxes().own().receive_now(receive, world_->driver().waiting())) return false;
    const int from = ranks_.rank_of(receive.peer);
    TUTTI_ASSERT(from >= 0);
    recorder_.complete(recorder_.begin_brief({.sequence = recorder_.number_message(record::Kind::receive, from),
                                              .fingerprint = receive.fingerprint,
                                              .bytes = receive.bytes,
                                              .peer = from,
                                              .tag = Channel::tag(receive.channel),
                                              .kind = record::Kind::receive},
                                             begun));
    return true;
}

bool Group::probe_now(transport::Transfer& probe, const char* name) {
    TUTTI_ASSERT(Channel::group(probe.channel) == index_ && probe.match != transport::Transfer::Match::take);
    OperationsInFlight& flight = world_->flight();
    const OperationsInFlight::Guard guard(flight);
    flight.hear();  // what had come before a failure counts no more than its receive would
    refuse_if_over(name);
    mailbox().post_receive(probe);
    if (!probe.done) {
        flight.progress();
        flight.check();
    }
    if (probe.done) return true;
    mailbox().cancel_receive(probe);
    refuse_if_over(name);
    if (probe.peer >= 0 && probe.peer != ranks_.own_global() && world_->verdicts().gone(probe.peer, transport())) {
        throw PeerLost(fmt::format("{} in group \"{}\" ({} ranks): rank {} has left the group, and sends nothing more",
                                   name, name_, size(), probe.peer),
                       {.operation = name, .group = name_, .rank = ranks_.own_global(), .peer = probe.peer});
    }
    return false;
}

void Group::release(std::uint64_t channel, std::uint64_t message) {
    TUTTI_ASSERT(Channel::group(channel) == index_);
    if (world_->inherited()) return;
    OperationsInFlight& flight = world_->flight();
    const OperationsInFlight::Guard guard(flight);
    mailbox().release(channel, message);
    flight.mailboxes().heed();
}

}  // namespace tutti::detail
