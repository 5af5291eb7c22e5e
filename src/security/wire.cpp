#include "security/wire.hpp"

#include "core/assert.hpp"
#include "core/socket.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

namespace tutti::security {
namespace {

/// The bytes to make records of at once; they stay in the cache until the kernel has them.
constexpr std::size_t batch_bytes = 8 * Tls::record_bytes;
/// Read at once: one record at first, more where many come.
constexpr std::size_t input_bytes_min = Tls::record_bytes + 1024;
constexpr std::size_t input_bytes_max = std::size_t{256} << 10;
/// The most bytes to hold for a peer that takes nothing.
constexpr std::size_t posted_bytes_max = std::size_t{1} << 20;

std::span<const std::byte> bytes_of(const iovec& part) {
    return {static_cast<const std::byte*>(part.iov_base), part.iov_len};
}

/// Parts of a message, and how far it has gone.
class Parts {
 public:
    explicit Parts(std::span<const iovec> parts) : parts_(parts) {}

    /// The next bytes, at most a record's: short parts in one piece.
    std::span<const std::byte> next(std::span<std::byte> scratch) {
        skip_empty();
        TUTTI_ASSERT(!scratch.empty());
        if (parts_.empty()) return {};
        const auto here = bytes_of(parts_.front()).subspan(done_);
        if (here.size() >= scratch.size() || parts_.size() == 1)
            return here.first(std::min(here.size(), scratch.size()));
        std::size_t size = 0;
        for (std::size_t i = 0, from = done_; i < parts_.size() && size < scratch.size(); ++i, from = 0) {
            const auto part = bytes_of(parts_[i]).subspan(from);
            const std::size_t count = std::min(part.size(), scratch.size() - size);
            std::copy_n(part.begin(), count, scratch.begin() + static_cast<std::ptrdiff_t>(size));
            size += count;
        }
        TUTTI_ASSERT(size > 0 && size <= scratch.size());
        return scratch.first(size);
    }
    void skip(std::size_t count) {
        while (count > 0 && !parts_.empty()) {
            const std::size_t here = std::min(count, parts_.front().iov_len - done_);
            done_ += here;
            count -= here;
            skip_empty();
        }
    }

 private:
    void skip_empty() {
        TUTTI_ASSERT(parts_.empty() || done_ <= parts_.front().iov_len);
        while (!parts_.empty() && done_ == parts_.front().iov_len) {
            parts_ = parts_.subspan(1);
            done_ = 0;
        }
    }
    std::span<const iovec> parts_;
    std::size_t done_ = 0;  // of the first
};

/// Of this process, and any descriptor that is readable for ever does.
int always_readable() {
    static const int fd = ::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
    return fd;
}

}  // namespace

struct Wire::Secured {
    std::unique_ptr<Tls> tls;
    mutable std::mutex mutex;
    std::size_t begun = 0;  // bytes in tls->output() that send() has not counted
    std::size_t input_bytes = input_bytes_min;
    bool at_end = false;
    bool spoils_next = false;

    // Sends as many waiting bytes as the kernel takes; false where that is not all, errno as send(2)'s.
    bool flush(int fd) {
        TUTTI_ASSERT(tls != nullptr && fd >= 0);
        ByteQueue& output = tls->output();
        if (spoils_next && !output.empty()) {
            const_cast<std::byte&>(output.bytes().back()) ^= std::byte{1};
            spoils_next = false;
        }
        while (!output.empty()) {
            const auto bytes = output.bytes();
            const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
            if (sent < 0 && errno == EINTR) continue;
            if (sent < 0) return false;
            output.remove(static_cast<std::size_t>(sent));
        }
        return true;
    }

    // Reads from the socket once: 1: there is more to read by TLS; 0: there is nothing now; -1: an error, or the end.
    int fetch(int fd, bool& more) {
        const auto room = tls->input().room(input_bytes);
        TUTTI_ASSERT(room.size() >= input_bytes && !at_end);
        const auto into = room.first(std::min(room.size(), input_bytes_max));
        const ssize_t got = ::recv(fd, into.data(), into.size(), MSG_DONTWAIT);
        if (got < 0) return errno == EAGAIN || errno == EINTR ? 0 : -1;
        if (got == 0) {
            at_end = true;
            return -1;
        }
        tls->input().added(static_cast<std::size_t>(got));
        TUTTI_ASSERT(input_bytes >= input_bytes_min && input_bytes <= input_bytes_max);
        more = static_cast<std::size_t>(got) == into.size();
        if (more) input_bytes = std::min(2 * input_bytes, input_bytes_max);
        return 1;
    }
};

Wire::Wire(std::unique_ptr<Tls> tls) {
    if (tls == nullptr) return;
    secured_ = std::make_unique<Secured>();
    secured_->tls = std::move(tls);
}

Wire::Wire() = default;
Wire::Wire(Wire&&) noexcept = default;
Wire& Wire::operator=(Wire&&) noexcept = default;
Wire::~Wire() = default;

ssize_t Wire::receive(int fd, std::span<std::byte> into) {
    TUTTI_ASSERT(fd >= 0);
    if (!secured_) return ::recv(fd, into.data(), into.size(), MSG_DONTWAIT);
    const iovec part{into.data(), into.size()};
    return receive(fd, {&part, 1});
}

ssize_t Wire::receive(int fd, std::span<const iovec> into) {
    TUTTI_ASSERT(fd >= 0);
    if (!secured_) {
        msghdr message{};
        message.msg_iov = const_cast<iovec*>(into.data());
        message.msg_iovlen = into.size();
        return ::recvmsg(fd, &message, MSG_DONTWAIT);
    }
    const std::lock_guard lock(secured_->mutex);
    Tls& tls = *secured_->tls;
    std::size_t total = 0;
    bool more = true;  // the socket may have some
    int error = EAGAIN;
    for (const iovec& part : into) {
        std::span<std::byte> room(static_cast<std::byte*>(part.iov_base), part.iov_len);
        while (!room.empty()) {
            const std::size_t count = tls.holds_record() ? tls.read(room) : 0;
            total += count;
            room = room.subspan(count);
            if (count > 0 || room.empty()) continue;
            if (tls.state() != Tls::State::open || !more || secured_->at_end) break;
            more = false;
            const int fetched = secured_->fetch(fd, more);
            if (fetched == 0) break;
            if (fetched < 0 && !secured_->at_end) error = errno;
        }
        if (!room.empty()) break;
    }
    if (total > 0) return static_cast<ssize_t>(total);
    if (secured_->at_end && tls.state() == Tls::State::open) tls.cut();
    if (secured_->at_end || tls.state() == Tls::State::ended) return 0;
    errno = tls.state() == Tls::State::failed ? EBADMSG : error;
    return -1;
}

ssize_t Wire::send(int fd, std::span<const iovec> parts) {
    TUTTI_ASSERT(fd >= 0);
    if (!secured_) {
        msghdr message{};
        message.msg_iov = const_cast<iovec*>(parts.data());
        message.msg_iovlen = parts.size();
        return ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    std::array<std::byte, Tls::record_bytes> scratch;  // not thread_local: programs may open the library late
    const std::lock_guard lock(secured_->mutex);
    std::size_t total = 0, shown = 0;
    for (const iovec& part : parts) shown += part.iov_len;
    Parts rest(parts);
    for (;;) {
        if (!secured_->flush(fd)) break;
        // It may have begun with more, when the caller passed more.
        const std::size_t counted = std::min(secured_->begun, shown - total);
        TUTTI_ASSERT(counted <= secured_->begun && total + counted <= shown);
        secured_->begun -= counted;
        total += counted;
        rest.skip(counted);
        if (secured_->begun > 0) return static_cast<ssize_t>(total);
        while (secured_->begun < batch_bytes) {
            Parts ahead = rest;
            ahead.skip(secured_->begun);
            const auto bytes = ahead.next(scratch);
            if (bytes.empty()) break;
            if (!secured_->tls->write(bytes)) {
                errno = EBADMSG;
                return total > 0 ? static_cast<ssize_t>(total) : -1;
            }
            secured_->begun += bytes.size();
        }
        if (secured_->begun == 0) return static_cast<ssize_t>(total);
    }
    return total > 0 ? static_cast<ssize_t>(total) : -1;
}

bool Wire::has_begun() const noexcept {
    if (!secured_) return false;
    const std::lock_guard lock(secured_->mutex);
    return secured_->begun > 0;
}

bool Wire::post(int fd, std::span<const std::byte> bytes) {
    if (!secured_) {
        const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent >= 0) errno = EMSGSIZE;
        return sent == static_cast<ssize_t>(bytes.size());
    }
    const std::lock_guard lock(secured_->mutex);
    TUTTI_ASSERT(secured_->begun == 0);
    if (!secured_->flush(fd) && (errno != EAGAIN || secured_->tls->output().bytes().size() > posted_bytes_max))
        return false;
    if (!secured_->tls->write(bytes)) {
        errno = EBADMSG;
        return false;
    }
    return secured_->flush(fd) || errno == EAGAIN;
}

void Wire::send_all(int fd, std::span<const std::byte> bytes, const Deadline& deadline, const AbortFlag* abort,
                    const char* operation) {
    if (!secured_) return net::send_all(fd, bytes, deadline, abort, operation);
    while (!bytes.empty()) {
        const iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
        const ssize_t sent = send(fd, {&part, 1});
        TUTTI_ASSERT(sent <= static_cast<ssize_t>(bytes.size()));
        if (sent >= 0)
            bytes = bytes.subspan(static_cast<std::size_t>(sent));
        else if (errno == EAGAIN)
            net::wait_for(fd, POLLOUT, deadline, abort, operation);
        else if (errno == EPIPE || errno == ECONNRESET)
            throw DistNetworkError(fmt::format("{}: connection closed by peer", operation), {.operation = operation});
        else
            throw DistNetworkError(fmt::format("{}: cannot send: {}", operation,
                                               errno == EBADMSG ? error() : std::system_category().message(errno)),
                                   {.operation = operation});
    }
}

void Wire::receive_all(int fd, std::span<std::byte> into, const Deadline& deadline, const AbortFlag* abort,
                       const char* operation) {
    if (!secured_) return net::recv_all(fd, into, deadline, abort, operation);
    while (!into.empty()) {
        const ssize_t got = receive(fd, into);
        TUTTI_ASSERT(got <= static_cast<ssize_t>(into.size()));
        if (got > 0)
            into = into.subspan(static_cast<std::size_t>(got));
        else if (got < 0 && errno == EAGAIN)
            net::wait_for(fd, POLLIN, deadline, abort, operation);
        else if (got < 0 && errno == EBADMSG)
            throw DistNetworkError(fmt::format("{}: {}", operation, error()), {.operation = operation},
                                   ErrorCode::security);
        else
            throw DistNetworkError(fmt::format("{}: connection closed by peer", operation), {.operation = operation});
    }
}

void Wire::end(int fd) {
    if (!secured_) return;
    const std::lock_guard lock(secured_->mutex);
    if (secured_->begun == 0) secured_->tls->end();
    secured_->flush(fd);
}

int Wire::to_poll(int fd) const noexcept {
    TUTTI_ASSERT(fd >= 0);
    if (!secured_) return fd;
    const std::lock_guard lock(secured_->mutex);
    return secured_->tls->holds_record() ? always_readable() : fd;
}

std::string Wire::error() const {
    if (!secured_) return {};
    const std::lock_guard lock(secured_->mutex);
    return secured_->tls->error();
}

bool Wire::spoil() noexcept {
    if (!secured_) return false;
    const std::lock_guard lock(secured_->mutex);
    secured_->spoils_next = true;
    return true;
}

Wire secure(int fd, const Secret& secret, std::string identity, const Deadline& deadline, const AbortFlag* abort) {
    static constexpr const char* operation = "handshake";
    TUTTI_ASSERT(fd >= 0 && !identity.empty());
    auto tls = Tls::connecting(secret, std::move(identity));
    for (;;) {
        const auto output = tls->output().bytes();
        net::send_all(fd, output, deadline, abort, operation);
        tls->output().remove(output.size());
        if (tls->state() != Tls::State::shaking_hands) break;
        // Bytes behind the handshake may come with it.
        const auto room = tls->input().room(input_bytes_min);
        const ssize_t got = ::recv(fd, room.data(), room.size(), MSG_DONTWAIT);
        if (got > 0) {
            tls->input().added(static_cast<std::size_t>(got));
            tls->go_on();
        } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
            throw DistNetworkError(fmt::format("{}: connection closed by peer", operation), {.operation = operation});
        } else {
            net::wait_for(fd, POLLIN, deadline, abort, operation);
        }
    }
    TUTTI_ASSERT(tls->output().empty());
    if (tls->state() == Tls::State::failed) {
        throw DistNetworkError(
            fmt::format("{} ({}): {}; check TUTTI_JOB_SECRET", operation, tls->identity(), tls->error()),
            {.operation = operation, .hint = "the peer does not know this job's secret: check TUTTI_JOB_SECRET"},
            ErrorCode::security);
    }
    return Wire(std::move(tls));
}

}  // namespace tutti::security
