#include "transport/mailbox_state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace tutti::transport {
namespace {

constexpr std::size_t pull_piece = std::size_t{1} << 20;

std::span<const std::byte> as_bytes(const Frame& frame) {
    return {reinterpret_cast<const std::byte*>(&frame), sizeof(Frame)};
}

auto takes_from(int source) {
    return [source](const Transfer* t) { return t->peer == any_source || t->peer == source; };
}

}  // namespace

Mailbox::Mailbox(int rank, int size, std::uint64_t world, Streams& streams, const Calls& calls,
                 const Neighbours* neighbours)
    : rank_(rank),
      world_(world),
      streams_(streams),
      calls_(calls),
      neighbours_(neighbours),
      peers_(static_cast<std::size_t>(size)) {}

Mailbox::~Mailbox() = default;

void Mailbox::meet(int rank) {
    auto& slot = peers_[static_cast<std::size_t>(rank)];
    slot = std::make_unique<Peer>();
    slot->rank = rank;
    active_.push_back(rank);
}

void Mailbox::enqueue(int to, const Frame& frame, const std::byte* payload, std::size_t bytes, Transfer* transfer) {
    Peer& p = peer(to);
    if (transfer == nullptr && p.lost) return;
    if (transfer == nullptr && p.out.empty() && put_short(to, frame)) return;
    p.out.push_back({frame, payload, bytes, 0, transfer});
    if (p.out.size() == 1) write_some(to, p);
}

void Mailbox::post_send(Transfer& transfer) {
    transfer.done = transfer.refused = false;
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
    if (transfer.bytes >= pull_bytes_ && frame.address == 0 && memory_of(transfer.peer) != nullptr)
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
    ++p.awaited;
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
                grant(message->source, message->frame, transfer, When::next_turn);
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
    count_posted(transfer, 1);
}

void Mailbox::await(int rank, int by) {
    peer(rank).awaited += static_cast<std::size_t>(by);
}

// Of receives that are posted, by so many more or fewer.
void Mailbox::count_posted(const Transfer& receive, int by) {
    if (receive.peer == any_source)
        posted_for_any_ += static_cast<std::size_t>(by);
    else if (receive.peer != rank_)
        await(receive.peer, by);
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
    if (receive.on_bytes)
        receive.on_bytes(0, bytes);
    else if (!bytes.empty())
        std::memmove(receive.target, bytes.data(), bytes.size());
    receive.peer = rank_;
    receive.bytes_done = send.bytes_done = send.bytes;
    receive.done = send.done = true;
}

bool Mailbox::check(int source, const Frame& frame, const Transfer& receive) {
    if (frame.length == receive.bytes && frame.fingerprint == receive.fingerprint) return true;
    mismatch(source, frame, receive.fingerprint, frame.length, receive.bytes);
    return false;
}

void Mailbox::mismatch(int peer, const Frame& frame, std::uint64_t mine, std::size_t their_bytes,
                       std::size_t my_bytes) {
    findings_.push_back({.kind = Finding::Kind::mismatch,
                         .peer = peer,
                         .channel = frame.channel,
                         .theirs = frame.fingerprint,
                         .mine = mine,
                         .their_bytes = their_bytes,
                         .my_bytes = my_bytes});
}

const PeerMemory* Mailbox::memory_of(int peer) const {
    return neighbours_ != nullptr ? neighbours_->memory_of(peer) : nullptr;
}

bool Mailbox::is_posted(int source, std::uint64_t channel) const {
    const auto found = posted_.find(channel);
    return found != posted_.end() && std::ranges::any_of(found->second, takes_from(source));
}

Transfer* Mailbox::take_posted(int source, std::uint64_t channel) {
    const auto found = posted_.find(channel);
    if (found == posted_.end()) return nullptr;
    auto& receives = found->second;
    const auto match = std::ranges::find_if(receives, takes_from(source));
    if (match == receives.end()) return nullptr;
    Transfer* transfer = *match;
    receives.erase(match);
    count_posted(*transfer, -1);
    if (receives.empty()) posted_.erase(found);
    return transfer;
}

void Mailbox::grant(int source, const Frame& request, Transfer& receive, When when) {
    const bool readable =
        Place(request.address) ? neighbours_ != nullptr : request.address != 0 && memory_of(source) != nullptr;
    if (readable)
        pulls_.push_back({source, request.id, request.address, &receive});
    else
        clear(source, request.id, receive, when);
}

// Reads a bounded piece of the first pull, so that the rank looks at deadlines and aborts meanwhile.
bool Mailbox::pull_some() {
    if (pulls_.empty()) return false;
    const Pull pull = pulls_.front();
    Transfer& receive = *pull.receive;
    const std::size_t piece =
        std::min(receive.bytes - receive.bytes_done, receive.on_bytes ? bounce_bytes : pull_piece);
    bool read = false;
    const bool stood = neighbours_->read_offered(pull.source, [&] { read = pull_piece_of(pull, piece); });
    if (!stood) {  // its owner tells all why
        pulls_.pop_front();
        return true;
    }
    if (!read) {
        // The peer is gone, which its lifeline tells, or its memory is closed to us: then it sends.
        pulls_.pop_front();
        if (receive.bytes_done == 0) clear(pull.source, pull.id, receive, When::now);
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
        const std::byte* from = neighbours_->at_place(pull.source, pull.address, receive.bytes);
        if (from == nullptr) return false;
        from += receive.bytes_done;
        if (receive.on_bytes)
            receive.on_bytes(receive.bytes_done, std::span(from, piece));
        else
            std::memmove(to, from, piece);
        return true;
    }
    const PeerMemory& memory = *memory_of(pull.source);
    if (receive.on_bytes && bounce_.empty()) bounce_.resize(bounce_bytes);
    if (receive.on_bytes) to = bounce_.data();
    if (!memory.read(to, pull.address + receive.bytes_done, piece) || !memory.same()) return false;
    if (receive.on_bytes) receive.on_bytes(receive.bytes_done, std::span(bounce_).first(piece));
    return true;
}

// A rank that comes second to an exchange meets the other's request when it posts its receive. If it cleared that at
// once, the other would begin to send, and could clear this rank's own request, which comes next, only behind all of
// its data: first one direction, then the other. So the request goes first.
void Mailbox::clear(int source, std::uint64_t id, Transfer& receive, When when) {
    granted_.emplace(grant_key(source, id), &receive);
    await(source, 1);
    Frame frame;
    frame.world = world_;
    frame.kind = Frame::Kind::clear;
    frame.channel = receive.channel;
    frame.id = id;
    if (when == When::next_turn)
        clears_.emplace_back(source, frame);
    else
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

// A look at a socket costs a call. A stream on which no operation waits gets a look now and then.
bool Mailbox::looks_at(const Peer& p, const Stream& stream) const {
    constexpr unsigned turns_between_looks = 8;
    return p.awaited > 0 || p.in_payload || posted_for_any_ > 0 || !stream.look_takes_call() ||
           (turns_ + static_cast<unsigned>(p.rank)) % turns_between_looks == 0;
}

bool Mailbox::progress() {
    if (!findings_.empty()) return true;  // its owner looks at them first
    bool moved = !clears_.empty();
    for (const auto& [to, frame] : std::exchange(clears_, {})) enqueue(to, frame, nullptr, 0, nullptr);
    moved |= pull_some();
    ++turns_;
    for (std::size_t i = 0; i < active_.size(); ++i) {  // reading may add peers
        Peer& p = *peers_[static_cast<std::size_t>(active_[i])];
        if (p.lost || p.rank == rank_) continue;
        if (!p.out.empty()) moved |= write_some(p.rank, p);
        moved |= read_some(p.rank, p);
        if (!findings_.empty()) return true;
    }
    return moved;
}

bool Mailbox::write_some(int to, Peer& p) {
    Stream* stream = streams_.to(to);
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

// A message of a collective that no receive waits for: perhaps ours is finished, or has none for it. Its fingerprint
// still tells what its sender is doing.
bool Mailbox::check_unmet(int from, const Frame& frame) {
    if ((frame.channel & collective_channel) == 0) return true;
    const std::uint64_t mine = calls_.fingerprint_of(frame.channel);
    if (mine == 0) return true;
    const bool surplus = mine == frame.fingerprint && calls_.has_finished(frame.channel);
    if (mine == frame.fingerprint && !surplus) return true;
    mismatch(from, frame, mine, surplus ? frame.length : 0, 0);
    return false;
}

// A peer waits for us.
bool Mailbox::on_probe(int from, const Frame& frame) {
    if (calls_.has_left(frame.channel)) {
        refuse(from, frame.channel, 0);
        return true;
    }
    const std::uint64_t mine = calls_.fingerprint_of(frame.channel);
    if (mine != 0 && mine != frame.fingerprint) {
        mismatch(from, frame, mine, 0, 0);
        return false;
    }
    if (mine == 0 || !calls_.has_sent_all(from, frame.channel)) return true;
    Frame answer;
    answer.world = world_;
    answer.kind = Frame::Kind::finished;
    answer.channel = frame.channel;
    answer.fingerprint = frame.fingerprint;
    enqueue(from, answer, nullptr, 0, nullptr);
    return true;
}

// All that the peer had for us there has come before. A receive that nothing has met by now waits for a message that
// will not come.
void Mailbox::on_finished(int from, const Frame& frame) {
    const auto found = posted_.find(frame.channel);
    if (found == posted_.end()) return;
    const auto vain = std::ranges::find(found->second, from, &Transfer::peer);
    if (vain == found->second.end() || (*vain)->fingerprint != frame.fingerprint) return;
    mismatch(from, frame, frame.fingerprint, 0, (*vain)->bytes);
}

void Mailbox::check_surplus(std::uint64_t channel, std::uint64_t fingerprint) {
    const auto found = unexpected_.empty() ? unexpected_.end() : unexpected_.find(channel);
    if (found == unexpected_.end() || found->second.empty()) return;
    const Unexpected& message = found->second.front();
    mismatch(message.source, message.frame, fingerprint, message.frame.length, 0);
}

void Mailbox::check_unexpected(std::uint64_t channel, std::uint64_t fingerprint) {
    const auto found = unexpected_.find(channel);
    if (found == unexpected_.end()) return;
    for (const Unexpected& message : found->second) {
        if (message.frame.fingerprint == fingerprint) continue;
        return mismatch(message.source, message.frame, fingerprint, 0, 0);
    }
}

bool Mailbox::cancel_receive(Transfer& transfer) {
    const auto found = posted_.find(transfer.channel);
    if (found == posted_.end()) return false;
    const auto count = found->second.remove(&transfer);
    if (found->second.empty()) posted_.erase(found);
    if (count > 0) count_posted(transfer, -1);
    return count > 0;
}

void Mailbox::cancel_send(Transfer& transfer) {
    const auto waiting = std::erase_if(waiting_sends_, [&](const auto& entry) { return entry.second == &transfer; });
    if (waiting > 0) await(transfer.peer, -1);
    if (transfer.peer == rank_) {
        const auto found = unexpected_.find(transfer.channel);
        if (found == unexpected_.end()) return;
        found->second.remove_if([&](const Unexpected& message) { return message.local_send == &transfer; });
        if (found->second.empty()) unexpected_.erase(found);
        return;
    }
    Peer& p = peer(transfer.peer);
    if (std::ranges::find(p.out, &transfer, &Peer::Outgoing::transfer) == p.out.end()) return;
    p.lost = true;  // perhaps a part of it has been written
    p.out.clear();
}

void Mailbox::refuse(int to, std::uint64_t channel, std::uint64_t id) {
    Frame frame;
    frame.world = world_;
    frame.kind = Frame::Kind::refused;
    frame.channel = channel;
    frame.id = id;
    enqueue(to, frame, nullptr, 0, nullptr);
}

void Mailbox::refuse_unmet() {
    for (auto& [channel, messages] : unexpected_) {
        if (!calls_.has_left(channel)) continue;
        messages.remove_if([&](const Unexpected& message) {
            if (message.frame.kind != Frame::Kind::request) return false;
            refuse(message.source, message.frame.channel, message.frame.id);
            return true;
        });
    }
    std::erase_if(unexpected_, [](const auto& entry) { return entry.second.empty(); });
}

std::vector<int> Mailbox::finish() {
    std::vector<int> late;
    for (const int rank : active_) {
        Peer& p = *peers_[static_cast<std::size_t>(rank)];
        Stream* const stream = rank == rank_ || p.lost ? nullptr : streams_.existing(rank);
        if (stream == nullptr) continue;
        if (p.out.empty() && !p.has_end) p.has_end = stream->end();
        if (!p.has_end || !stream->delivered()) late.push_back(rank);
    }
    return late;
}

const StreamEnd* Mailbox::end_of(int rank) const noexcept {
    const auto& p = peers_[static_cast<std::size_t>(rank)];
    return p && p->end ? &*p->end : nullptr;
}

bool Mailbox::is_over(int rank) const noexcept {
    const auto& p = peers_[static_cast<std::size_t>(rank)];
    return p && p->lost;
}

void Mailbox::drop_all() {
    posted_.clear();
    waiting_sends_.clear();
    granted_.clear();
    unexpected_.clear();
    pulls_.clear();
    clears_.clear();
    posted_for_any_ = 0;
    for (auto& p : peers_) {
        if (!p) continue;
        p->out.clear();
        p->awaited = 0;
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
        Stream* stream = streams_.to(rank);
        if (stream == nullptr) continue;
        stream->pollables(!p.out.empty(), into);
    }
}

}  // namespace tutti::transport
