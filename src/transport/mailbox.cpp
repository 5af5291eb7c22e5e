#include "transport/mailbox_state.hpp"

#include "transport/shm/symmetric.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace tutti::transport {
namespace {

// A turn moves a bounded number of bytes each way, so that both directions flow at once and what is under way between
// two ranks of one machine is still in the cache when it is read.
constexpr std::size_t turn_bytes = std::size_t{256} << 10;
constexpr int turn_frames = 16;
constexpr std::size_t pull_piece = std::size_t{1} << 20;

std::uint64_t grant_key(int source, std::uint64_t id) {
    return (static_cast<std::uint64_t>(source) << 40) ^ id;
}

std::span<const std::byte> as_bytes(const Frame& frame) {
    return {reinterpret_cast<const std::byte*>(&frame), sizeof(Frame)};
}

}  // namespace

Mailbox::Mailbox(int rank, int size, std::uint64_t world, MailboxEvents events)
    : rank_(rank), size_(size), world_(world), events_(std::move(events)), peers_(static_cast<std::size_t>(size)) {}

Mailbox::~Mailbox() = default;

void Mailbox::meet(int rank) {
    auto& slot = peers_[static_cast<std::size_t>(rank)];
    slot = std::make_unique<Peer>();
    slot->rank = rank;
    active_.push_back(rank);
}

void Mailbox::enqueue(int to, const Frame& frame, const std::byte* payload, std::size_t bytes, Transfer* transfer) {
    Peer& p = peer(to);
    if (transfer == nullptr && p.out.empty() && put_short(to, frame)) return;
    p.out.push_back({frame, payload, bytes, 0, transfer});
    if (p.out.size() == 1) write_some(to, p);
}

void Mailbox::post_send(Transfer& transfer) {
    transfer.done = false;
    transfer.bytes_done = 0;
    Frame frame;
    frame.world = world_;
    frame.channel = transfer.channel;
    frame.fingerprint = transfer.fingerprint;
    frame.length = transfer.bytes;
    if (transfer.peer == rank_) {
        if (Transfer* receive = take_posted(rank_, transfer.channel)) {
            if (check(rank_, frame, *receive)) deliver_local(transfer, *receive);
            return;
        }
        Unexpected message;
        message.source = rank_;
        message.frame = frame;
        message.complete = true;
        message.local_send = &transfer;
        unexpected_[transfer.channel].push_back(std::move(message));
        return;
    }
    if (send_now(transfer.peer, transfer.channel, transfer.fingerprint, {transfer.source, transfer.bytes})) {
        transfer.bytes_done = transfer.bytes;
        transfer.done = true;
        return;
    }
    Peer& p = peer(transfer.peer);
    frame.address = place_of(transfer.peer, std::span(transfer.source, transfer.bytes));
    if (transfer.bytes >= pull_bytes_ && frame.address == 0 && events_.memory &&
        events_.memory(transfer.peer) != nullptr)
        frame.address = reinterpret_cast<std::uint64_t>(transfer.source);
    const bool pulled = frame.address != 0;
    if (const std::size_t cost = transfer.bytes + message_cost;
        !pulled && transfer.bytes <= eager_bytes && cost <= p.credit) {
        p.credit -= cost;
        frame.id = give_back(p);
        enqueue(transfer.peer, frame, transfer.source, transfer.bytes, &transfer);
        return;
    }
    frame.kind = Frame::Kind::request;
    frame.id = next_id_++;
    waiting_sends_.emplace(frame.id, &transfer);
    enqueue(transfer.peer, frame, nullptr, 0, nullptr);
}

void Mailbox::post_receive(Transfer& transfer) {
    transfer.done = false;
    transfer.bytes_done = 0;
    if (const auto found = unexpected_.empty() ? unexpected_.end() : unexpected_.find(transfer.channel);
        found != unexpected_.end()) {
        auto& messages = found->second;
        const auto message = std::ranges::find_if(messages, [&](const Unexpected& u) {
            return u.bound == nullptr && (transfer.peer == any_source || u.source == transfer.peer);
        });
        if (message != messages.end()) {
            if (!check(message->source, message->frame, transfer)) return;
            transfer.peer = message->source;
            if (!message->complete) {
                message->bound = &transfer;
                return;
            }
            if (message->local_send != nullptr) {
                deliver_local(*message->local_send, transfer);
            } else if (message->frame.kind == Frame::Kind::request) {
                grant(message->source, message->frame, transfer);
            } else {
                message->hand_to(transfer);
                consumed(message->source, message->frame);
            }
            messages.erase(message);
            if (messages.empty()) unexpected_.erase(found);
            return;
        }
    }
    posted_[transfer.channel].push_back(&transfer);
    if (transfer.peer != any_source && transfer.peer != rank_) peer(transfer.peer);
}

// A receive has taken an eager message; the sender may send as much again. It learns so from our next message to it,
// or, when there has been none for long, from a frame of its own.
void Mailbox::consumed(int source, const Frame& frame) {
    Peer& p = peer(source);
    p.owed += frame.length + message_cost;
    if (p.owed < credit_bytes / 2) return;
    Frame credit;
    credit.world = world_;
    credit.kind = Frame::Kind::credit;
    credit.id = give_back(p);
    enqueue(source, credit, nullptr, 0, nullptr);
}

std::uint64_t Mailbox::give_back(Peer& p) {
    p.unconsumed -= p.owed;
    return std::exchange(p.owed, 0);
}

void Mailbox::deliver_local(Transfer& send, Transfer& receive) {
    const std::span<const std::byte> bytes(send.source, send.bytes);
    if (receive.absorb)
        receive.absorb(0, bytes);
    else if (!bytes.empty())
        std::memmove(receive.target, bytes.data(), bytes.size());
    receive.peer = rank_;
    receive.bytes_done = send.bytes_done = send.bytes;
    receive.done = send.done = true;
}

bool Mailbox::check(int source, const Frame& frame, const Transfer& receive) {
    if (frame.length == receive.bytes && frame.fingerprint == receive.fingerprint) return true;
    events_.mismatch(source, frame.channel, frame.fingerprint, receive.fingerprint, frame.length, receive.bytes);
    return false;
}

Transfer* Mailbox::take_posted(int source, std::uint64_t channel) {
    const auto found = posted_.find(channel);
    if (found == posted_.end()) return nullptr;
    auto& receives = found->second;
    const auto match =
        std::ranges::find_if(receives, [&](const Transfer* t) { return t->peer == any_source || t->peer == source; });
    if (match == receives.end()) return nullptr;
    Transfer* transfer = *match;
    receives.erase(match);
    if (receives.empty()) posted_.erase(found);
    return transfer;
}

void Mailbox::grant(int source, const Frame& request, Transfer& receive) {
    const bool readable = Place(request.address)
                              ? static_cast<bool>(events_.at_place)
                              : request.address != 0 && events_.memory && events_.memory(source) != nullptr;
    if (readable)
        pulls_.push_back({source, request.id, request.address, &receive});
    else
        clear(source, request.id, receive);
}

// Reads a bounded piece of the first pull, so that deadlines and aborts are looked at meanwhile.
bool Mailbox::pull_some() {
    if (pulls_.empty()) return false;
    const Pull pull = pulls_.front();
    Transfer& receive = *pull.receive;
    const std::size_t piece = std::min(receive.bytes - receive.bytes_done, receive.absorb ? bounce_bytes : pull_piece);
    if (!pull_piece_of(pull, piece)) {
        // It is gone, which its lifeline tells, or does not let us: then it sends.
        pulls_.pop_front();
        if (receive.bytes_done == 0) clear(pull.source, pull.id, receive);
        return true;
    }
    receive.bytes_done += piece;
    if (receive.bytes_done < receive.bytes) return true;
    pulls_.pop_front();
    receive.done = true;
    Frame frame;
    frame.world = world_;
    frame.kind = Frame::Kind::taken;
    frame.channel = receive.channel;
    frame.id = pull.id;
    enqueue(pull.source, frame, nullptr, 0, nullptr);
    return true;
}

bool Mailbox::pull_piece_of(const Pull& pull, std::size_t piece) {
    Transfer& receive = *pull.receive;
    std::byte* to = receive.target + receive.bytes_done;
    if (Place(pull.address)) {
        const std::byte* from = events_.at_place(pull.source, pull.address, receive.bytes);
        if (from == nullptr) return false;
        from += receive.bytes_done;
        if (receive.absorb)
            receive.absorb(receive.bytes_done, std::span(from, piece));
        else
            std::memmove(to, from, piece);
        return true;
    }
    const PeerMemory& memory = *events_.memory(pull.source);
    if (receive.absorb && bounce_.empty()) bounce_.resize(bounce_bytes);
    if (receive.absorb) to = bounce_.data();
    if (!memory.read(to, pull.address + receive.bytes_done, piece) || !memory.same()) return false;
    if (receive.absorb) receive.absorb(receive.bytes_done, std::span(bounce_).first(piece));
    return true;
}

void Mailbox::clear(int source, std::uint64_t id, Transfer& receive) {
    granted_.emplace(grant_key(source, id), &receive);
    Frame frame;
    frame.world = world_;
    frame.kind = Frame::Kind::clear;
    frame.channel = receive.channel;
    frame.id = id;
    enqueue(source, frame, nullptr, 0, nullptr);
}

void Mailbox::probe(int to, std::uint64_t channel, std::uint64_t fingerprint) {
    Frame frame;
    frame.world = world_;
    frame.kind = Frame::Kind::probe;
    frame.channel = channel;
    frame.fingerprint = fingerprint;
    enqueue(to, frame, nullptr, 0, nullptr);
}

bool Mailbox::progress() {
    bool moved = pull_some();
    for (std::size_t i = 0; i < active_.size(); ++i) {  // reading may add peers
        Peer& p = *peers_[static_cast<std::size_t>(active_[i])];
        if (p.lost || p.rank == rank_) continue;
        if (!p.out.empty()) moved |= write_some(p.rank, p);
        moved |= read_some(p.rank, p);
    }
    return moved;
}

bool Mailbox::write_some(int to, Peer& p) {
    Stream* stream = events_.stream(to);
    if (stream == nullptr) return false;
    bool moved = false;
    for (std::size_t left = turn_bytes; !p.out.empty() && left > 0;) {
        Peer::Outgoing& out = p.out.front();
        const auto header =
            out.written < sizeof(Frame) ? as_bytes(out.frame).subspan(out.written) : std::span<const std::byte>{};
        const std::size_t payload_done = out.written > sizeof(Frame) ? out.written - sizeof(Frame) : 0;
        const auto payload = std::span(out.payload, out.bytes).subspan(payload_done);
        const std::size_t count = stream->write(header, payload.first(std::min(payload.size(), left)));
        if (count == 0) break;
        moved = true;
        out.written += count;
        left -= std::min(left, count);
        if (out.transfer != nullptr && out.written > sizeof(Frame))
            out.transfer->bytes_done = out.written - sizeof(Frame);
        if (out.written < sizeof(Frame) + out.bytes) continue;
        if (out.transfer != nullptr) out.transfer->done = true;
        p.out.pop_front();
    }
    return moved;
}

bool Mailbox::read_some(int from, Peer& p) {
    Stream* stream = events_.stream(from);
    if (stream == nullptr) return false;
    bool moved = false;
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
                    moved = true;
                    if (eager ? !on_short(from, p, *stream, message, take_posted(from, message.channel))
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
        on_payload_complete(p);
    }
    if (!moved && stream->state() == StreamState::closed) {
        p.lost = true;
        events_.lost(from, stream->reason());
    }
    return moved;
}

// Reads ahead as far as the stage reaches; true when a whole header is there, which it takes.
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
    p.stage_begin += sizeof(Frame);
    return true;
}

// Payload bytes: those that were read ahead, then the stream's; with the last of them the beginning of what follows.
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

// A message of a collective that no receive waits for: perhaps ours is finished, or has none for it. It still tells
// what its sender is doing.
bool Mailbox::check_unmet(int from, const Frame& frame) {
    if ((frame.channel & collective_channel) == 0) return true;
    const std::uint64_t mine = events_.fingerprint_of(frame.channel);
    if (mine == 0 || mine == frame.fingerprint) return true;
    events_.mismatch(from, frame.channel, frame.fingerprint, mine, 0, 0);
    return false;
}

void Mailbox::check_unexpected(std::uint64_t channel, std::uint64_t fingerprint) {
    const auto found = unexpected_.find(channel);
    if (found == unexpected_.end()) return;
    for (const Unexpected& message : found->second) {
        if (message.frame.fingerprint == fingerprint) continue;
        return events_.mismatch(message.source, channel, message.frame.fingerprint, fingerprint, 0, 0);
    }
}

// A peer's eager bytes have come, and it gives some of ours back.
bool Mailbox::count_eager(int from, Peer& p, std::uint64_t bytes, std::uint64_t given_back) {
    const bool allowed = bytes <= eager_bytes + message_cost && p.unconsumed + bytes <= credit_bytes &&
                         given_back <= credit_bytes - p.credit;
    if (allowed) {
        p.unconsumed += bytes;
        p.credit += given_back;
        return true;
    }
    p.lost = true;
    events_.lost(from, "it sent more than it was allowed to");
    return false;
}

bool Mailbox::on_header(int from, Peer& p) {
    const Frame& frame = p.header;
    if (frame.magic != Frame::magic_number || frame.world != world_) {
        p.lost = true;
        events_.lost(from, frame.magic != Frame::magic_number ? "it sent something that is not a frame"
                                                              : "it sent a message of another (older) world");
        return false;
    }
    if (frame.kind == Frame::Kind::eager && !count_eager(from, p, frame.length + message_cost, frame.id)) return false;
    if (frame.kind == Frame::Kind::credit) return count_eager(from, p, 0, frame.id);
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
                grant(from, frame, *receive);
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
                return true;
            }
            break;
        case Frame::Kind::data:
            if (const auto found = granted_.find(grant_key(from, frame.id));
                found != granted_.end() && found->second->bytes == frame.length) {
                p.transfer = found->second;
                p.unexpected = nullptr;
                granted_.erase(found);
                p.in_payload = true;
                p.payload_bytes = frame.length;
                p.payload_done = 0;
                return true;
            }
            break;
        case Frame::Kind::probe: {
            const std::uint64_t mine = events_.fingerprint_of(frame.channel);
            if (mine != 0 && mine != frame.fingerprint) {
                events_.mismatch(from, frame.channel, frame.fingerprint, mine, 0, 0);
                return false;
            }
            return true;
        }
        case Frame::Kind::credit: break;  // above
    }
    p.lost = true;
    events_.lost(from, "it sent a frame that makes no sense here");
    return false;
}

std::size_t Mailbox::read_payload(Peer& p, Stream& stream) {
    const std::size_t left = p.payload_bytes - p.payload_done;
    if (p.unexpected != nullptr || !p.transfer->absorb) {
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
    p.transfer->absorb(p.payload_done - p.carried, std::span(bounce_).first(whole));
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

bool Mailbox::cancel_receive(Transfer& transfer) {
    const auto found = posted_.find(transfer.channel);
    if (found == posted_.end()) return false;
    const auto count = found->second.remove(&transfer);
    if (found->second.empty()) posted_.erase(found);
    return count > 0;
}

void Mailbox::drop_all() {
    posted_.clear();
    waiting_sends_.clear();
    granted_.clear();
    unexpected_.clear();
    pulls_.clear();
    for (auto& p : peers_) {
        if (!p) continue;
        p->out.clear();
        p->in_payload = false;
        p->transfer = nullptr;
        p->unexpected = nullptr;
        p->lost = true;
    }
}

void Mailbox::pollables(std::vector<Pollable>& into) const {
    into.clear();
    for (const int rank : active_) {
        const Peer& p = *peers_[static_cast<std::size_t>(rank)];
        if (p.lost || rank == rank_) continue;
        Stream* stream = events_.stream(rank);
        if (stream == nullptr) continue;
        stream->pollables(!p.out.empty(), into);
    }
}

bool Mailbox::output_pending() const {
    return std::ranges::any_of(active_, [&](int rank) { return !peers_[static_cast<std::size_t>(rank)]->out.empty(); });
}

}  // namespace tutti::transport
