#include "zmq/stream.hpp"

#include <tutti/error.hpp>

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

namespace tutti::backends::zeromq {

using transport::StreamState;

Bell::Bell() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (fd_ < 0)
        throw DistBackendError("hf_zmq: no eventfd: " + std::generic_category().message(errno) +
                               "; how many files this process may have open says ulimit -n");
}

Bell::~Bell() {
    ::close(fd_);
}

void Bell::set(bool rings) noexcept {
    if (rings == std::exchange(rings_, rings)) return;
    eventfd_t number = 0;
    if (rings)
        ::eventfd_write(fd_, 1);
    else
        ::eventfd_read(fd_, &number);
}

// ---- The rank's thread

std::size_t ZmqStream::write(std::span<const std::byte> header, std::span<const std::byte> payload) {
    const std::lock_guard lock(desk_.mutex);
    if (closed_ || ends_ || !why_.empty()) return 0;
    const std::size_t wanted = header.size() + payload.size();
    const std::size_t count = std::min(wanted, outgoing_bytes - waiting_bytes_);
    wants_room_ = count < wanted;
    has_room_news_ = false;
    ring();
    if (count == 0) return 0;
    const std::size_t of_header = std::min(count, header.size());
    append(header.first(of_header));
    append(payload.first(count - of_header));
    desk_.call();
    return count;
}

// To the last chunk, as long as the thread has not taken it.
void ZmqStream::append(std::span<const std::byte> bytes) {
    waiting_bytes_ += bytes.size();
    while (!bytes.empty()) {
        const bool fits = !outgoing_.empty() && outgoing_.back().header.kind == Header::Kind::bytes &&
                          outgoing_.back().bytes.size() < chunk_bytes;
        if (!fits) queue(Header::Kind::bytes);
        std::vector<std::byte>& chunk = outgoing_.back().bytes;
        const std::size_t count = std::min(bytes.size(), chunk_bytes - chunk.size());
        chunk.insert(chunk.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count));
        bytes = bytes.subspan(count);
    }
}

void ZmqStream::queue(Header::Kind kind) {
    outgoing_.push_back({.header = {.kind = kind, .number = sent_++}, .bytes = {}});
}

std::size_t ZmqStream::read(std::span<std::byte> into, std::span<std::byte> ahead) {
    const std::lock_guard lock(desk_.mutex);
    std::size_t done = 0;
    for (std::span<std::byte> part : std::array{into, ahead}) {
        while (!part.empty() && !incoming_.empty()) {
            const zmq::message_t& chunk = incoming_.front();
            const std::size_t count = std::min(part.size(), chunk.size() - read_);
            std::memcpy(part.data(), chunk.data<std::byte>() + read_, count);
            part = part.subspan(count);
            read_ += count;
            done += count;
            if (read_ < chunk.size()) continue;
            incoming_.pop_front();
            read_ = 0;
        }
    }
    if (done == 0) return 0;
    if (std::exchange(desk_.unread, desk_.unread - done) >= unread_bytes && desk_.unread < unread_bytes) desk_.call();
    ring();
    return done;
}

StreamState ZmqStream::state() const noexcept {
    const std::lock_guard lock(desk_.mutex);
    if (closed_) return StreamState::closed;
    if (!incoming_.empty()) return StreamState::open;
    if (peer_has_ended_) return StreamState::ended;
    return why_.empty() ? StreamState::open : StreamState::closed;
}

bool ZmqStream::end() {
    const std::lock_guard lock(desk_.mutex);
    if (ends_ || closed_) return true;
    ends_ = true;
    queue(Header::Kind::end);
    desk_.call();
    return true;
}

void ZmqStream::close() noexcept {
    const std::lock_guard lock(desk_.mutex);
    closed_ = true;
    outgoing_.clear();
    waiting_bytes_ = 0;
    for (const zmq::message_t& chunk : incoming_) desk_.unread -= chunk.size();
    desk_.unread += std::exchange(read_, 0);
    incoming_.clear();
    desk_.call();
}

bool ZmqStream::delivered() const noexcept {
    const std::lock_guard lock(desk_.mutex);
    return closed_ || !why_.empty() || !ends_ || end_is_acknowledged_;
}

std::string ZmqStream::reason() const {
    const std::lock_guard lock(desk_.mutex);
    return why_;
}

void ZmqStream::pollables(bool /*output*/, std::vector<transport::Pollable>& into) const {
    into.push_back({bell_.fd(), false});
}

bool ZmqStream::is_used() const {
    const std::lock_guard lock(desk_.mutex);
    return sent_ > 0 || received_ > 0;
}

// ---- The connector's thread

ZmqStream::Chunk ZmqStream::take_outgoing() {
    Chunk chunk = std::move(outgoing_.front());
    outgoing_.pop_front();
    waiting_bytes_ -= chunk.bytes.size();
    has_room_news_ = has_room_news_ || wants_room_;
    ring();
    return chunk;
}

void ZmqStream::take_incoming(const Header& header, zmq::message_t bytes) {
    if (closed_ || !why_.empty()) return;
    if (header.number != received_++) return fail("ZeroMQ has lost a message, with a connection that broke");
    switch (header.kind) {
        case Header::Kind::bytes:
            if (bytes.size() == 0 || peer_has_ended_) break;
            desk_.unread += bytes.size();
            incoming_.push_back(std::move(bytes));
            return ring();
        case Header::Kind::end:
            peer_has_ended_ = true;
            queue(Header::Kind::acknowledged);
            desk_.has_work = true;
            return ring();
        case Header::Kind::acknowledged: end_is_acknowledged_ = true; return;
    }
    fail("it sent something that is not a part of its stream");
}

void ZmqStream::fail(const std::string& why) {
    if (!why_.empty()) return;
    why_ = why;
    outgoing_.clear();
    waiting_bytes_ = 0;
    ring();
}

}  // namespace tutti::backends::zeromq
