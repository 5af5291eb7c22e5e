#include "transport/tcp/socket_stream.hpp"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

namespace tutti::transport {
namespace {

constexpr std::size_t lanes_max = 2 * LaneGrowth::lanes_max;  // both ranks may add some at the same time
// With several lanes: short enough that a message is spread over them.
constexpr std::size_t chunk_bytes = std::size_t{64} << 10;
// What a lane may hold that the network has not taken: what is in the buffer of a slow lane, a quick one cannot take.
// The kernel calls it writable from half of that on: then it takes a whole chunk.
constexpr int unsent_max = 2 * chunk_bytes;
// A look at a lane that is most likely idle costs a system call.
constexpr std::uint32_t looks_before_others = 8;
// When one lane has ended, what was sent on others before may still be on its way.
constexpr std::chrono::seconds end_patience{1};

void bound_unsent(const Lane& lane) {
    ::setsockopt(lane.fd(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent_max, sizeof unsent_max);
}

}  // namespace

void SocketStream::add(UniqueFd fd) {
    if (lanes_.size() >= lanes_max) return;  // more than any peer makes
    congestion_.apply(fd.get());
    lanes_.push_back(std::make_unique<Lane>(std::move(fd)));
    wants_lane_ = false;
    if (lanes_.size() == 2) bound_unsent(*lanes_.front());
    if (lanes_.size() >= 2) bound_unsent(*lanes_.back());
}

void SocketStream::give_up() noexcept {
    given_up_ = true;
    wants_lane_ = false;
}

void SocketStream::close(std::string reason) {
    if (closed_) return;
    closed_ = true;
    reason_ = std::move(reason);
}

std::size_t SocketStream::write(std::span<const std::byte> header, std::span<const std::byte> payload) {
    const auto broken = [](const auto& lane) { return lane->broken(); };
    if (lanes_.empty() || closed_ || std::ranges::any_of(lanes_, broken)) return 0;
    const Window window{written_, header, payload};
    const std::uint64_t end = window.end();
    for (const auto& lane : lanes_) lane->go_on(window);
    const std::uint64_t most = lanes_.size() == 1 ? chunk_bytes_max : chunk_bytes;
    for (std::size_t full = 0; full < lanes_.size() && assigned_ < end;) {
        Lane& lane = *lanes_[out_];
        const std::uint64_t chunk_end = std::min(assigned_ + most, end);
        const bool has_room = lanes_.size() == 1 || lane.unsent() <= chunk_bytes;
        if (has_room && !lane.sending() && lane.begin(next_out_, assigned_, chunk_end, window)) {
            assigned_ = chunk_end;
            ++next_out_;
            if (!lane.sending()) continue;
        }
        out_ = (out_ + 1) % lanes_.size();
        ++full;
    }
    window_assigned_ = assigned_ >= end;
    std::uint64_t taken = std::min(assigned_, end);  // chunks may have begun in a window that reached further
    for (const auto& lane : lanes_) {
        if (lane->sending()) taken = std::min(taken, lane->position());
    }
    if (taken < end && !given_up_ && !wants_lane_) {
        wants_lane_ = growth_.wants(lanes(), Clock::now(), [this] {
            LaneCounts counts;
            for (const auto& lane : lanes_) counts.add(lane->fd());
            return counts;
        });
    }
    return static_cast<std::size_t>(taken - std::exchange(written_, taken));
}

bool SocketStream::brings_next_chunk(Lane& lane) {
    const auto number = lane.incoming();
    if (number == next_in_) in_ = &lane;
    // Others may be on lanes that this rank does not know of yet; one that has been read cannot come again.
    else if (number && static_cast<std::int32_t>(*number - next_in_) < 0)
        close("it sent a chunk that is out of order");
    return number == next_in_;
}

// The lane that brings the next chunk, if that can be told now.
Lane* SocketStream::incoming_lane() {
    if (in_ != nullptr || lanes_.empty()) return in_;
    if (likely_in_ >= lanes_.size()) likely_in_ = 0;
    Lane& likely = *lanes_[likely_in_];
    if (brings_next_chunk(likely) || lanes_.size() == 1) return in_;
    // Others are written on only while that one is full.
    const bool look = likely.receiving() || ++looks_ % looks_before_others == 0;
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
        Lane& lane = *lanes_[i];
        if (!(look || lane.holds_chunk()) || !brings_next_chunk(lane)) continue;
        likely_in_ = i;
        break;
    }
    return in_;
}

std::size_t SocketStream::read(std::span<std::byte> into, std::span<std::byte> /*ahead*/) {
    std::size_t total = 0;
    while (!closed_ && total < into.size()) {
        Lane* lane = incoming_lane();
        if (lane == nullptr) break;
        const auto rest = into.subspan(total);
        const std::size_t count = lane->take(rest);
        total += count;
        if (!lane->receiving()) {
            in_ = nullptr;
            ++next_in_;
        } else if (count < rest.size()) {
            break;  // its socket is empty
        }
    }
    if (total == 0) look_at_ends();
    return total;
}

// Nothing can be read now: whether anything will come.
void SocketStream::look_at_ends() {
    if (in_ != nullptr) {
        if (!in_->ended().empty()) close(in_->ended());
        return;
    }
    const auto ended = [](const auto& lane) { return !lane->ended().empty() && !lane->receiving(); };
    const auto first = std::ranges::find_if(lanes_, ended);
    if (first == lanes_.end()) return;
    const Instant now = Clock::now();
    if (first_end_ == Instant{}) first_end_ = now;
    if (std::ranges::all_of(lanes_, ended) || now - first_end_ > end_patience) close((*first)->ended());
}

void SocketStream::pollables(bool output, std::vector<Pollable>& into) const {
    for (const auto& lane : lanes_) {
        // What came early cannot be read yet.
        const bool input = in_ != nullptr ? lane.get() == in_ : !lane->holds_chunk();
        if (input && lane->ended().empty()) into.push_back({lane->fd(), false});
        if (output && !closed_ && !lane->broken() && (lane->sending() || !window_assigned_))
            into.push_back({lane->fd(), true});
    }
}

}  // namespace tutti::transport
