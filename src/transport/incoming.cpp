// Incoming frames, and the places of their payloads.
#include "transport/mailbox_state.hpp"

#include "core/log.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace tutti::transport {
namespace {

constexpr int turn_frames = 16;

}  // namespace

// The mailbox copies a message that no receive waits for into memory of its own. Where this turn has just filled a
// receive, its owner is likely to post the next one: the message stays in the stream until a turn that has nothing else
// to do here.
bool Mailbox::read_some(int from, Peer& p) {
    Stream* stream = streams_.to(from);
    if (stream == nullptr || !looks_at(p, *stream)) return false;
    bool moved = false, delivered = false;
    p.drained = false;
    std::size_t left = turn_bytes;
    for (int frames = 0; frames < turn_frames && left > 0; ++frames) {
        if (!p.in_payload) {
            if (p.stage_begin == p.stage_end) {
                ShortMessage message{};
                const Arrival arrival = stream->next(message);
                if (arrival == Arrival::nothing) break;
                if (arrival == Arrival::short_message) {
                    const bool eager = static_cast<Frame::Kind>(message.kind) == Frame::Kind::eager;
                    Transfer* const receive = eager ? take_posted(from, message.channel) : nullptr;
                    if (eager && receive == nullptr && delivered) break;
                    moved = true;
                    delivered |= receive != nullptr;
                    if (eager ? !on_short(from, p, *stream, message, receive)
                              : !on_short_frame(from, p, *stream, message))
                        return true;
                    left -= std::min<std::size_t>(left, message.length);
                    continue;
                }
            }
            const std::size_t before = p.stage_end - p.stage_begin;
            const bool complete = next_header(p, *stream);
            moved |= complete || p.stage_end - p.stage_begin != before;
            if (!complete) break;
            if (delivered && p.header.kind == Frame::Kind::eager && !is_posted(from, p.header.channel)) break;
            p.stage_begin += sizeof(Frame);
            if (!on_header(from, p)) return true;
            if (!p.in_payload) continue;
        }
        while (p.payload_done < p.payload_bytes && left > 0) {
            const std::size_t count = read_payload(p, *stream);
            if (count == 0) break;
            moved = true;
            left -= std::min(left, count);
        }
        if (p.payload_done < p.payload_bytes) break;
        moved = true;
        delivered |= p.transfer != nullptr;
        on_payload_complete(p);
    }
    if (!moved) look_at_end(from, p, *stream);
    return moved;
}

// A peer that sends nothing more receives nothing more either: it does not need the frames that wait to be written.
void Mailbox::look_at_end(int from, Peer& p, const Stream& stream) {
    const StreamState state = stream.state();
    if (state == StreamState::open) return;
    p.out.clear();
    const bool whole = !p.in_payload && p.stage_begin == p.stage_end;
    if (state == StreamState::ended)
        lose(p, whole ? "" : "it ended within a message");
    else
        lose(p, stream.reason().empty() ? "it broke off" : stream.reason());
    if (state == StreamState::damaged)
        findings_.push_back({.kind = Finding::Kind::damaged, .peer = from, .what = stream.reason()});
}

// The mailbox no longer reads from it or writes to it. `why`: empty if the peer has said so.
void Mailbox::lose(Peer& p, std::string why) {
    p.lost = true;
    if (p.end) return;
    if (!why.empty()) TUTTI_DEBUG("the connection to rank {} ended: {}", p.rank, why);
    p.end = StreamEnd{Clock::now(), std::move(why)};
}

// Reads ahead as far as the stage reaches; true when a whole header is there; leaves it there.
bool Mailbox::next_header(Peer& p, Stream& stream) {
    while (p.stage_end - p.stage_begin < sizeof(Frame)) {
        if (p.drained) return false;
        std::copy(p.stage.begin() + static_cast<std::ptrdiff_t>(p.stage_begin),
                  p.stage.begin() + static_cast<std::ptrdiff_t>(p.stage_end), p.stage.begin());
        p.stage_end -= p.stage_begin;
        p.stage_begin = 0;
        const auto room = std::span(p.stage).subspan(p.stage_end);
        const std::size_t count = stream.read(room, {});
        p.drained = count < room.size();
        p.stage_end += count;
    }
    std::memcpy(&p.header, p.stage.data() + p.stage_begin, sizeof(Frame));
    return true;
}

// Payload bytes: those read ahead, then the stream's; reads the beginning of the next frame with the last of them.
std::size_t Mailbox::take(Peer& p, Stream& stream, std::span<std::byte> into) {
    if (p.stage_begin < p.stage_end) {
        const std::size_t count = std::min(into.size(), p.stage_end - p.stage_begin);
        std::memcpy(into.data(), p.stage.data() + p.stage_begin, count);
        p.stage_begin += count;
        return count;
    }
    if (p.drained) return 0;
    const bool last = p.payload_bytes - p.payload_done == into.size();
    const std::span<std::byte> ahead = last ? std::span(p.stage) : std::span<std::byte>();
    const std::size_t count = stream.read(into, ahead);
    p.drained = count < into.size() + ahead.size();
    p.stage_begin = 0;
    p.stage_end = count > into.size() ? count - into.size() : 0;
    return std::min(count, into.size());
}

// A peer's eager bytes have come, and it gives some of ours back. Its number may be any.
bool Mailbox::count_eager(Peer& p, std::uint64_t bytes, std::uint64_t given_back) {
    const bool allowed = bytes <= eager_bytes + message_cost && p.unconsumed + bytes <= credit_bytes &&
                         given_back <= credit_bytes - p.credit;
    if (allowed) {
        p.unconsumed += bytes;
        p.credit += given_back;
        return true;
    }
    lose(p, "it sent more than it was allowed to");
    return false;
}

bool Mailbox::on_header(int from, Peer& p) {
    const Frame& frame = p.header;
    if (frame.magic != Frame::magic_number || frame.world != world_) {
        lose(p, frame.magic != Frame::magic_number ? "it sent something that is not a frame"
                                                   : "it sent a message of another (older) world");
        return false;
    }
    if (frame.kind == Frame::Kind::eager &&
        !count_eager(p, std::min<std::uint64_t>(frame.length, credit_bytes) + message_cost, frame.id))
        return false;
    if (frame.kind == Frame::Kind::credit) return count_eager(p, 0, frame.id);
    switch (frame.kind) {
        case Frame::Kind::eager:
            p.transfer = take_posted(from, frame.channel);
            p.unexpected = nullptr;
            if (p.transfer != nullptr) {
                if (!check(from, frame, *p.transfer)) return false;
                p.transfer->peer = from;
            } else {
                if (!check_unmet(from, frame)) return false;
                auto& messages = unexpected_[frame.channel];
                messages.emplace_back();
                p.unexpected = &messages.back();
                p.unexpected->source = from;
                p.unexpected->frame = frame;
                p.unexpected->bytes = std::make_unique_for_overwrite<std::byte[]>(frame.length);
            }
            p.in_payload = true;
            p.payload_bytes = frame.length;
            p.payload_done = 0;
            return true;
        case Frame::Kind::request:
            if (Transfer* receive = take_posted(from, frame.channel)) {
                if (!check(from, frame, *receive)) return false;
                receive->peer = from;
                grant(from, frame, *receive, When::now);
            } else if (calls_.has_left(frame.channel)) {
                refuse(from, frame.channel, frame.id);
            } else {
                if (!check_unmet(from, frame)) return false;
                Unexpected message;
                message.source = from;
                message.frame = frame;
                message.complete = true;
                unexpected_[frame.channel].push_back(std::move(message));
            }
            return true;
        case Frame::Kind::clear:
            if (const auto found = waiting_sends_.find(frame.id); found != waiting_sends_.end()) {
                Transfer* send = found->second;
                waiting_sends_.erase(found);
                --p.awaited;
                Frame data;
                data.world = world_;
                data.kind = Frame::Kind::data;
                data.channel = send->channel;
                data.length = send->bytes;
                data.id = frame.id;
                enqueue(from, data, send->source, send->bytes, send);
                return true;
            }
            break;
        case Frame::Kind::taken:
            if (const auto found = waiting_sends_.find(frame.id); found != waiting_sends_.end()) {
                found->second->bytes_done = found->second->bytes;
                found->second->done = true;
                waiting_sends_.erase(found);
                --p.awaited;
                return true;
            }
            break;
        case Frame::Kind::refused:
            if (const auto found = waiting_sends_.find(frame.id); found != waiting_sends_.end()) {
                found->second->refused = true;
                waiting_sends_.erase(found);
                --p.awaited;
            }
            if ((frame.channel & collective_channel) != 0)
                findings_.push_back({.kind = Finding::Kind::left_group, .peer = from, .channel = frame.channel});
            return true;
        case Frame::Kind::data:
            if (const auto found = granted_.find(grant_key(from, frame.id));
                found != granted_.end() && found->second->bytes == frame.length) {
                p.transfer = found->second;
                p.unexpected = nullptr;
                granted_.erase(found);
                --p.awaited;
                p.in_payload = true;
                p.payload_bytes = frame.length;
                p.payload_done = 0;
                return true;
            }
            break;
        case Frame::Kind::probe: return on_probe(from, frame);
        case Frame::Kind::finished: on_finished(from, frame); return true;
        case Frame::Kind::credit: break;  // above
    }
    lose(p, "it sent a frame that makes no sense here");
    return false;
}

std::size_t Mailbox::read_payload(Peer& p, Stream& stream) {
    const std::size_t left = p.payload_bytes - p.payload_done;
    if (p.unexpected != nullptr || !p.transfer->on_bytes) {
        std::byte* base = p.unexpected != nullptr ? p.unexpected->bytes.get() : p.transfer->target;
        const std::size_t count = take(p, stream, std::span(base + p.payload_done, std::min(left, turn_bytes)));
        p.payload_done += count;
        if (p.transfer != nullptr) p.transfer->bytes_done = p.payload_done;
        return count;
    }
    // Combine from a buffer that stays in the cache; an element cut in two waits for its rest.
    if (bounce_.empty()) bounce_.resize(bounce_bytes);
    if (p.carried > 0) std::copy_n(p.bounce_carry.begin(), p.carried, bounce_.begin());
    const std::size_t count =
        take(p, stream, std::span(bounce_).subspan(p.carried, std::min(left, bounce_bytes - p.carried)));
    if (count == 0) return 0;
    const std::size_t have = p.carried + count;
    const std::size_t whole = have / p.transfer->element_bytes * p.transfer->element_bytes;
    p.transfer->on_bytes(p.payload_done - p.carried, std::span(bounce_).first(whole));
    p.carried = have - whole;
    p.bounce_carry.assign(bounce_.begin() + static_cast<std::ptrdiff_t>(whole),
                          bounce_.begin() + static_cast<std::ptrdiff_t>(have));
    p.payload_done += count;
    p.transfer->bytes_done = p.payload_done;
    return count;
}

void Mailbox::on_payload_complete(Peer& p) {
    p.in_payload = false;
    p.carried = 0;
    if (p.transfer != nullptr) {
        p.transfer->done = true;
        p.transfer = nullptr;
        if (p.header.kind == Frame::Kind::eager) consumed(p.rank, p.header);
        return;
    }
    Unexpected& message = *p.unexpected;
    p.unexpected = nullptr;
    message.complete = true;
    if (Transfer* bound = message.bound) {
        message.hand_to(*bound);
        consumed(p.rank, message.frame);
        const std::uint64_t channel = message.frame.channel;
        auto& messages = unexpected_[channel];
        messages.remove_if([&](const Unexpected& u) { return &u == &message; });
        if (messages.empty()) unexpected_.erase(channel);
    }
}

}  // namespace tutti::transport
