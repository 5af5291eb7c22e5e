#include "transport/mailbox.hpp"

#include "core/assert.hpp"

#include <algorithm>
#include <utility>

namespace tutti::transport {
namespace {

void deliver(Transfer& send, Transfer& receive, int rank) {
    TUTTI_ASSERT(rank >= 0);
    TUTTI_ASSERT(send.bytes == receive.bytes);
    TUTTI_ASSERT(!send.done);
    receive.fill({send.source, send.bytes});
    receive.peer = rank;
    send.bytes_done = send.bytes;
    send.done = true;
}

}  // namespace

Mailbox::Mailbox(int rank, int size, std::uint64_t world, Streams& streams, const Calls& calls,
                 const Neighbours* neighbours)
    : rank_(rank),
      world_(world),
      streams_(streams),
      checks_(calls, matching_, findings_),
      pulls_(neighbours),
      library_messages_(streams),
      peers_(size) {
    TUTTI_ASSERT(rank >= 0 && rank < size);
}

Mailbox::~Mailbox() = default;

// ---- Posting

void Mailbox::post_send(Transfer& transfer) {
    TUTTI_ASSERT(transfer.peer >= 0);
    TUTTI_ASSERT(transfer.source != nullptr || transfer.bytes == 0);
    transfer.done = transfer.refused = false;
    transfer.bytes_done = 0;
    if (transfer.peer == rank_) return send_to_itself(transfer);
    const std::span message(transfer.source, transfer.bytes);
    if (send_now(transfer.peer, transfer.channel, transfer.fingerprint, message)) {
        transfer.bytes_done = transfer.bytes;
        transfer.done = true;
        return;
    }
    Peer& p = peers_.at(transfer.peer);
    Frame frame;
    frame.world = world_;
    frame.channel = transfer.channel;
    frame.fingerprint = transfer.fingerprint;
    frame.length = transfer.bytes;
    frame.address = pulls_.address_for(transfer.peer, message);
    const std::size_t cost = Credit::cost_of(transfer.bytes);
    if (frame.address == 0 && p.credit.allows(cost) && is_eager(p, transfer.bytes)) {
        p.credit.spend(cost);
        frame.id = p.credit.give_back();
        TUTTI_ASSERT(p.credit.owed() == 0);
        return enqueue(transfer.peer, frame, &transfer);
    }
    TUTTI_ASSERT(p.rank == transfer.peer && p.rank != rank_);
    frame.kind = Frame::Kind::request;
    frame.id = long_messages_.announce(transfer);
    ++p.awaited;
    enqueue(transfer.peer, frame, nullptr);
}

bool Mailbox::is_eager(const Peer& p, std::size_t bytes) {
    if (bytes <= eager_bytes) return true;
    if (bytes > eager_bytes_to_far) return false;
    const Stream* const stream = streams_.to(p.rank);
    return stream != nullptr && stream->is_far();
}

void Mailbox::send_to_itself(Transfer& transfer) {
    TUTTI_ASSERT(transfer.peer == rank_);
    TUTTI_ASSERT(!transfer.done);
    Frame frame;
    frame.world = world_;
    frame.channel = transfer.channel;
    frame.fingerprint = transfer.fingerprint;
    frame.length = transfer.bytes;
    if (Transfer* receive = take_posted(rank_, transfer.channel)) {
        if (findings_.fits(rank_, frame, *receive)) deliver(transfer, *receive, rank_);
        return;
    }
    Unexpected& message = matching_.keep(rank_, frame);
    message.complete = true;
    message.local_send = &transfer;
    tell_probes(message);
}

void Mailbox::post_receive(Transfer& transfer) {
    TUTTI_ASSERT(transfer.peer >= any_source);
    TUTTI_ASSERT(transfer.on_bytes || transfer.target != nullptr || transfer.bytes == 0);
    TUTTI_ASSERT(transfer.element_bytes > 0 && transfer.bytes % transfer.element_bytes == 0);
    transfer.done = false;
    transfer.bytes_done = 0;
    Unexpected* const message = matching_.find(transfer);
    if (message == nullptr) {
        matching_.post(transfer);
        return count_awaited(transfer, 1);
    }
    if (transfer.match == Transfer::Match::take) return meet(*message, transfer);
    describe(*message, transfer);
}

// A message that has come before its receive.
void Mailbox::meet(Unexpected& message, Transfer& transfer) {
    TUTTI_ASSERT(transfer.match == Transfer::Match::take && message.bound == nullptr);
    if (!findings_.fits(message.source, message.frame, transfer)) return;
    transfer.peer = message.source;
    if (!message.complete) {
        message.bound = &transfer;
        return;
    }
    if (message.local_send != nullptr) {
        TUTTI_ASSERT(message.source == rank_);
        deliver(*message.local_send, transfer, rank_);
    } else if (message.frame.kind == Frame::Kind::request) {
        grant(message.source, message.frame, transfer, When::next_turn);
    } else {
        transfer.fill(message.message());
        consumed(peers_.at(message.source), message.frame.length);
    }
    matching_.forget(message);
}

void Mailbox::describe(Unexpected& message, Transfer& probe) {
    TUTTI_ASSERT(probe.match != Transfer::Match::take && !probe.done && !message.claimed);
    message.claimed = probe.match == Transfer::Match::claim;
    probe.peer = message.source;
    probe.channel = message.frame.channel;
    probe.fingerprint = message.frame.fingerprint;
    probe.bytes = message.frame.length;
    probe.number = message.number;
    probe.done = true;
}

void Mailbox::tell_probes(Unexpected& message) {
    TUTTI_ASSERT(message.bound == nullptr);
    while (Transfer* const probe = matching_.take_probe(message)) {
        count_awaited(*probe, -1);
        describe(message, *probe);
    }
}

void Mailbox::release(std::uint64_t channel, std::uint64_t number) {
    Unexpected* const message = matching_.claimed(channel, number);
    if (message == nullptr) return;
    message->claimed = false;
    if (Transfer* const receive = take_posted(message->source, channel)) return meet(*message, *receive);
    tell_probes(*message);
}

bool Mailbox::cancel_receive(Transfer& transfer) {
    TUTTI_ASSERT(transfer.peer >= any_source);
    if (!matching_.withdraw(transfer)) return false;
    TUTTI_ASSERT(!transfer.done);
    count_awaited(transfer, -1);
    return true;
}

void Mailbox::cancel_send(Transfer& transfer) {
    TUTTI_ASSERT(transfer.peer >= 0);
    if (transfer.peer == rank_) {
        return matching_.forget_if(transfer.channel,
                                   [&](const Unexpected& message) { return message.local_send == &transfer; });
    }
    Peer& p = peers_.at(transfer.peer);
    TUTTI_ASSERT(p.rank == transfer.peer);
    if (long_messages_.withdraw(transfer)) --p.awaited;
    if (!library_messages_.withdraw(transfer) && !p.queue.holds(transfer)) return;
    p.lost = true;  // perhaps a part of it has been written
    p.queue.clear();
}

Transfer* Mailbox::take_posted(int source, std::uint64_t channel) {
    TUTTI_ASSERT(source >= 0);
    Transfer* const receive = matching_.take_posted(source, channel);
    TUTTI_ASSERT(receive == nullptr || (receive->channel == channel && !receive->done));
    if (receive != nullptr) count_awaited(*receive, -1);
    return receive;
}

// Of receives that are posted, by so many more or fewer. Those of any source let the mailbox look at all peers.
void Mailbox::count_awaited(const Transfer& receive, int by) {
    TUTTI_ASSERT(by == 1 || by == -1);
    if (receive.peer != any_source && receive.peer != rank_)
        peers_.at(receive.peer).awaited += static_cast<std::size_t>(by);
}

void Mailbox::drop_all() {
    dropped_ = true;
    matching_.drop_all();
    long_messages_.drop_all();
    pulls_.drop_all();
    library_messages_.drop_all();
    for (std::size_t i = 0; i < peers_.met(); ++i) peers_.met(i).drop();
}

// ---- Sending

void Mailbox::enqueue(int to, const Frame& frame, Transfer* transfer) {
    Peer& p = peers_.at(to);
    if (transfer == nullptr && p.lost) return;
    if (p.queue.empty()) {
        Stream* const stream = streams_.to(to);
        if (transfer == nullptr && stream != nullptr && put_frame(*stream, frame)) return;
        p.queue.push(frame, transfer);
        if (stream != nullptr) p.queue.write(*stream);
        return;
    }
    p.queue.push(frame, transfer);
}

void Mailbox::say(int to, Frame::Kind kind, std::uint64_t channel, std::uint64_t id, std::uint64_t fingerprint) {
    Frame frame;
    frame.world = world_;
    frame.kind = kind;
    frame.channel = channel;
    frame.id = id;
    frame.fingerprint = fingerprint;
    enqueue(to, frame, nullptr);
}

void Mailbox::probe(int to, std::uint64_t channel, std::uint64_t fingerprint) {
    say(to, Frame::Kind::probe, channel, 0, fingerprint);
}

// A receive has taken an eager message; the sender may send as much again. It learns so from our next message to it,
// or, when there has been none for long, from a frame of its own.
void Mailbox::consumed(Peer& p, std::size_t length) {
    if (p.credit.consume(length)) say(p.rank, Frame::Kind::credit, 0, p.credit.give_back());
}

void Mailbox::refuse_unmet() {
    matching_.forget_if([this](const Unexpected& message) {
        if (message.frame.kind != Frame::Kind::request || !checks_.has_left(message.frame.channel)) return false;
        say(message.source, Frame::Kind::refused, message.frame.channel, message.frame.id);
        return true;
    });
}

void Mailbox::grant(int source, const Frame& request, Transfer& receive, When when) {
    if (pulls_.can_read(source, request.address))
        pulls_.begin({source, request.id, request.address, &receive});
    else
        clear(source, request.id, receive, when);
}

// A rank that comes second to an exchange meets the other's request when it posts its receive. If it cleared that at
// once, the other would begin to send, and could clear this rank's own request, which comes next, only behind all of
// its data: first one direction, then the other. So the request goes first.
void Mailbox::clear(int source, std::uint64_t id, Transfer& receive, When when) {
    Frame::Kind kind = Frame::Kind::ready;
    if (receive.bytes <= eager_bytes || !library_messages_.receive(source, id, receive)) {
        kind = Frame::Kind::clear;
        long_messages_.grant(source, id, receive);
        ++peers_.at(source).awaited;
    }
    if (when == When::next_turn)
        long_messages_.clear_later({source, receive.channel, id, kind});
    else
        say(source, kind, receive.channel, id);
}

bool Mailbox::pull_some() {
    if (pulls_.empty()) return false;
    const auto [outcome, pull] = pulls_.progress(bounce_);
    Transfer& receive = *pull.receive;
    if (outcome == SingleCopyReceives::Outcome::whole) say(pull.source, Frame::Kind::taken, receive.channel, pull.id);
    if (outcome == SingleCopyReceives::Outcome::closed && receive.bytes_done == 0)
        clear(pull.source, pull.id, receive, When::now);
    return true;
}

bool Mailbox::move_by_library() {
    if (library_messages_.empty()) return false;
    const auto [moved, failures] = library_messages_.progress();
    for (const auto& failure : failures) peers_.at(failure.peer).lose(failure.why);
    return moved;
}

// ---- Turns

bool Mailbox::progress() {
    if (!findings_.empty()) return true;  // its owner looks at them first
    const std::span<const LongMessages::Clear> clears = long_messages_.take_clears();
    for (const auto& one : clears) say(one.to, one.kind, one.channel, one.id);
    bool moved = !clears.empty();
    moved |= pull_some();
    moved |= move_by_library();
    ++turns_;
    ++idle_turns_;
    for (std::size_t i = 0; i < peers_.met(); ++i) {  // reading may add peers
        Peer& p = peers_.met(i);
        if (p.lost || p.rank == rank_) continue;
        if (!p.queue.empty()) {
            if (Stream* const stream = streams_.to(p.rank)) moved |= p.queue.write(*stream);
        }
        moved |= read_some(p);
        if (!findings_.empty()) return true;
    }
    if (moved) idle_turns_ = 0;
    return moved;
}

std::vector<int> Mailbox::finish() {
    std::vector<int> late;
    if (dropped_) return late;
    for (std::size_t i = 0; i < peers_.met(); ++i) {
        Peer& p = peers_.met(i);
        Stream* const stream = p.rank == rank_ || p.lost ? nullptr : streams_.existing(p.rank);
        if (stream == nullptr) continue;
        if (p.queue.empty() && !p.has_end) p.has_end = stream->end();
        if (!p.has_end || !stream->delivered()) late.push_back(p.rank);
    }
    return late;
}

const StreamEnd* Mailbox::end_of(int rank) const noexcept {
    const Peer* const p = peers_.find(rank);
    return p != nullptr && p->end ? &*p->end : nullptr;
}

bool Mailbox::is_over(int rank) const noexcept {
    const Peer* const p = peers_.find(rank);
    return p != nullptr && p->lost;
}

void Mailbox::pollables(std::vector<Pollable>& into) {
    into.clear();
    idle_turns_ = std::max(idle_turns_, turns_of_a_short_call);
    for (std::size_t i = 0; i < peers_.met(); ++i) {
        const Peer& p = peers_.met(i);
        if (p.lost || p.rank == rank_) continue;
        if (Stream* const stream = streams_.to(p.rank)) stream->pollables(!p.queue.empty(), into);
    }
    library_messages_.pollables(into);
}

}  // namespace tutti::transport
