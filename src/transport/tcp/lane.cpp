#include "transport/tcp/lane.hpp"

#include "core/assert.hpp"
#include "core/crc32c.hpp"
#include "transport/tcp/lane_growth.hpp"

#include <fmt/format.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

namespace tutti::transport {

std::size_t Window::cut(std::uint64_t from, std::uint64_t to, iovec* parts) const noexcept {
    TUTTI_ASSERT(from <= to);
    TUTTI_ASSERT(parts != nullptr);
    std::size_t count = 0;
    std::uint64_t at = begin;
    for (const auto& part : {first, second}) {
        const std::uint64_t low = std::max(from, at), high = std::min(to, at + part.size());
        if (low < high) parts[count++] = {const_cast<std::byte*>(part.data()) + (low - at), high - low};
        at += part.size();
    }
    TUTTI_ASSERT(count <= 2);
    return count;
}

std::uint32_t Window::sum(std::uint64_t from, std::uint64_t to) const noexcept {
    TUTTI_ASSERT(begin <= from && from <= to && to <= end());
    iovec parts[2];
    std::uint32_t value = 0;
    for (std::size_t i = 0, count = cut(from, to, parts); i < count; ++i)
        value = crc32c({static_cast<const std::byte*>(parts[i].iov_base), parts[i].iov_len}, value);
    return value;
}

std::uint32_t ChunkHeader::right_sum() const noexcept {
    return crc32c(std::as_bytes(std::span(this, 1)).first(offsetof(ChunkHeader, own_sum)));
}

std::uint64_t Lane::position() const noexcept {
    TUTTI_ASSERT(out_begin_ <= out_end_);
    return out_begin_ + (out_sent_ - std::min(out_sent_, out_start_.bytes().size()));
}

namespace {
constexpr std::uint8_t closed_state = 7;  // TCP_CLOSE, which linux/tcp.h does not have

std::size_t queued(int fd, unsigned long which) {
    int bytes = 0;
    return ::ioctl(fd, which, &bytes) == 0 && bytes > 0 ? static_cast<std::size_t>(bytes) : 0;
}
}  // namespace

std::size_t Lane::unsent() const noexcept {
    return queued(fd_.get(), SIOCOUTQNSD);
}

std::size_t Lane::unacknowledged() const noexcept {
    return queued(fd_.get(), SIOCOUTQ);
}

void Lane::look_at_pace(Instant now) {
    pace_.look(now, LaneCounts::of(fd_.get()).bytes, unacknowledged());
}

bool Lane::begin(const ChunkStart& start, std::uint64_t begin, std::uint64_t end, const Window& window) {
    TUTTI_ASSERT(!sending() && !ending_);
    TUTTI_ASSERT(begin < end && end - begin <= chunk_bytes_max);
    TUTTI_ASSERT(window.begin <= begin && end <= window.end());
    out_start_ = start;
    out_sent_ = 0;
    out_begin_ = begin;
    out_end_ = end;
    const bool begun = send(window) || wire_.has_begun();
    if (!begun) out_end_ = out_begin_;
    return begun;
}

void Lane::go_on(const Window& window) {
    TUTTI_ASSERT(!sending() || window.begin <= position());
    if (sending()) send(window);
}

bool Lane::end(std::uint32_t number) {
    TUTTI_ASSERT(!sending());
    ChunkHeader header{.number = number};
    if (checks_) header.own_sum = header.right_sum();
    const iovec part{&header, sizeof header};
    const ssize_t sent = wire_.send(fd_.get(), {&part, 1});
    if (sent < 0 && errno != EAGAIN && errno != EINTR) broken_ = true;
    if (sent > 0 && sent < static_cast<ssize_t>(sizeof header)) broken_ = true;  // never: a buffer has room for it
    ending_ = wire_.has_begun();
    return sent == sizeof header;
}

void Lane::close_output() noexcept {
    wire_.end(fd_.get());
    ::shutdown(fd_.get(), SHUT_WR);
}

bool Lane::confirmed() const noexcept {
    if (broken_ || unacknowledged() == 0) return true;
    tcp_info info{};
    socklen_t size = sizeof info;
    return ::getsockopt(fd_.get(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0 || info.tcpi_state == closed_state;
}

bool Lane::send(const Window& window) {
    TUTTI_ASSERT(position() <= out_end_);
    iovec parts[3];
    std::size_t count = 0;
    if (const auto start = out_start_.bytes(); out_sent_ < start.size())
        parts[count++] = {const_cast<std::byte*>(start.data()) + out_sent_, start.size() - out_sent_};
    count += window.cut(position(), out_end_, parts + count);
    if (count == 0) return false;
    const ssize_t sent = wire_.send(fd_.get(), {parts, count});
    if (sent <= 0) {
        if (sent < 0 && errno != EAGAIN && errno != EINTR) broken_ = true;
        return false;
    }
    out_sent_ += static_cast<std::size_t>(sent);
    TUTTI_ASSERT(out_begin_ < out_end_ ? position() <= out_end_ : true);
    if (position() == out_end_) out_begin_ = out_end_;
    return true;
}

// The result of the wire's receive(), without its errors.
std::size_t Lane::counted(ssize_t result) {
    if (result > 0) return static_cast<std::size_t>(result);
    if (result == 0) {
        const std::string cut = wire_.error();
        why_ = cut.empty() ? "it closed the connection" : cut;
    } else if (errno == EBADMSG) {
        damage(wire_.error());
    } else if (errno != EAGAIN && errno != EINTR) {
        why_ = std::strerror(errno);
        broke_off_ = true;
    }
    return 0;
}

// Of a short one with a checksum all has to be here.
bool Lane::shows_chunk() const noexcept {
    TUTTI_ASSERT(ahead_begin_ <= ahead_end_ && ahead_end_ <= ahead_.size());
    if (buffered() < sizeof(ChunkHeader)) return false;
    ChunkHeader header;
    std::memcpy(&header, ahead_.data() + ahead_begin_, sizeof header);
    return !checks_ || header.bytes > short_chunk_bytes || buffered() >= sizeof header + header.bytes;
}

void Lane::damage(std::string what) {
    TUTTI_ASSERT(!what.empty());
    why_ = std::move(what);
    damaged_ = true;
}

bool Lane::is_right(const ChunkHeader& header) {
    if (checks_ && header.own_sum != header.right_sum()) {
        damage(fmt::format("the header of a chunk has the CRC-32C {:08x}, sent was {:08x}", header.right_sum(),
                           header.own_sum));
        return false;
    }
    if (header.bytes <= chunk_bytes_max) return true;
    why_ = "it sent something that is not a chunk";
    ahead_begin_ = ahead_end_ = 0;
    broke_off_ = true;
    return false;
}

std::optional<std::uint32_t> Lane::incoming() {
    if (in_left_ > 0 || in_end_) return in_.number;
    if (!shows_chunk() && why_.empty()) {
        std::copy(ahead_.begin() + static_cast<std::ptrdiff_t>(ahead_begin_),
                  ahead_.begin() + static_cast<std::ptrdiff_t>(ahead_end_), ahead_.begin());
        ahead_end_ -= std::exchange(ahead_begin_, 0);
        ahead_end_ += counted(wire_.receive(fd_.get(), std::span(ahead_).subspan(ahead_end_)));
    }
    if (buffered() < sizeof in_) return std::nullopt;
    std::memcpy(&in_, ahead_.data() + ahead_begin_, sizeof in_);
    if (!is_right(in_) || !shows_chunk()) return std::nullopt;
    ahead_begin_ += sizeof in_;
    in_left_ = in_.bytes;
    in_end_ = in_.bytes == 0;
    in_lanes_ = in_.lanes;
    in_sum_ = 0;
    if (!checks_ || in_left_ > short_chunk_bytes) return in_.number;
    in_sum_ = crc32c(std::span(ahead_).subspan(ahead_begin_, in_left_));
    if (in_sum_ == in_.sum) return in_.number;
    tell_of_damage();
    return std::nullopt;
}

std::size_t Lane::take(std::span<std::byte> into) {
    TUTTI_ASSERT(!into.empty());
    TUTTI_ASSERT(in_left_ > 0 && in_left_ <= in_.bytes);
    const std::size_t want = std::min(into.size(), in_left_);
    std::size_t count = std::min(want, buffered());
    if (damaged_) return 0;
    if (count > 0) {
        std::memcpy(into.data(), ahead_.data() + ahead_begin_, count);
        ahead_begin_ += count;
    } else if (why_.empty()) {
        // With the last bytes of a chunk comes the header of the next one.
        iovec parts[2] = {{into.data(), want}, {ahead_.data(), ahead_.size()}};
        const std::size_t received =
            counted(wire_.receive(fd_.get(), std::span<const iovec>(parts, want == in_left_ ? 2 : 1)));
        count = std::min(received, want);
        ahead_begin_ = 0;
        ahead_end_ = received - count;
    }
    if (checks_ && in_.bytes > short_chunk_bytes) {  // while they are in the cache
        in_sum_ = crc32c(into.first(count), in_sum_);
        if (count == in_left_ && in_sum_ != in_.sum) {
            tell_of_damage();
            return 0;
        }
    }
    TUTTI_ASSERT(count <= want);
    TUTTI_ASSERT(ahead_begin_ <= ahead_end_ && ahead_end_ <= ahead_.size());
    in_left_ -= count;
    return count;
}

void Lane::tell_of_damage() {
    const std::uint32_t bytes = in_.bytes;
    damage(fmt::format("{} bytes (chunk {}) have the CRC-32C {:08x}, sent was {:08x}", bytes, in_.number, in_sum_,
                       in_.sum));
}

}  // namespace tutti::transport
