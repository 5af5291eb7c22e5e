#include "store/tcp_client.hpp"

#include "core/assert.hpp"
#include "core/fork_guard.hpp"
#include "core/log.hpp"
#include "core/patience.hpp"
#include "core/unix_socket.hpp"
#include "security/handshake.hpp"
#include "store/encryption.hpp"
#include "store/local_door.hpp"

#include <tutti/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

namespace tutti::store {
namespace {

using namespace std::chrono_literals;

/// An answer on one host comes within this time when nothing else runs; sleeping and waking costs as much again.
constexpr auto spin_time = 25us;
/// For the local door to answer: a busy server, and not one that is stopped.
constexpr auto door_time = 5s;
/// For that many posts.
constexpr int local_send_bytes = 1 << 20U;

constexpr const char* operation = "store request";
constexpr const char* closed = "the server is gone (connection closed)";
/// A request up to here is copied into one piece and sent with one call.
constexpr std::size_t small_request_bytes = std::size_t{16} << 10U;

/// Reading calls wait in the kernel, for one slice at most; writing ones never do (MSG_DONTWAIT).
void let_reads_wait(int fd) {
    TUTTI_ASSERT(fd >= 0);
    timeval slice{};
    slice.tv_usec = std::chrono::duration_cast<std::chrono::microseconds>(wait_slice).count();
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &slice, sizeof slice);
    ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK);
}

/// Detects a host that vanished without a word after about 10 s.
void keep_alive(int fd) {
    TUTTI_ASSERT(fd >= 0);
    const auto set = [fd](int level, int option, int value) { ::setsockopt(fd, level, option, &value, sizeof value); };
    set(SOL_SOCKET, SO_KEEPALIVE, 1);
    set(IPPROTO_TCP, TCP_KEEPIDLE, 4);
    set(IPPROTO_TCP, TCP_KEEPINTVL, 2);
    set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

}  // namespace

TcpClient::TcpClient(const net::Address& server, const security::Secret& secret, std::string name,
                     const Deadline& deadline, const AbortFlag* abort, net::Refusal refusal)
    : name_(std::move(name)),
      owner_(::getpid()),
      generation_(fork_guard::generation()),
      buffer_(std::size_t{64} << 10U),
      may_spin_(usable_cores() > 1) {
    UniqueFd fd = connect(server, secret, deadline, abort, refusal);
    keep_alive(fd.get());
    use(std::move(fd));
}

void TcpClient::use(UniqueFd fd) {
    TUTTI_ASSERT(fd);
    let_reads_wait(fd.get());
    fd_ = fork_guard::GuardedFd(std::move(fd));
}

void TcpClient::move_to(const std::string& door, const security::Secret& secret) {
    TUTTI_ASSERT(!door.empty() && pending_.empty() && !writing_);
    try {
        // It is there, or not on this host.
        UniqueFd fd = net::connect_unix(door, Deadline::after(Clock::duration::zero()), nullptr);
        if (net::peer_uid(fd.get()) != ::geteuid()) throw DistNetworkError("the local door is another user's");
        ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDBUF, &local_send_bytes, sizeof local_send_bytes);
        const security::Mac proof = door_proof(secret, door);
        net::send_all(fd.get(), proof, Deadline::after(wait_slice), nullptr, "connect");
        posts_.open_pipe(fd.get(), Deadline::after(door_time));
        use(std::move(fd));
        wire_ = {};
        local_ = true;
    } catch (const DistError& error) {
        TUTTI_DEBUG("{}: stays with TCP: {}", name_, error.what());
    }
}

UniqueFd TcpClient::connect(const net::Address& server, const security::Secret& secret, const Deadline& deadline,
                            const AbortFlag* abort, net::Refusal refusal) {
    const auto closing = [this] {
        return fmt::format("{}, which closes each connection before it has answered", name_);
    };
    std::optional<Patience<decltype(closing)>> patience;
    while (true) {
        UniqueFd fd = net::connect_tcp(server, deadline, abort, refusal);
        local_host_ = net::local_address(fd.get()).host;
        try {
            prove(fd.get(), secret, deadline, abort);
            return fd;
        } catch (const Timeout&) {
            throw DistNetworkError(
                fmt::format("{}: the process that listens there did not answer in time; is it a tutti store?", name_),
                {.operation = "connect"});
        } catch (const DistNetworkError& error) {
            if (error.code() == ErrorCode::security) {
                throw DistNetworkError(fmt::format("{}: {}", name_, error.what()), error.context(), error.code());
            }
            // It went away before it answered: perhaps an earlier server, or one that was too busy.
            if (deadline.expired() || refusal == net::Refusal::no_longer) throw;
        }
        if (!patience) patience.emplace(closing);
        std::this_thread::sleep_for(std::min<Clock::duration>(20ms, deadline.remaining()));
        check_wait(Deadline::never(), abort, "connect");
    }
}

void TcpClient::prove(int fd, const security::Secret& secret, const Deadline& deadline, const AbortFlag* abort) {
    TUTTI_ASSERT(fd >= 0);
    try {
        if (auto identity = tls_identity_for(fd))
            wire_ = security::secure(fd, secret, std::move(*identity), deadline, abort);
        else
            security::authenticate(fd, secret, security::Role::connecting, store_purpose, deadline, abort);
    } catch (const security::TlsWanted&) {
        throw InvalidArgument(
            fmt::format("{}: {}", name_, needs_tls(net::to_string(net::peer_address(fd)), local_host_)),
            {.operation = "connect"});
    }
}

void TcpClient::check_process() const {
    if (fork_guard::generation() == generation_) [[likely]]
        return;
    throw DistStoreError(
        fmt::format("{}: this connection was made by process {} and cannot be used by its forked child "
                    "{}; make a new store after fork",
                    name_, owner_, ::getpid()),
        {.hint = "make a new store after fork"});
}

void TcpClient::throw_broken() const {
    TUTTI_ASSERT(!broken_.empty());
    throw DistStoreError(fmt::format("{}: {}{}", name_, broken_, lost_),
                         {.hint = "look at what ended the server's process"});
}

std::uint64_t TcpClient::check_size(std::span<const std::string_view> fields) const {
    std::uint64_t body_bytes = 0;
    for (const auto field : fields) body_bytes += field_header_bytes + field.size();
    if (body_bytes > max_body_bytes) {
        throw InvalidArgument(fmt::format("{}: a request of {} bytes: expected at most {} in one call", name_,
                                          body_bytes, max_body_bytes));
    }
    TUTTI_ASSERT(body_bytes >= fields.size() * field_header_bytes);
    return body_bytes;
}

/// `write` continues this thread's unfinished write; however it ends, others may write then, or fail.
template <class Write>
void TcpClient::finish_writing(Write&& write) {
    try {
        write();
    } catch (const DistNetworkError&) {
        break_connection(closed);
        end_request();
        const std::lock_guard lock(mutex_);
        throw_broken();
    } catch (...) {
        // Part of the request may be on its way: nothing can follow it.
        break_connection("a request could not be sent in time, and the connection was given up");
        end_request();
        throw;
    }
    end_request();
}

std::string TcpClient::cause() {
    const std::lock_guard lock(mutex_);
    return broken_;
}

std::string TcpClient::call(Op op, std::span<const std::string_view> fields, const Deadline& deadline,
                            const AbortFlag* abort, std::uint32_t change) {
    check_process();
    const std::uint64_t body_bytes = check_size(fields);
    Pending mine;
    const std::uint64_t request = begin_request(mine, deadline, abort);
    try {
        finish_writing([&] { send_request({op, request, body_bytes, mine.posts + change}, fields, deadline, abort); });
        await_answer(mine, deadline, abort);
        TUTTI_ASSERT(mine.done && mine.request == request);
    } catch (...) {
        cancel(request);
        throw;
    }
    if (mine.op == Op::ok) return std::move(mine.body);
    const auto words = split_fields(mine.body);
    const std::string why =
        fmt::format("{}: {}", name_, words && !words->empty() ? words->front() : std::string_view("unknown error"));
    if (mine.op == Op::refused) throw InvalidArgument(why, {.operation = "connect"});
    throw DistStoreError(why);
}

bool TcpClient::try_post(Op op, std::span<const std::string_view> fields, std::chrono::milliseconds timeout,
                         const AbortFlag* abort) {
    check_process();
    const std::uint64_t body_bytes = check_size(fields);
    if (!posts_.may_go(Posts::coarse_now()) || body_bytes > small_request_bytes) return false;
    std::unique_lock lock(mutex_);
    if (!broken_.empty()) throw_broken();
    if (writing_) return false;
    if (posts_.has_pipe() && !posts_.pipe_takes(header_bytes + body_bytes)) return false;
    compose_header({op, ++last_request_, body_bytes});
    for (const auto field : fields) compose_field(field, true);
    if (posts_.has_pipe()) {
        // Bytes in the pipe when the server dies are lost, as on any connection; it may be dead already.
        throw_if_gone(lock);
        return posts_.write(output_);
    }
    if (!local_) throw_if_gone(lock);  // over TCP the first bytes would vanish; a Unix socket says so itself
    TUTTI_ASSERT(output_.size() == header_bytes + body_bytes);
    const iovec whole{output_.data(), output_.size()};
    const ssize_t sent = wire_.send(fd_.get(), {&whole, 1});
    const bool later = sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
    if (later && !wire_.has_begun()) return false;
    posts_.count();
    const auto done = static_cast<std::size_t>(std::max<ssize_t>(sent, 0));
    TUTTI_ASSERT(done <= output_.size());
    if (done == output_.size()) return true;
    writing_ = true;
    lock.unlock();
    finish_writing([&] {
        if (sent < 0 && !later) throw DistNetworkError(closed);
        send(std::string_view(output_).substr(done), Deadline::after(timeout), abort);
    });
    return true;
}

void TcpClient::throw_if_gone(std::unique_lock<std::mutex>& lock) {
    TUTTI_ASSERT(lock.owns_lock());
    char byte = 0;
    const ssize_t got = ::recv(fd_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))) return;
    lock.unlock();
    break_connection(closed);
    lock.lock();
    throw_broken();
}

std::uint64_t TcpClient::begin_request(Pending& mine, const Deadline& deadline, const AbortFlag* abort) {
    std::unique_lock lock(mutex_);
    while (writing_ && broken_.empty()) {
        check_wait(deadline, abort, operation);
        writer_left_.wait_for(lock, std::min<Clock::duration>(deadline.remaining(), wait_slice));
    }
    if (!broken_.empty()) throw_broken();
    writing_ = true;
    const std::uint64_t request = ++last_request_;
    mine.request = request;
    mine.posts = posts_.written();
    pending_.push_back(&mine);
    TUTTI_ASSERT(request > 0 && !mine.done);
    return request;
}

void TcpClient::end_request() noexcept {
    const std::lock_guard lock(mutex_);
    TUTTI_ASSERT(writing_);
    writing_ = false;
    writer_left_.notify_one();
}

void TcpClient::send(std::string_view bytes, const Deadline& deadline, const AbortFlag* abort) {
    wire_.send_all(fd_.get(), std::as_bytes(std::span(bytes)), deadline, abort, operation);
}

void TcpClient::compose_header(const FrameHeader& header) {
    const auto raw = encode(header);
    output_.assign(raw.data(), raw.size());
}

void TcpClient::compose_field(std::string_view field, bool with_bytes) {
    const auto size = encode_number(field.size());
    output_.append(size.data(), size.size());
    if (with_bytes) output_ += field;
}

void TcpClient::send_request(const FrameHeader& header, std::span<const std::string_view> fields,
                             const Deadline& deadline, const AbortFlag* abort) {
    compose_header(header);
    for (const auto field : fields) {
        const bool large = field.size() > small_request_bytes;  // sent from where it is
        compose_field(field, !large);
        if (!large && output_.size() <= 2 * small_request_bytes) continue;
        send(output_, deadline, abort);
        output_.clear();
        if (large) send(field, deadline, abort);
    }
    if (!output_.empty()) send(output_, deadline, abort);
}

void TcpClient::await_answer(Pending& mine, const Deadline& deadline, const AbortFlag* abort) {
    std::unique_lock lock(mutex_);
    while (!mine.done) {
        if (!broken_.empty()) throw_broken();
        if (reading_) {
            mine.woken.wait_for(lock, std::min<Clock::duration>(deadline.remaining(), wait_slice));
            if (!mine.done) check_wait(deadline, abort, operation);
            continue;
        }
        reading_ = true;
        lock.unlock();
        const auto stop_reading = [&] {
            lock.lock();
            reading_ = false;
            // Another waiting thread goes on.
            if (!pending_.empty()) pending_.front()->woken.notify_one();
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
    // `done` is set by this thread alone while it reads.
    if (may_spin_ && spin_.worth_it()) {
        const Instant spin_end = Clock::now() + spin_time;
        do {
            if (!look()) return;
        } while (!mine.done && Clock::now() < spin_end);
        spin_.note(mine.done);
    }
    while (!mine.done) {
        {
            const std::lock_guard lock(mutex_);
            if (!broken_.empty()) return;
        }
        if (deadline.remaining() < wait_slice) {
            net::wait_for(wire_.to_poll(fd_.get()), POLLIN, deadline, abort, operation);
            if (!look()) return;
            continue;
        }
        if (wire_.is_encrypted()) {
            pollfd item{wire_.to_poll(fd_.get()), POLLIN, 0};
            const bool ready = ::poll(&item, 1, Deadline::never().poll_ms(wait_slice)) > 0;
            if (!look()) return;
            if (!ready) check_wait(deadline, abort, operation);
            continue;
        }
        // At most a slice, see let_reads_wait.
        const ssize_t got = ::recv(fd_.get(), buffer_.data(), buffer_.size(), 0);
        if (!took(got)) return;
        if (got < 0) check_wait(deadline, abort, operation);
    }
}

bool TcpClient::look() {
    return took(wire_.receive(fd_.get(), std::as_writable_bytes(std::span(buffer_))));
}

bool TcpClient::took(ssize_t received) {
    TUTTI_ASSERT(received <= static_cast<ssize_t>(buffer_.size()));
    if (received > 0) {
        take({buffer_.data(), static_cast<std::size_t>(received)});
    } else if (received == 0) {
        const std::string cut = wire_.error();
        break_connection(cut.empty() ? closed : fmt::format("the server is gone ({})", cut));
        return false;
    } else if (errno == EBADMSG) {
        break_connection(wire_.error());
        return false;
    } else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
        break_connection(fmt::format("the server is gone ({})", std::system_category().message(errno)));
        return false;
    }
    return true;
}

void TcpClient::take(std::string_view bytes) {
    posts_.heard(Posts::coarse_now());
    const bool good = frames_.feed(bytes, [this](const FrameHeader& header, FrameBody body) {
        const std::lock_guard lock(mutex_);
        posts_.note_answered(header.request);
        // This drops an answer that no thread waits for any more.
        const auto found = std::ranges::find(pending_, header.request, &Pending::request);
        if (found == pending_.end()) return true;
        Pending& pending = **found;
        TUTTI_ASSERT(!pending.done && pending.request <= last_request_);
        *found = pending_.back();
        pending_.pop_back();
        pending.op = header.op;
        pending.body = body.take();
        pending.done = true;
        pending.woken.notify_one();
        return true;
    });
    if (!good) break_connection("the server sent what is not the protocol of a store");
}

void TcpClient::cancel(std::uint64_t request) {
    std::uint32_t posts = 0;
    {
        const std::lock_guard lock(mutex_);
        std::erase_if(pending_, [&](const Pending* pending) { return pending->request == request; });
        posts_.note_given_up(request);
        // Best effort and without waiting: an unsent cancel costs the server a few bytes until we leave.
        if (!broken_.empty() || std::exchange(writing_, true)) return;
        posts = posts_.written();
    }
    const auto raw = encode({Op::cancel, request, 0, posts});
    if (!wire_.post(fd_.get(), std::as_bytes(std::span(raw))) && errno == EMSGSIZE)
        break_connection("a request was sent in part only");
    end_request();
}

void TcpClient::break_connection(const std::string& cause) {
    TUTTI_ASSERT(!cause.empty());
    const std::lock_guard lock(mutex_);
    if (!broken_.empty()) return;
    broken_ = cause;
    ::shutdown(fd_.get(), SHUT_RDWR);  // wakes the reader
    for (Pending* pending : pending_) pending->woken.notify_one();
    writer_left_.notify_all();
}

}  // namespace tutti::store
