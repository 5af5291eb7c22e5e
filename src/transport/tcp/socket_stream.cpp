#include "transport/tcp/socket_stream.hpp"

#include "core/assert.hpp"
#include "core/socket.hpp"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

namespace tutti::transport {
namespace {

constexpr std::size_t lanes_max = 2 * LaneGrowth::lanes_max;  // both ranks may add some at the same time
// With several lanes: short enough that a message is spread over them, and one of the kernel's packets of 64 KB
// together with its header; a longer chunk's rest would be a packet of its own.
constexpr std::size_t chunk_bytes = std::size_t{65024};
// The bytes that a lane may hold before the network has taken them: a quick lane cannot take bytes that sit in a slow
// lane's buffer. The kernel calls a lane writable from half of that on: then it takes a whole chunk.
constexpr int unsent_max = 2 * chunk_bytes;
// A look at a lane that is most likely idle costs a system call.
constexpr std::uint32_t looks_before_others = 8;
// Moving fewer bytes at once takes no time that would have to be counted.
constexpr std::size_t many_bytes = std::size_t{16} << 10;
// 0: without a bound.
void bound_unsent(const Lane& lane, int bytes) {
    ::setsockopt(lane.fd(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, sizeof bytes);
}

// Runs `move` and returns the bytes moved; counts its time if there may be many and it moved any.
template <typename Move>
std::size_t timed(SocketTime& time, std::size_t at_most, Move&& move) {
    if (at_most < many_bytes) return move();
    const Instant begin = Clock::now();
    const std::size_t moved = move();
    if (moved > 0) time.moving += Clock::now() - begin;
    return moved;
}

}  // namespace

void SocketStream::add(security::Connection connection) {
    TUTTI_ASSERT(connection.fd.get() >= 0);
    if (lanes_.size() >= lanes_max) return;  // more than any peer makes
    congestion_.apply(connection.fd.get());
    far_ |= net::round_trip(connection.fd.get()).value_or(std::chrono::microseconds()) >= net::far_round_trip;
    if (connection.wire.is_encrypted()) checksums_ = Checksums::off;
    lanes_.push_back(std::make_unique<Lane>(std::move(connection), checksums_));
    wants_lane_ = false;
    TUTTI_ASSERT(lanes_.size() <= lanes_max);
}

void SocketStream::give_up() noexcept {
    given_up_ = true;
    wants_lane_ = false;
}

void SocketStream::break_off(std::string reason, StreamState as) {
    TUTTI_ASSERT(as == StreamState::closed || as == StreamState::damaged);
    if (closed()) return;
    state_ = as;
    reason_ = std::move(reason);
}

// New chunks go on the first `count` lanes.
void SocketStream::use(int count) {
    TUTTI_ASSERT(count >= 1 && count <= lanes());
    const auto lanes = static_cast<std::size_t>(count);
    if (lanes == used_) return;
    used_ = lanes;
    for (const auto& lane : lanes_) bound_unsent(*lane, used_ == 1 ? 0 : unsent_max);
}

std::size_t SocketStream::write(std::span<const std::byte> header, std::span<const std::byte> payload) {
    if (lanes_.empty() || closed() || has_end_ || broken()) return 0;
    const std::size_t size = header.size() + payload.size();
    const std::size_t taken = timed(time_, size, [&] { return send({written_, header, payload}); });
    TUTTI_ASSERT(taken <= size);
    written_ += taken;
    if ((taken < size || size >= chunk_bytes) && !given_up_ && !wants_lane_) {
        wants_lane_ = growth_.wants(lanes(), peer_wants_, Clock::now(), [this](StreamCounts& counts) {
            for (const auto& lane : lanes_) counts.lanes.push_back(LaneCounts::of(lane->fd()));
            counts.moving_us =
                static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(time_.moving).count());
        });
    }
    return taken;
}

bool SocketStream::broken() const noexcept {
    return std::ranges::any_of(lanes_, [](const auto& lane) { return lane->broken(); });
}

bool SocketStream::end() {
    if (has_end_ || lanes_.empty()) return true;
    // The end says how many chunks there are, so it may be on any lane. Within a message the stream cannot end.
    const bool cut = !window_assigned_ || std::ranges::any_of(lanes_, [](const auto& lane) { return lane->sending(); });
    if (!cut && !closed() && !broken() && !say_end() && !broken()) return false;
    has_end_ = true;
    for (const auto& lane : lanes_) lane->close_output();
    return true;
}

// On one of its lanes.
bool SocketStream::say_end() {
    TUTTI_ASSERT(!lanes_.empty() && !has_end_);
    for (const auto& lane : lanes_) {
        if (lane->end(next_out_)) return true;
        if (lane->ending()) break;
    }
    return false;
}

void SocketStream::close() noexcept {
    if (end()) return;
    has_end_ = true;  // there is no room for it
    for (const auto& lane : lanes_) lane->close_output();
}

void SocketStream::cut() noexcept {
    for (const auto& lane : lanes_) ::shutdown(lane->fd(), SHUT_RDWR);
}

bool SocketStream::spoil() noexcept {
    spoils_next_ = checksums_ == Checksums::on;
    const bool by_tls = !lanes_.empty() && lanes_.front()->spoil();
    return spoils_next_ || by_tls;
}

bool SocketStream::delivered() const noexcept {
    return std::ranges::all_of(lanes_, [](const auto& lane) { return lane->confirmed(); });
}

// How many bytes more of the window its lanes have taken.
std::size_t SocketStream::send(const Window& window) {
    TUTTI_ASSERT(!lanes_.empty() && !has_end_);
    TUTTI_ASSERT(window.begin == written_ && window.begin <= assigned_);
    const std::uint64_t end = window.end();
    for (const auto& lane : lanes_) lane->go_on(window);
    use(growth_.in_use(lanes(), peer_wants_));
    if (used_ > 1) look_at_paces();
    for (std::uint64_t full = 0; assigned_ < end;) {
        const auto index = lane_for_next(full);
        if (!index) break;
        ChunkStart start;
        std::uint32_t number = next_out_;
        const std::uint64_t begin = assigned_ + header_alone(window);
        if (begin > assigned_) {
            start.add(header_of(number++, assigned_, begin, window));
            start.add(window.first.subspan(assigned_ - window.begin, begin - assigned_));
        }
        const std::uint64_t chunk_end = std::min(begin + (used_ == 1 ? chunk_bytes_max : chunk_bytes), end);
        start.add(header_of(number++, begin, chunk_end, window));
        if (lanes_[*index]->begin(start, begin, chunk_end, window)) {
            assigned_ = chunk_end;
            next_out_ = number;
        } else {
            full |= std::uint64_t{1} << *index;
        }
    }
    window_assigned_ = assigned_ >= end;
    std::uint64_t taken = std::min(assigned_, end);  // chunks may have begun in a window that reached further
    for (const auto& lane : lanes_) {
        if (lane->sending()) taken = std::min(taken, lane->position());
    }
    TUTTI_ASSERT(taken >= window.begin && taken <= end);
    return static_cast<std::size_t>(taken - window.begin);
}

// How many bytes of the stream's header get a chunk of their own: a reader that acts on a header has to know that it is
// right, and does once all of a short chunk is here. With a short payload it shares one.
std::size_t SocketStream::header_alone(const Window& window) const {
    TUTTI_ASSERT(assigned_ >= window.begin);
    const std::uint64_t header_end = window.begin + window.first.size();
    const bool shares = window.end() - assigned_ <= short_chunk_bytes;
    if (checksums_ == Checksums::off || assigned_ >= header_end || shares) return 0;
    return std::min<std::uint64_t>(header_end - assigned_, ChunkStart::few_bytes);
}

ChunkHeader SocketStream::header_of(std::uint32_t number, std::uint64_t begin, std::uint64_t end,
                                    const Window& window) {
    TUTTI_ASSERT(begin < end && end - begin <= chunk_bytes_max);
    ChunkHeader header{.number = number,
                       .bytes = static_cast<std::uint32_t>(end - begin) & 0xffffffU,
                       .lanes = static_cast<std::uint8_t>(growth_.wanted())};
    if (checksums_ == Checksums::off) return header;
    const bool is_long = end - begin > short_chunk_bytes;
    if (!is_long) {
        header.sum = window.sum(begin, end);
    } else {
        if (sum_.begin != begin || sum_.end != end) sum_ = {begin, end, window.sum(begin, end)};
        header.sum = sum_.value;
    }
    if (std::exchange(spoils_next_, false)) header.sum ^= 1;
    header.own_sum = header.right_sum();
    return header;
}

void SocketStream::look_at_paces() {
    const Instant now = Clock::now();
    if (now < next_look_) return;
    next_look_ = now + LanePace::between_looks;
    for (std::size_t i = 0; i < used_; ++i) lanes_[i]->look_at_pace(now);
}

// Of the lanes that take more now and are not in the set `full`, the one that brings it first.
std::optional<std::size_t> SocketStream::lane_for_next(std::uint64_t full) const {
    TUTTI_ASSERT(used_ >= 1 && used_ <= lanes_.size());
    if (used_ == 1) return lanes_[0]->sending() || full != 0 ? std::nullopt : std::optional<std::size_t>(0);
    std::array<LaneLoad, lanes_max> loads;
    for (std::size_t i = 0; i < used_; ++i) {
        const Lane& lane = *lanes_[i];
        const bool takes = !lane.sending() && (full >> i & 1U) == 0 && lane.unsent() <= chunk_bytes;
        loads[i] = {takes, takes ? lane.unacknowledged() : 0, lane.rate()};
    }
    return choose_lane(std::span(loads).first(used_), chunk_bytes);
}

bool SocketStream::brings_next_chunk(Lane& lane) {
    const auto number = lane.incoming();
    if (number == next_in_ && lane.brings_end()) {
        state_ = StreamState::ended;
        return false;
    }
    if (number == next_in_) {
        in_ = &lane;
        peer_wants_ = lane.lanes_of_peer();
        return true;
    }
    // Later chunks may be on lanes that this rank does not know of yet; one that it has read cannot come again.
    if (number && static_cast<std::int32_t>(*number - next_in_) < 0) break_off("it sent a chunk that is out of order");
    return false;
}

// The lane that brings the next chunk, if it is known now.
Lane* SocketStream::incoming_lane() {
    TUTTI_ASSERT(state_ == StreamState::open);
    if (in_ != nullptr || lanes_.empty()) return in_;
    if (likely_in_ >= lanes_.size()) likely_in_ = 0;
    Lane& likely = *lanes_[likely_in_];
    if (brings_next_chunk(likely) || state_ != StreamState::open || lanes_.size() == 1) return in_;
    // The peer writes on other lanes only while that one is full.
    const bool look = likely.receiving() || ++looks_ % looks_before_others == 0;
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
        Lane& lane = *lanes_[i];
        if (!(look || lane.holds_chunk()) || !brings_next_chunk(lane)) continue;
        likely_in_ = i;
        break;
    }
    TUTTI_ASSERT(in_ == nullptr || in_->receiving());
    return in_;
}

std::size_t SocketStream::read(std::span<std::byte> into, std::span<std::byte> /*ahead*/) {
    return timed(time_, into.size(), [&] {
        const std::size_t total = fill(into);
        return total == 0 && look_at_ends() ? fill(into) : total;
    });
}

std::size_t SocketStream::fill(std::span<std::byte> into) {
    std::size_t total = 0;
    while (state_ == StreamState::open && total < into.size()) {
        Lane* lane = incoming_lane();
        if (lane == nullptr) break;
        const auto rest = into.subspan(total);
        const std::size_t count = lane->take(rest);
        total += count;
        TUTTI_ASSERT(total <= into.size());
        if (!lane->receiving()) {
            in_ = nullptr;
            ++next_in_;
        } else if (count < rest.size()) {
            break;  // its socket is empty
        }
    }
    return total;
}

// Nothing can be read now: whether anything will come. Bytes sent on other lanes before one ended may still be on their
// way, however long that takes; where one broke, the bytes that it carried are missing. True: there was something, on a
// lane that this rank had not looked at.
bool SocketStream::look_at_ends() {
    TUTTI_ASSERT(state_ == StreamState::open || in_ == nullptr || !in_->brings_end());
    if (state_ != StreamState::open) return false;
    const auto damaged = std::ranges::find_if(lanes_, [](const auto& lane) { return lane->damaged(); });
    if (damaged != lanes_.end()) {
        break_off((*damaged)->ended(), StreamState::damaged);
        return false;
    }
    if (in_ != nullptr) {
        if (!in_->ended().empty()) break_off(in_->ended());
        return false;
    }
    const auto over = [](const auto& lane) { return !lane->ended().empty() && !lane->holds_chunk(); };
    if (std::ranges::none_of(lanes_, over)) return false;
    for (const auto& lane : lanes_) {
        if (lane->incoming() == next_in_) return true;
    }
    const auto broke = std::ranges::find_if(lanes_, [&](const auto& lane) { return over(lane) && lane->broke_off(); });
    if ((broke != lanes_.end() || std::ranges::all_of(lanes_, over)) && has_all_lanes_())
        break_off((broke != lanes_.end() ? *broke : lanes_.front())->ended());
    return false;
}

void SocketStream::pollables(bool output, std::vector<Pollable>& into) const {
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
        const Lane& lane = *lanes_[i];
        // A chunk that came early cannot be read yet.
        const bool input = in_ != nullptr ? &lane == in_ : !lane.holds_chunk();
        if (input && lane.ended().empty()) into.push_back({lane.input_fd(), false});
        const bool bytes_wait = lane.sending() || (i < used_ && !window_assigned_);
        if (output && bytes_wait && !closed() && !lane.broken()) into.push_back({lane.fd(), true});
    }
}

}  // namespace tutti::transport
