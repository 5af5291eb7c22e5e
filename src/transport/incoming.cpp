// Incoming frames, and the places of their payloads.
#include "core/assert.hpp"
#include "transport/mailbox.hpp"

#include <algorithm>

namespace tutti::transport {
namespace {

constexpr int turn_frames = 16;
constexpr unsigned turns_between_looks = 8;

}  // namespace

// The mailbox copies a message that no receive waits for into memory of its own. Where this turn has just filled a
// receive, its owner is likely to post the next one: the message stays in the stream until a turn that has nothing else
// to do here.
bool Mailbox::read_some(Peer& p) {
    TUTTI_ASSERT(!p.lost && p.rank != rank_);
    Stream* const stream = streams_.to(p.rank);
    if (stream == nullptr) return false;
    // A look at a socket costs a call. A stream on which no operation waits gets a look now and then; one that may
    // bring what a standing receive is for also gets each look of a rank that waits for longer.
    FrameReader& reader = p.reader;
    const bool looks = p.awaited > 0 || reader.in_payload() || matching_.waits_for_any() ||
                       !stream->look_takes_call() ||
                       (matching_.stands_ready() && idle_turns_ >= turns_of_a_short_call) ||
                       (turns_ + static_cast<unsigned>(p.rank)) % turns_between_looks == 0;
    if (!looks) return false;
    bool moved = false, delivered = false;
    reader.begin_turn();
    std::size_t left = turn_bytes;
    for (int frames = 0; frames < turn_frames && left > 0; ++frames) {
        if (!reader.in_payload()) {
            if (!reader.has_read_ahead()) {
                ShortMessage message{};
                const Arrival arrival = stream->next(message);
                if (arrival == Arrival::nothing) break;
                if (arrival == Arrival::short_message) {
                    const bool eager = static_cast<Frame::Kind>(message.kind) == Frame::Kind::eager;
                    Transfer* const receive = eager ? take_posted(p.rank, message.channel) : nullptr;
                    if (eager && receive == nullptr && delivered) break;
                    moved = true;
                    delivered |= receive != nullptr;
                    if (!on_short(p, *stream, message, receive)) return true;
                    left -= std::min<std::size_t>(left, message.length);
                    continue;
                }
            }
            const std::size_t before = reader.bytes_ahead();
            const bool complete = reader.look_for_header(*stream);
            moved |= complete || reader.bytes_ahead() != before;
            if (!complete) break;
            const Frame& header = reader.header();
            if (delivered && header.kind == Frame::Kind::eager && !matching_.is_posted(p.rank, header.channel)) break;
            reader.pass_header();
            if (!on_frame(p, header)) return true;
            if (!reader.in_payload()) continue;
        }
        TUTTI_ASSERT(left <= turn_bytes);
        TUTTI_ASSERT(reader.in_payload());
        while (!reader.has_whole_payload() && left > 0) {
            const std::size_t count = reader.read_payload(*stream, turn_bytes, bounce_);
            if (count == 0) break;
            moved = true;
            left -= std::min(left, count);
        }
        if (!reader.has_whole_payload()) break;
        moved = true;
        delivered |= reader.receive() != nullptr;
        on_payload_complete(p);
    }
    if (!moved && !library_messages_.has(p.rank) && p.look_at_end(*stream))
        findings_.add({.kind = Finding::Kind::damaged, .peer = p.rank, .what = stream->reason()});
    return moved;
}

// False: nothing more of this peer is read in this turn.
bool Mailbox::on_frame(Peer& p, const Frame& frame) {
    TUTTI_ASSERT(!p.lost && !p.reader.in_payload());
    if (frame.magic != Frame::magic_number || frame.world != world_) {
        p.lose(frame.magic != Frame::magic_number ? "it sent something that is not a frame"
                                                  : "it sent a message of another (older) world");
        return false;
    }
    switch (frame.kind) {
        case Frame::Kind::eager: return on_eager(p, frame);
        case Frame::Kind::request: return on_request(p, frame);
        case Frame::Kind::probe: return on_probe(p, frame);
        case Frame::Kind::finished: checks_.on_finished(p.rank, frame); return true;
        case Frame::Kind::credit:
            if (p.credit.take_in(0, frame.id, eager_bytes_to_far)) return true;
            p.lose("it sent more than it was allowed to");
            return false;
        case Frame::Kind::clear:
        case Frame::Kind::ready:
        case Frame::Kind::taken:
        case Frame::Kind::refused:
        case Frame::Kind::data:
            if (on_answer(p, frame)) return true;
            break;
    }
    p.lose("it sent a frame that makes no sense here");
    return false;
}

bool Mailbox::on_eager(Peer& p, const Frame& frame) {
    TUTTI_ASSERT(frame.kind == Frame::Kind::eager);
    TUTTI_ASSERT(!p.reader.in_payload());
    const std::size_t length = std::min<std::uint64_t>(frame.length, Credit::limit);
    if (!p.credit.take_in(Credit::cost_of(length), frame.id, eager_bytes_to_far)) {
        p.lose("it sent more than it was allowed to");
        return false;
    }
    if (Transfer* const receive = take_posted(p.rank, frame.channel)) {
        if (!findings_.fits(p.rank, frame, *receive)) return false;
        receive->peer = p.rank;
        p.reader.begin_payload(*receive);
        return true;
    }
    if (!checks_.allows_unmet(p.rank, frame)) return false;
    Unexpected& message = matching_.keep_with_bytes(p.rank, frame);
    TUTTI_ASSERT(message.source == p.rank && message.bound == nullptr);
    p.reader.begin_payload(message);
    tell_probes(message);
    return true;
}

bool Mailbox::on_request(Peer& p, const Frame& frame) {
    TUTTI_ASSERT(frame.kind == Frame::Kind::request);
    if (Transfer* const receive = take_posted(p.rank, frame.channel)) {
        if (!findings_.fits(p.rank, frame, *receive)) return false;
        receive->peer = p.rank;
        grant(p.rank, frame, *receive, When::now);
    } else if (checks_.has_left(frame.channel)) {
        say(p.rank, Frame::Kind::refused, frame.channel, frame.id);
    } else {
        if (!checks_.allows_unmet(p.rank, frame)) return false;
        Unexpected& message = matching_.keep(p.rank, frame);
        message.complete = true;
        tell_probes(message);
    }
    return true;
}

// To a request of this rank, or to its clear. False: this rank has asked for nothing like that.
bool Mailbox::on_answer(Peer& p, const Frame& frame) {
    TUTTI_ASSERT(frame.kind != Frame::Kind::eager && frame.kind != Frame::Kind::request);
    if (frame.kind == Frame::Kind::data) {
        Transfer* const receive = long_messages_.take_granted(p.rank, frame.id, frame.length);
        if (receive == nullptr) return false;
        TUTTI_ASSERT(p.awaited > 0);
        TUTTI_ASSERT(receive->peer == p.rank);
        --p.awaited;
        p.reader.begin_payload(*receive);
        return true;
    }
    Transfer* const send = long_messages_.take_announced(p.rank, frame.id);
    TUTTI_ASSERT(send == nullptr || (send->peer == p.rank && p.awaited > 0));
    if (send != nullptr) --p.awaited;
    if (frame.kind == Frame::Kind::refused) {
        if (send != nullptr) send->refused = true;
        if ((frame.channel & collective_channel) != 0)
            findings_.add({.kind = Finding::Kind::left_group, .peer = p.rank, .channel = frame.channel});
        return true;
    }
    if (send == nullptr) return false;
    if (frame.kind == Frame::Kind::taken) {
        send->bytes_done = send->bytes;
        send->done = true;
        return true;
    }
    if (frame.kind == Frame::Kind::ready) return library_messages_.send(p.rank, frame.id, *send);
    Frame data;
    data.world = world_;
    data.kind = Frame::Kind::data;
    data.channel = send->channel;
    data.length = send->bytes;
    data.id = frame.id;
    enqueue(p.rank, data, send);
    return true;
}

bool Mailbox::on_probe(Peer& p, const Frame& frame) {
    TUTTI_ASSERT(frame.kind == Frame::Kind::probe);
    switch (checks_.answer_probe(p.rank, frame)) {
        case CallChecks::Answer::none: return true;
        case CallChecks::Answer::mismatch: return false;
        case CallChecks::Answer::refused: say(p.rank, Frame::Kind::refused, frame.channel, 0); return true;
        case CallChecks::Answer::finished:
            say(p.rank, Frame::Kind::finished, frame.channel, 0, frame.fingerprint);
            return true;
    }
    return true;
}

void Mailbox::on_payload_complete(Peer& p) {
    TUTTI_ASSERT(p.reader.has_whole_payload());
    Transfer* const receive = p.reader.receive();
    Unexpected* const message = p.reader.unexpected();
    const bool eager = p.reader.header().kind == Frame::Kind::eager;
    const std::size_t length = p.reader.header().length;
    TUTTI_ASSERT((receive == nullptr) != (message == nullptr));
    TUTTI_ASSERT(receive == nullptr || receive->bytes_done == receive->bytes);
    p.reader.end_payload();
    if (receive != nullptr) {
        receive->done = true;
        if (eager) consumed(p, length);
        return;
    }
    TUTTI_ASSERT(!message->complete);
    message->complete = true;
    if (message->bound == nullptr) return;
    message->bound->fill(message->message());
    consumed(p, length);
    matching_.forget(*message);
}

}  // namespace tutti::transport
