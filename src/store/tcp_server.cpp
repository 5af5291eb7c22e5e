#include "store/tcp_server.hpp"

#include "core/assert.hpp"
#include "core/fork_guard.hpp"
#include "core/log.hpp"
#include "core/rate_limit.hpp"
#include "core/thread.hpp"
#include "core/unix_socket.hpp"
#include "security/local_secret.hpp"
#include "store/acceptor.hpp"
#include "store/busy_poll.hpp"
#include "store/encryption.hpp"
#include "store/follower.hpp"
#include "store/local_door.hpp"
#include "store/pending_connections.hpp"
#include "store/server_connection.hpp"
#include "store/server_data.hpp"
#include "store/standby.hpp"

#include <tutti/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tutti::store {
namespace {

template <class Handle>
uv_handle_t* as_handle(Handle* handle) {
    return reinterpret_cast<uv_handle_t*>(handle);
}
template <class Handle>
uv_stream_t* as_stream(Handle* handle) {
    return reinterpret_cast<uv_stream_t*>(handle);
}

void expect_good(int result, const char* what) {
    if (result != 0) throw DistNetworkError(fmt::format("TCPStore server: {}: {}", what, uv_strerror(result)));
}

}  // namespace

class TcpServer::Loop {
 public:
    Loop(UniqueFd listener, const security::Secret& secret, std::optional<security::LocalSecretServer> local_secret,
         const std::string& address, ServerKind kind, std::unique_ptr<Follower> follower)
        : secret_(secret),
          local_secret_(std::move(local_secret)),
          strangers_(PendingConnections::most_of_process(), security::handshake_timeout()),
          data_([this](ConnectionId to, std::uint64_t request, Op op, std::span<const Field> fields) {
              if (standby_) return standby_->answer(to, request, op, fields);
              answer(to, request, op, fields);
          }),
          follower_(std::move(follower)) {
        data_.tell_workers([this](ConnectionId worker) { return door_for(worker); }, address);
        if (kind != ServerKind::plain)
            have_standby();
        else if (local_doors_wanted())
            open_door();
        expect_good(uv_loop_init(&loop_), "cannot make an event loop");
        try {
            open_handles(std::move(listener));
            start_thread();
        } catch (...) {
            if (follower_) follower_->stop();
            close_everything();
            uv_run(&loop_, UV_RUN_DEFAULT);
            uv_loop_close(&loop_);
            throw;
        }
    }

    ~Loop() {
        if (follower_) follower_->stop();
        TUTTI_ASSERT(thread_.joinable() && thread_.get_id() != std::this_thread::get_id());
        uv_async_send(&stop_);
        thread_.join();
        uv_loop_close(&loop_);
    }

    /// Any thread.
    Succession::Role role() const { return standby_ ? standby_->role() : Succession::Role::alone; }
    void expect_end() {
        if (standby_) standby_->expect_end();
    }

 private:
    using Connection = ServerConnection;
    using Connections = std::list<Connection>;
    using Ways = security::Entrance::Ways;

    std::string_view door_for(ConnectionId worker) const {
        const auto found = by_id_.find(worker);
        const bool near = door_ && found != by_id_.end() && same_host(found->second->fd);
        return near ? std::string_view(door_->name()) : std::string_view();
    }

    /// A connection is its client's name, also at the other server.
    void have_standby() {
        security::random_bytes(std::as_writable_bytes(std::span(&last_id_, 1)));
        last_id_ = last_id_ >> 1U | 1U;
        const auto host_of = [this](ConnectionId of) { return net::peer_address(by_id_.at(of)->fd).host; };
        const auto close_one = [this](ConnectionId of) {
            if (const auto found = by_id_.find(of); found != by_id_.end()) close(*found->second);
        };
        const auto send_last = [this](ConnectionId to, Op op) {
            answer(to, 0, op, {});
            const auto found = by_id_.find(to);
            if (found == by_id_.end() || found->second->closing) return;
            Connection& c = *found->second;
            if (c.flush() && c.has_sent_all()) return;
            net::end_by_reset(c.fd);
        };
        standby_.emplace(data_,
                         Standby::Loop{[this](ConnectionId to, std::uint64_t request, Op op,
                                              std::span<const Field> fields) { answer(to, request, op, fields); },
                                       send_last, close_one, host_of},
                         follower_.get());
    }

    void look_at_standby() {
        standby_->look();
        send_answers();
    }

    /// Without one all clients use TCP.
    void open_door() {
        try {
            door_.emplace(secret_);
        } catch (const DistError& error) {
            TUTTI_DEBUG("TCPStore server: {}", error.what());
        }
    }

    void open_handles(UniqueFd listener) {
        const auto init = [this](auto& handle, int result, const char* what) {
            expect_good(result, what);
            handle.data = this;
        };
        init(stop_, uv_async_init(&loop_, &stop_, [](uv_async_t* h) { self(h).close_everything(); }), "async");
        strangers_.open(loop_, [this](Connection& silent) { close(silent); });
        listener_.open(loop_, std::move(listener), [this](UniqueFd fd) { accept(std::move(fd), false); });
        lookout_.open(loop_);
        if (door_) {
            door_listener_.open(loop_, UniqueFd(door_->release()),
                                [this](UniqueFd fd) { accept(std::move(fd), true); });
        }
        if (standby_) {
            const auto pause = static_cast<std::uint64_t>(Standby::times().pulse.count()) / 2;
            init(pulse_, uv_timer_init(&loop_, &pulse_), "timer");
            init(news_, uv_async_init(&loop_, &news_, [](uv_async_t* h) { self(h).look_at_standby(); }), "async");
            expect_good(uv_timer_start(
                            &pulse_, [](uv_timer_t* h) { self(h).look_at_standby(); }, pause, pause),
                        "timer");
            if (follower_) follower_->start([this] { uv_async_send(&news_); });
        }
        if (local_secret_) {
            init(secret_poll_, uv_poll_init(&loop_, &secret_poll_, local_secret_->fd()), "poll");
            fork_guard::close_in_children(local_secret_->fd());
            expect_good(
                uv_poll_start(&secret_poll_, UV_READABLE, [](uv_poll_t* h, int, int) { self(h).serve_secret(); }),
                "poll");
        }
    }

    void start_thread() {
        // Clients that would wait for an answer in vain see the connection's end.
        const auto escaped = [this](const std::exception_ptr&) noexcept {
            for (const Connection& c : connections_) ::shutdown(c.fd, SHUT_RDWR);
        };
        thread_ = thread::start({"tutti-store", "the server of a TCPStore", escaped},
                                [this] { uv_run(&loop_, UV_RUN_DEFAULT); });
    }

    template <class Handle>
    static Loop& self(Handle* handle) {
        TUTTI_ASSERT(handle->data != nullptr);
        return *static_cast<Loop*>(handle->data);
    }

    void serve_secret() {
        TUTTI_ASSERT(local_secret_.has_value());
        try {
            local_secret_->serve();
        } catch (const DistError& error) {
            TUTTI_WARN("{}", error.what());
        }
    }

    void accept(UniqueFd fd, bool local) {
        TUTTI_ASSERT(fd && !stopping_);
        Connection& c = connections_.emplace_back(
            this, [](Connection& broken) { self_of(broken).close(broken); }, ++last_id_);
        c.where = std::prev(connections_.end());
        if (local) {
            uv_pipe_init(&loop_, &c.socket.pipe, 0);
        } else {
            uv_tcp_init(&loop_, &c.socket.tcp);
        }
        c.socket.handle.data = &c;
        TUTTI_ASSERT(!by_id_.contains(c.id));
        by_id_[c.id] = &c;
        const int opened = local ? uv_pipe_open(&c.socket.pipe, fd.get()) : uv_tcp_open(&c.socket.tcp, fd.get());
        if (opened != 0) return close(c);
        c.fd = fd.release();  // the handle's now
        fork_guard::close_in_children(c.fd);
        if (!local) {
            c.entrance.emplace(secret_, store_purpose, is_for_store,
                               takes_tls_alone(c.fd) ? Ways::tls_alone : Ways::both);
            uv_tcp_nodelay(&c.socket.tcp, 1);
            uv_tcp_keepalive(&c.socket.tcp, 1, 15);
        }
        uv_read_start(&c.socket.stream, offer_buffer, on_bytes);
        strangers_.add(c);
    }

    static Loop& self_of(const Connection& c) { return *static_cast<Loop*>(c.owner); }

    static void offer_buffer(uv_handle_t* handle, std::size_t, uv_buf_t* buffer) {
        auto& shared = self_of(*static_cast<Connection*>(handle->data)).buffer_;
        *buffer = uv_buf_init(shared.data(), static_cast<unsigned>(shared.size()));
    }

    static void on_bytes(uv_stream_t* stream, ssize_t count, const uv_buf_t* buffer) {
        auto& c = *static_cast<Connection*>(stream->data);
        TUTTI_ASSERT(&c.socket.stream == stream);
        if (count < 0) return self_of(c).ended(c, count == UV_EOF);
        self_of(c).received(c, {buffer->base, static_cast<std::size_t>(count)});
    }

    void received(Connection& c, std::string_view bytes) {
        TUTTI_ASSERT(!c.closing);
        if (!c.proved && !(c.entrance ? shake_hands(c, bytes) : come_in(c, bytes))) return;
        const bool good = c.tls ? take_records(c, bytes) : take_frames(c, bytes);
        send_answers();
        if (!good) return close(c);
        lookout_.heard(c.heard_in);
    }

    bool take_records(Connection& c, std::string_view bytes) {
        TUTTI_ASSERT(c.proved && c.tls != nullptr);
        c.tls->input().append(std::as_bytes(std::span(bytes)));
        while (const std::size_t count = c.tls->read(std::as_writable_bytes(std::span(records_buffer_)))) {
            if (!take_frames(c, {records_buffer_.data(), count})) return false;
        }
        if (c.tls->state() == security::Tls::State::failed) {
            object(c, c.tls->error());
            (void)c.send_records();
        }
        return c.tls->state() == security::Tls::State::open;
    }

    bool take_frames(Connection& c, std::string_view bytes) {
        return c.frames.feed(bytes, [&](const FrameHeader& header, const FrameBody& body) {
            while (c.posts_done != header.posts && read_posts(c)) {
            }
            if (c.closing) return false;
            if (!c.objection.empty()) {
                const Field field{c.objection};
                answer(c.id, header.request, Op::refused, {&field, 1});
                return !c.closing;
            }
            if (header.op == Op::post_pipe) return open_post_pipe(c);
            if (standby_) return standby_->handle(c.id, header, body.view()) && !c.closing;
            return data_.handle(c.id, header, body.view()) && !c.closing;
        });
    }

    void ended(Connection& c, bool in_order) {
        while (read_posts(c)) {
        }
        send_answers();
        close(c, in_order);
    }

    /// False: this client must go. When there are no descriptors left, a byte without one says so.
    bool open_post_pipe(Connection& c) {
        std::array<int, 2> ends{-1, -1};
        if (c.socket.handle.type != UV_NAMED_PIPE || c.posts_fd >= 0) return false;
        if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) return c.send("n");
        UniqueFd reading(ends[0]);
        const UniqueFd writing(ends[1]);
        try {
            net::send_fd(c.fd, writing.get(), Deadline::after(Clock::duration::zero()), nullptr);
        } catch (const DistError& error) {
            TUTTI_DEBUG("TCPStore server: {}", error.what());
            return false;
        }
        uv_pipe_init(&loop_, &c.posts, 0);
        TUTTI_ASSERT(c.open_handles == 1);
        c.posts.data = &c;
        ++c.open_handles;
        c.posts_fd = reading.get();
        if (uv_pipe_open(&c.posts, c.posts_fd) != 0) return false;
        (void)reading.release();  // the handle's now
        fork_guard::close_in_children(c.posts_fd);
        return uv_read_start(as_stream(&c.posts), offer_post_buffer, on_posts) == 0;
    }

    static void offer_post_buffer(uv_handle_t* handle, std::size_t, uv_buf_t* buffer) {
        auto& shared = self_of(*static_cast<Connection*>(handle->data)).post_buffer_;
        *buffer = uv_buf_init(shared.data(), static_cast<unsigned>(shared.size()));
    }

    static void on_posts(uv_stream_t* stream, ssize_t count, const uv_buf_t* buffer) {
        auto& c = *static_cast<Connection*>(stream->data);
        if (count < 0) return void(uv_read_stop(stream));  // the socket tells that its client has left
        Loop& loop = self_of(c);
        loop.take_posts(c, {buffer->base, static_cast<std::size_t>(count)});
        loop.send_answers();
        if (!c.closing) loop.lookout_.heard(c.heard_in);
    }

    /// Reads the client's posts. False: there were none.
    bool read_posts(Connection& c) {
        if (c.posts_fd < 0 || c.closing) return false;
        const ssize_t count = ::read(c.posts_fd, post_buffer_.data(), post_buffer_.size());
        if (count <= 0) return count < 0 && errno == EINTR;
        take_posts(c, {post_buffer_.data(), static_cast<std::size_t>(count)});
        return true;
    }

    void take_posts(Connection& c, std::string_view bytes) {
        TUTTI_ASSERT(c.proved && c.posts_fd >= 0);
        const bool good = c.post_frames.feed(bytes, [&](const FrameHeader& header, const FrameBody& body) {
            ++c.posts_done;
            return header.op == Op::post && data_.handle(c.id, header, body.view()) && !c.closing;
        });
        if (!good) close(c);
    }

    /// True when the peer is trusted and `bytes` is its input after the handshake.
    bool shake_hands(Connection& c, std::string_view& bytes) {
        using State = security::Entrance::State;
        TUTTI_ASSERT(c.entrance.has_value() && !c.tls);
        while (!bytes.empty() && c.entrance->state() == State::needs_more) {
            bytes.remove_prefix(c.entrance->consume(std::as_bytes(std::span(bytes))));
            if (const auto output = c.entrance->output(); !output.empty()) {
                const std::string text(reinterpret_cast<const char*>(output.data()), output.size());
                c.entrance->sent(output.size());
                if (!c.send(text)) close(c);
                if (c.closing) return false;
            }
        }
        if (c.entrance->state() == State::failed) {
            refuse(c);
            close(c);
            return false;
        }
        if (c.entrance->state() != State::done) return false;
        c.tls = c.entrance->take_tls();
        c.entrance.reset();
        if (c.tls) c.objection = objection_to(c.fd, c.tls->identity());
        if (!c.objection.empty()) object(c, c.objection);
        trust(c);
        return true;
    }

    static std::string place_of(const Connection& c) {
        try {
            return net::to_string(net::peer_address(c.fd));
        } catch (const DistNetworkError&) {
            return "somewhere";  // it has gone already
        }
    }

    /// Logs an objection to a client that has proved the secret.
    static void object(const Connection& c, std::string_view why) {
        TUTTI_WARN("TCPStore server: the connection of a process at {}: {}", place_of(c), why);
    }

    /// A user who waits for a rank that has another secret should learn why it does not come; strangers may not fill
    /// the log.
    void refuse(const Connection& c) {
        const auto times = refused_.happened();
        if (!times) return;
        const std::string place = place_of(c),
                          more = *times == 1 ? "" : fmt::format(" ({} such since the last line)", *times);
        if (c.entrance->lacks_tls())
            return TUTTI_WARN("TCPStore server: {}{}", needs_tls(net::to_string(net::local_address(c.fd)), place),
                              more);
        TUTTI_WARN(
            "TCPStore server: a process at {} did not prove the job's secret: {}{}; all ranks of a job need the same "
            "TUTTI_JOB_SECRET",
            place, c.entrance->error(), more);
    }

    /// As shake_hands, at the local door.
    bool come_in(Connection& c, std::string_view& bytes) {
        security::Mac claimed;
        TUTTI_ASSERT(door_.has_value() && c.door_proof.size() < claimed.size());
        const std::size_t count = std::min(bytes.size(), claimed.size() - c.door_proof.size());
        c.door_proof.append(bytes.substr(0, count));
        bytes.remove_prefix(count);
        if (c.door_proof.size() < claimed.size()) return false;
        std::memcpy(claimed.data(), c.door_proof.data(), claimed.size());
        if (!security::equal(claimed, door_->proof())) {
            close(c);
            return false;
        }
        trust(c);
        return true;
    }

    void trust(Connection& c) {
        TUTTI_ASSERT(!c.proved && !c.closing);
        c.proved = true;
        strangers_.remove(c);
    }

    void answer(ConnectionId to, std::uint64_t request, Op op, std::span<const Field> fields) {
        const auto found = by_id_.find(to);
        if (found == by_id_.end() || found->second->closing) return;
        std::uint64_t body_bytes = 0;
        for (const auto& field : fields) body_bytes += field_header_bytes + field.bytes.size();
        if (body_bytes > max_body_bytes) {
            const auto words = fmt::format("the answer would have {} bytes, more than {}: ask for fewer keys at once",
                                           body_bytes, max_body_bytes);
            const Field field{words};
            return answer(to, request, Op::error, {&field, 1});
        }
        Connection& c = *found->second;
        TUTTI_ASSERT(c.id == to && c.proved);
        if (!std::exchange(c.unsent, true)) unsent_.push_back(&c);
        if (!c.answer(request, op, fields, body_bytes)) close(c);
    }

    /// The answers to one piece of input leave in one piece per client. A client that is gone may have left a will,
    /// which wakes others.
    void send_answers() {
        if (std::exchange(sending_, true)) return;
        for (std::size_t i = 0; i < unsent_.size(); ++i) {
            Connection& c = *unsent_[i];
            c.unsent = false;
            if (!c.closing && !c.flush()) close(c);
        }
        unsent_.clear();
        sending_ = false;
    }

    void close(Connection& c, bool in_order = false) {
        if (std::exchange(c.closing, true)) return;
        TUTTI_ASSERT(by_id_.contains(c.id));
        if (!c.proved) strangers_.remove(c);
        c.say_end();
        by_id_.erase(c.id);
        if (!stopping_) {
            if (standby_)
                standby_->gone(c.id, in_order);
            else
                data_.forget(c.id);
            send_answers();
        }
        if (c.fd >= 0) fork_guard::forget(c.fd);
        if (c.posts_fd >= 0) fork_guard::forget(c.posts_fd);
        const auto on_close = [](uv_handle_t* handle) {
            auto& gone = *static_cast<Connection*>(handle->data);
            TUTTI_ASSERT(gone.closing && gone.open_handles > 0);
            if (--gone.open_handles == 0) self_of(gone).connections_.erase(gone.where);
        };
        uv_close(&c.socket.handle, on_close);
        if (c.open_handles > 1) uv_close(as_handle(&c.posts), on_close);
    }

    void close_everything() {
        TUTTI_ASSERT(!stopping_);
        stopping_ = true;
        for (auto& connection : connections_) close(connection);
        listener_.close();
        door_listener_.close();
        lookout_.close();
        strangers_.close();
        if (local_secret_) fork_guard::forget(local_secret_->fd());
        const auto close_handle = [](auto& handle) {
            // Not every handle is open when the constructor fails half-way.
            if (handle.data != nullptr && !uv_is_closing(as_handle(&handle))) uv_close(as_handle(&handle), nullptr);
        };
        close_handle(stop_);
        close_handle(secret_poll_);
        close_handle(pulse_);
        close_handle(news_);
    }

    uv_loop_t loop_{};
    uv_async_t stop_{};
    Acceptor listener_, door_listener_;
    uv_poll_t secret_poll_{};
    uv_timer_t pulse_{};
    uv_async_t news_{};
    BusyPoll lookout_;
    security::Secret secret_;
    std::optional<security::LocalSecretServer> local_secret_;
    PendingConnections strangers_;
    std::optional<LocalDoor> door_;
    bool stopping_ = false;
    ConnectionId last_id_ = 0;
    Connections connections_;
    std::unordered_map<ConnectionId, Connection*> by_id_;
    std::vector<Connection*> unsent_;
    bool sending_ = false;
    RateLimit refused_;
    ServerData data_;
    std::unique_ptr<Follower> follower_;
    std::optional<Standby> standby_;
    std::array<char, std::size_t{256} << 10U> buffer_;
    std::array<char, std::size_t{64} << 10U> records_buffer_;
    std::array<char, std::size_t{64} << 10U> post_buffer_;  // as much as a pipe holds
    std::thread thread_;
};

TcpServer::TcpServer(UniqueFd listener, const security::Secret& secret, bool share_secret, ServerKind kind)
    : secret_(secret), owner_(::getpid()) {
    TUTTI_ASSERT(kind != ServerKind::standby);
    start(std::move(listener), share_secret, kind, nullptr);
}

TcpServer::TcpServer(UniqueFd listener, const security::Secret& secret, bool share_secret, const net::Address& primary,
                     const Deadline& deadline, const AbortFlag* abort)
    : secret_(secret), owner_(::getpid()) {
    auto follower =
        std::make_unique<Follower>(primary, secret, net::local_address(listener.get()).port, deadline, abort);
    start(std::move(listener), share_secret, ServerKind::standby, std::move(follower));
    constexpr auto look_time = std::chrono::milliseconds(5);
    while (loop_->role() == Succession::Role::learning) {
        check_wait(deadline, abort, "TCPStore");
        std::this_thread::sleep_for(look_time);
    }
    if (loop_->role() == Succession::Role::retired)
        throw DistStoreError(
            fmt::format("TCPStore: the server at {} was lost before its standby had the whole contents",
                        net::to_string(primary)),
            {.operation = "TCPStore"});
}

void TcpServer::start(UniqueFd listener, bool share_secret, ServerKind kind, std::unique_ptr<Follower> follower) {
    if (::fcntl(listener.get(), F_SETFD, FD_CLOEXEC) != 0 ||
        ::fcntl(listener.get(), F_SETFL, ::fcntl(listener.get(), F_GETFL) | O_NONBLOCK) != 0) {
        throw InvalidArgument(fmt::format("TCPStore server: {} is not an open socket", listener.get()));
    }
    address_ = net::local_address(listener.get());
    if (address_.port == 0)
        throw InvalidArgument(
            fmt::format("TCPStore server: {} is not a TCP socket that is bound to a port", listener.get()));
    std::optional<security::LocalSecretServer> local;
    if (share_secret) local.emplace(address_.port, secret_);
    loop_ = std::make_unique<Loop>(std::move(listener), secret_, std::move(local), address_.host, kind,
                                   std::move(follower));
}

Succession::Role TcpServer::role() const {
    return loop_->role();
}

void TcpServer::expect_end() {
    loop_->expect_end();
}

TcpServer::~TcpServer() {
    // A forked child has neither the loop's thread nor its sockets.
    if (::getpid() != owner_) (void)loop_.release();
}

}  // namespace tutti::store
