#include "store/tcp_client.hpp"

#include "security/handshake.hpp"
#include "store/fork_guard.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <thread>
#include <utility>

namespace tutti::store {
namespace {

using namespace std::chrono_literals;

/// An answer on one host comes within this time when nothing else runs; sleeping and waking costs as much again.
constexpr auto spin_time = 20us;
/// A request up to here is copied into one piece and sent with one call.
constexpr std::size_t small_request_bytes = std::size_t{16} << 10U;

/// A host that vanished without a word is noticed after about 10 s.
void keep_alive(int fd) {
    const auto set = [fd](int level, int option, int value) { ::setsockopt(fd, level, option, &value, sizeof value); };
    set(SOL_SOCKET, SO_KEEPALIVE, 1);
    set(IPPROTO_TCP, TCP_KEEPIDLE, 4);
    set(IPPROTO_TCP, TCP_KEEPINTVL, 2);
    set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

}  // namespace

TcpClient::TcpClient(const net::Address& server, const security::Secret& secret, std::string name,
                     const Deadline& deadline, const AbortFlag* abort)
    : name_(std::move(name)), owner_(::getpid()), buffer_(std::size_t{64} << 10U) {
    connect(server, secret, deadline, abort);
    keep_alive(fd_.get());
    close_in_children(fd_.get());
}

TcpClient::~TcpClient() {
    if (::getpid() != owner_) {
        (void)fd_.release();  // closed when the child was forked; the number may be somebody else's now
    } else if (fd_) {
        forget(fd_.get());
    }
}

void TcpClient::connect(const net::Address& server, const security::Secret& secret, const Deadline& deadline,
                        const AbortFlag* abort) {
    while (true) {
        fd_ = net::connect_tcp(server, deadline, abort);
        local_host_ = net::local_address(fd_.get()).host;
        try {
            return security::authenticate(fd_.get(), secret, security::Role::connecting, store_purpose, deadline,
                                          abort);
        } catch (const Timeout&) {
            throw DistNetworkError(
                fmt::format("{}: the process that listens there did not answer in time; is it a tutti store?", name_),
                {.operation = "connect"});
        } catch (const DistNetworkError& error) {
            if (error.code() == ErrorCode::security) {
                throw DistNetworkError(fmt::format("{}: {}", name_, error.what()), error.context(), error.code());
            }
            // It went away before it answered: perhaps an earlier server, or one that was too busy.
            if (deadline.expired()) throw;
        }
        std::this_thread::sleep_for(std::min<Clock::duration>(20ms, deadline.remaining()));
    }
}

void TcpClient::check_process() const {
    if (::getpid() == owner_) return;
    throw DistStoreError(
        fmt::format("{}: this connection was made by process {} and cannot be used by its forked child "
                    "{}; make a new store after fork",
                    name_, owner_, ::getpid()),
        {.hint = "make a new store after fork"});
}

void TcpClient::throw_broken() const {
    throw DistStoreError(fmt::format("{}: {}", name_, broken_), {.hint = "look at what ended the server's process"});
}

std::string TcpClient::call(Op op, std::span<const std::string_view> fields, const Deadline& deadline,
                            const AbortFlag* abort) {
    check_process();
    std::uint64_t body_bytes = 0;
    for (const auto field : fields) body_bytes += field_header_bytes + field.size();
    if (body_bytes > max_body_bytes) {
        throw InvalidArgument(fmt::format("{}: a request of {} bytes: expected at most {} in one call", name_,
                                          body_bytes, max_body_bytes));
    }
    Pending mine;
    std::uint64_t request = 0;
    {
        const std::lock_guard lock(mutex_);
        if (!broken_.empty()) throw_broken();
        request = ++last_request_;
        pending_.emplace(request, &mine);
    }
    try {
        send_request({op, request, body_bytes}, fields, deadline, abort);
        await_answer(mine, deadline, abort);
    } catch (...) {
        cancel(request);
        throw;
    }
    if (mine.op == Op::ok) return std::move(mine.body);
    const auto words = split_fields(mine.body);
    throw DistStoreError(fmt::format("{}: {}", name_, words && !words->empty() ? words->front() : "unknown error"));
}

void TcpClient::send_request(const FrameHeader& header, std::span<const std::string_view> fields,
                             const Deadline& deadline, const AbortFlag* abort) {
    static constexpr const char* operation = "store request";
    {
        std::unique_lock lock(mutex_);
        while (writing_) {
            check_wait(deadline, abort, operation);
            writer_left_.wait_for(lock, std::min<Clock::duration>(deadline.remaining(), wait_slice));
        }
        if (!broken_.empty()) throw_broken();
        writing_ = true;
    }
    const auto send = [&](std::string_view bytes) {
        net::send_all(fd_.get(), std::as_bytes(std::span(bytes)), deadline, abort, operation);
    };
    std::string failure;
    try {
        const auto raw = encode(header);
        std::string small(raw.begin(), raw.end());
        for (const auto field : fields) {
            const auto size = encode_number(field.size());
            small.append(size.data(), size.size());
            if (field.size() <= small_request_bytes) {
                small += field;
            } else {  // large values are sent from where they are
                send(std::exchange(small, {}));
                send(field);
            }
            if (small.size() > 2 * small_request_bytes) send(std::exchange(small, {}));
        }
        if (!small.empty()) send(small);
    } catch (const DistNetworkError&) {
        failure = "the server is gone (connection closed)";
    } catch (...) {
        // Part of the request may be on its way: nothing can follow it.
        break_connection("a request could not be sent in time, and the connection was given up");
        const std::lock_guard lock(mutex_);
        writing_ = false;
        throw;
    }
    if (!failure.empty()) break_connection(failure);
    const std::lock_guard lock(mutex_);
    writing_ = false;
    writer_left_.notify_one();
    if (!failure.empty()) throw_broken();
}

void TcpClient::await_answer(Pending& mine, const Deadline& deadline, const AbortFlag* abort) {
    std::unique_lock lock(mutex_);
    while (!mine.done) {
        if (!broken_.empty()) throw_broken();
        if (reading_) {
            mine.woken.wait_for(lock, std::min<Clock::duration>(deadline.remaining(), wait_slice));
            if (!mine.done) check_wait(deadline, abort, "store request");
            continue;
        }
        reading_ = true;
        lock.unlock();
        const auto stop_reading = [&] {
            lock.lock();
            reading_ = false;
            // Somebody else who waits goes on.
            for (const auto& [request, other] : pending_) {
                if (other != &mine && !other->done) {
                    other->woken.notify_one();
                    break;
                }
            }
        };
        try {
            read_until(mine, deadline, abort);
        } catch (...) {
            stop_reading();
            if (mine.done) return;
            throw;
        }
        stop_reading();
    }
}

void TcpClient::read_until(const Pending& mine, const Deadline& deadline, const AbortFlag* abort) {
    const Instant spin_end = Clock::now() + spin_time;
    while (!mine.done) {  // set by this thread alone while it reads
        const ssize_t got = ::recv(fd_.get(), buffer_.data(), buffer_.size(), MSG_DONTWAIT);
        if (got > 0) {
            take({buffer_.data(), static_cast<std::size_t>(got)});
        } else if (got == 0) {
            return break_connection("the server is gone (connection closed)");
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (Clock::now() < spin_end) continue;
            net::wait_for(fd_.get(), POLLIN, deadline, abort, "store request");
        } else if (errno != EINTR) {
            return break_connection(fmt::format("the server is gone ({})", std::system_category().message(errno)));
        }
        if (const std::lock_guard lock(mutex_); !broken_.empty()) return;
    }
}

void TcpClient::take(std::string_view bytes) {
    const bool good = frames_.feed(bytes, [this](const FrameHeader& header, std::string body) {
        const std::lock_guard lock(mutex_);
        // An answer that nobody waits for any more is dropped.
        if (const auto found = pending_.find(header.request); found != pending_.end()) {
            Pending& pending = *found->second;
            pending.op = header.op;
            pending.body = std::move(body);
            pending.done = true;
            pending_.erase(found);
            pending.woken.notify_one();
        }
        return true;
    });
    if (!good) break_connection("the server sent what is not the protocol of a store");
}

void TcpClient::cancel(std::uint64_t request) {
    {
        const std::lock_guard lock(mutex_);
        pending_.erase(request);
        // Best effort and without waiting: what is not sent costs the server a few bytes until we leave.
        if (!broken_.empty() || std::exchange(writing_, true)) return;
    }
    const auto raw = encode({Op::cancel, request, 0});
    const ssize_t sent = ::send(fd_.get(), raw.data(), raw.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0 && static_cast<std::size_t>(sent) < raw.size()) break_connection("a request was sent in part only");
    const std::lock_guard lock(mutex_);
    writing_ = false;
    writer_left_.notify_one();
}

void TcpClient::break_connection(const std::string& cause) {
    const std::lock_guard lock(mutex_);
    if (!broken_.empty()) return;
    broken_ = cause;
    ::shutdown(fd_.get(), SHUT_RDWR);  // whoever reads wakes up
    for (const auto& [request, pending] : pending_) pending->woken.notify_one();
    writer_left_.notify_all();
}

}  // namespace tutti::store
