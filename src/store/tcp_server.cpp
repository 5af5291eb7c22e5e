#include "store/tcp_server.hpp"

#include "core/log.hpp"
#include "security/handshake.hpp"
#include "security/local_secret.hpp"
#include "store/fork_guard.hpp"
#include "store/server_data.hpp"
#include "store/wire.hpp"

#include <tutti/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <list>
#include <memory>
#include <optional>
#include <string>
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

/// Connections that have not proved the secret: enough for a large job that starts at once, and never more than a
/// quarter of the descriptors that this process may have.
std::size_t max_strangers() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 64;
    return std::clamp<std::size_t>(limit.rlim_cur / 4, 8, 1024);
}

/// An answer on its way: the parts of it that did not fit into the socket at once.
struct PendingWrite {
    uv_write_t request{};
    std::string meta;
    std::vector<Value> values;
};

}  // namespace

class TcpServer::Loop {
 public:
    Loop(UniqueFd listener, const security::Secret& secret, std::optional<security::LocalSecretServer> local_secret)
        : secret_(secret),
          local_secret_(std::move(local_secret)),
          handshake_ms_(static_cast<std::uint64_t>(security::handshake_timeout().count())),
          max_strangers_(max_strangers()),
          data_([this](ConnectionId to, std::uint64_t request, Op op, std::vector<Value> fields) {
              answer(to, request, op, std::move(fields));
          }) {
        expect_good(uv_loop_init(&loop_), "cannot make an event loop");
        try {
            open_handles(std::move(listener));
            start_thread();
        } catch (...) {
            close_everything();
            uv_run(&loop_, UV_RUN_DEFAULT);
            uv_loop_close(&loop_);
            throw;
        }
    }

    ~Loop() {
        uv_async_send(&stop_);
        thread_.join();
        uv_loop_close(&loop_);
    }

 private:
    struct Connection {
        Connection(Loop& owner, ConnectionId name, const security::Secret& secret)
            : loop(owner), id(name), handshake(std::in_place, secret, security::Role::accepting, store_purpose) {}
        Loop& loop;
        ConnectionId id;
        uv_tcp_t socket{};
        int fd = -1;
        bool closing = false;
        std::uint64_t arrived_ms = 0;
        /// Empty once it is done.
        std::optional<security::Handshake> handshake;
        FrameReader frames;
        std::list<Connection>::iterator where{};
    };
    using Connections = std::list<Connection>;

    void open_handles(UniqueFd listener) {
        const auto init = [this](auto& handle, int result, const char* what) {
            expect_good(result, what);
            handle.data = this;
        };
        init(stop_, uv_async_init(&loop_, &stop_, [](uv_async_t* h) { self(h).close_everything(); }), "async");
        init(sweep_, uv_timer_init(&loop_, &sweep_), "timer");
        init(listener_, uv_tcp_init(&loop_, &listener_), "socket");
        expect_good(uv_tcp_open(&listener_, listener.get()), "cannot use the listening socket");
        listen_fd_ = listener.release();
        close_in_children(listen_fd_);
        expect_good(
            uv_listen(as_stream(&listener_), 512,
                      [](uv_stream_t* h, int status) { status == 0 ? self(h).accept() : self(h).no_accept(status); }),
            "cannot listen");
        if (local_secret_) {
            init(secret_poll_, uv_poll_init(&loop_, &secret_poll_, local_secret_->fd()), "poll");
            close_in_children(local_secret_->fd());
            expect_good(
                uv_poll_start(&secret_poll_, UV_READABLE, [](uv_poll_t* h, int, int) { self(h).serve_secret(); }),
                "poll");
        }
    }

    void start_thread() {
        // Signals belong to the application's threads.
        sigset_t all;
        sigset_t before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        try {
            thread_ = std::thread([this] { uv_run(&loop_, UV_RUN_DEFAULT); });
        } catch (...) {
            pthread_sigmask(SIG_SETMASK, &before, nullptr);
            throw;
        }
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }

    template <class Handle>
    static Loop& self(Handle* handle) {
        return *static_cast<Loop*>(handle->data);
    }

    void serve_secret() {
        try {
            local_secret_->serve();
        } catch (const DistError& error) {
            TUTTI_WARN("{}", error.what());
        }
    }

    void no_accept(int status) { TUTTI_WARN("TCPStore server: cannot accept a connection: {}", uv_strerror(status)); }

    void accept() {
        Connection& c = connections_.emplace_back(*this, ++last_id_, secret_);
        c.where = std::prev(connections_.end());
        c.socket.data = &c;
        c.arrived_ms = uv_now(&loop_);
        uv_tcp_init(&loop_, &c.socket);
        by_id_[c.id] = &c;
        strangers_.push_back(&c);
        if (uv_accept(as_stream(&listener_), as_stream(&c.socket)) != 0) return close(c);
        uv_fileno(as_handle(&c.socket), &c.fd);
        close_in_children(c.fd);
        uv_tcp_nodelay(&c.socket, 1);
        uv_tcp_keepalive(&c.socket, 1, 15);
        uv_read_start(as_stream(&c.socket), offer_buffer, on_bytes);
        // The oldest has had the longest time to prove itself.
        if (strangers_.size() > max_strangers_) close(*strangers_.front());
        if (!sweeping_) schedule_sweep();
    }

    void schedule_sweep() {
        sweeping_ = !strangers_.empty() && !stopping_;
        if (!sweeping_) return;
        const std::uint64_t due = strangers_.front()->arrived_ms + handshake_ms_;
        const std::uint64_t now = uv_now(&loop_);
        uv_timer_start(
            &sweep_, [](uv_timer_t* h) { self(h).drop_silent_strangers(); }, due > now ? due - now : 1, 0);
    }

    void drop_silent_strangers() {
        while (!strangers_.empty() && strangers_.front()->arrived_ms + handshake_ms_ <= uv_now(&loop_)) {
            close(*strangers_.front());
        }
        schedule_sweep();
    }

    static void offer_buffer(uv_handle_t* handle, std::size_t, uv_buf_t* buffer) {
        auto& shared = static_cast<Connection*>(handle->data)->loop.buffer_;
        *buffer = uv_buf_init(shared.data(), static_cast<unsigned>(shared.size()));
    }

    static void on_bytes(uv_stream_t* stream, ssize_t count, const uv_buf_t* buffer) {
        auto& c = *static_cast<Connection*>(stream->data);
        if (count < 0) return c.loop.close(c);
        c.loop.received(c, {buffer->base, static_cast<std::size_t>(count)});
    }

    void received(Connection& c, std::string_view bytes) {
        if (c.handshake && !shake_hands(c, bytes)) return;
        const bool good = c.frames.feed(bytes, [&](const FrameHeader& header, std::string body) {
            return data_.handle(c.id, header, body) && !c.closing;
        });
        if (!good) close(c);
    }

    /// True when the peer is trusted and `bytes` is what it said after the handshake.
    bool shake_hands(Connection& c, std::string_view& bytes) {
        while (!bytes.empty() && c.handshake->state() == security::Handshake::State::needs_more) {
            bytes.remove_prefix(c.handshake->consume(std::as_bytes(std::span(bytes))));
            if (const auto output = c.handshake->output(); !output.empty()) {
                std::string text(reinterpret_cast<const char*>(output.data()), output.size());
                c.handshake->sent(output.size());
                send(c, std::move(text), {});
                if (c.closing) return false;
            }
        }
        if (c.handshake->state() == security::Handshake::State::failed) {
            TUTTI_DEBUG("TCPStore server: {}", c.handshake->error());
            close(c);
            return false;
        }
        if (c.handshake->state() != security::Handshake::State::done) return false;
        c.handshake.reset();
        std::erase(strangers_, &c);
        return true;
    }

    void answer(ConnectionId to, std::uint64_t request, Op op, std::vector<Value> fields) {
        const auto found = by_id_.find(to);
        if (found == by_id_.end() || found->second->closing) return;
        std::uint64_t body_bytes = 0;
        for (const auto& field : fields) body_bytes += field_header_bytes + field->size();
        if (body_bytes > max_body_bytes) {
            const auto words = fmt::format("the answer would have {} bytes, more than {}: ask for fewer keys at once",
                                           body_bytes, max_body_bytes);
            return answer(to, request, Op::error, {std::make_shared<const std::string>(words)});
        }
        const auto header = encode({op, request, body_bytes});
        std::string meta(header.begin(), header.end());
        for (const auto& field : fields) {
            const auto size = encode_number(field->size());
            meta.append(size.data(), size.size());
        }
        send(*found->second, std::move(meta), std::move(fields));
    }

    /// `meta` is the header and one length per value; with no values, just bytes.
    void send(Connection& c, std::string meta, std::vector<Value> values) {
        const std::size_t lead = values.empty() ? meta.size() : header_bytes;
        std::vector<uv_buf_t> buffers;
        buffers.reserve(1 + 2 * values.size());
        const auto put = [&](const char* data, std::size_t size) {
            if (size > 0) buffers.push_back({const_cast<char*>(data), size});
        };
        put(meta.data(), lead);
        for (std::size_t i = 0; i < values.size(); ++i) {
            put(meta.data() + lead + i * field_header_bytes, field_header_bytes);
            put(values[i]->data(), values[i]->size());
        }
        // Most answers fit into the socket's buffer at once.
        const int result = uv_try_write(as_stream(&c.socket), buffers.data(), static_cast<unsigned>(buffers.size()));
        if (result < 0 && result != UV_EAGAIN) return close(c);
        std::size_t done = result > 0 ? static_cast<std::size_t>(result) : 0;
        auto at = buffers.begin();
        for (; at != buffers.end() && done >= at->len; ++at) done -= at->len;
        if (at == buffers.end()) return;
        at->base += done;
        at->len -= done;
        // A std::string that is moved keeps its address only when it is long: measure before and after.
        auto write = std::make_unique<PendingWrite>();
        const char* const before = meta.data();
        write->meta = std::move(meta);
        const std::size_t meta_size = write->meta.size();
        for (auto fix = at; fix != buffers.end(); ++fix) {
            if (fix->base >= before && fix->base < before + meta_size) {
                fix->base = write->meta.data() + (fix->base - before);
            }
        }
        write->values = std::move(values);
        write->request.data = write.get();
        const int queued =
            uv_write(&write->request, as_stream(&c.socket), &*at, static_cast<unsigned>(buffers.end() - at),
                     [](uv_write_t* request, int status) {
                         const std::unique_ptr<PendingWrite> finished(static_cast<PendingWrite*>(request->data));
                         auto& connection = *static_cast<Connection*>(request->handle->data);
                         if (status != 0) connection.loop.close(connection);
                     });
        if (queued != 0) return close(c);
        (void)write.release();  // the callback owns it, and always comes
    }

    void close(Connection& c) {
        if (std::exchange(c.closing, true)) return;
        if (c.handshake) std::erase(strangers_, &c);
        data_.forget(c.id);
        by_id_.erase(c.id);
        if (c.fd >= 0) store::forget(c.fd);
        uv_close(as_handle(&c.socket), [](uv_handle_t* handle) {
            auto& gone = *static_cast<Connection*>(handle->data);
            gone.loop.connections_.erase(gone.where);
        });
    }

    void close_everything() {
        stopping_ = true;
        for (auto& connection : connections_) close(connection);
        if (listen_fd_ >= 0) store::forget(listen_fd_);
        if (local_secret_) store::forget(local_secret_->fd());
        const auto close_handle = [](auto& handle) {
            // Not every handle is open when the constructor fails half-way.
            if (handle.data != nullptr && !uv_is_closing(as_handle(&handle))) uv_close(as_handle(&handle), nullptr);
        };
        close_handle(stop_);
        close_handle(sweep_);
        close_handle(listener_);
        close_handle(secret_poll_);
    }

    uv_loop_t loop_{};
    uv_async_t stop_{};
    uv_timer_t sweep_{};
    uv_tcp_t listener_{};
    uv_poll_t secret_poll_{};
    int listen_fd_ = -1;
    security::Secret secret_;
    std::optional<security::LocalSecretServer> local_secret_;
    std::uint64_t handshake_ms_;
    std::size_t max_strangers_;
    bool sweeping_ = false;
    bool stopping_ = false;
    ConnectionId last_id_ = 0;
    Connections connections_;
    std::unordered_map<ConnectionId, Connection*> by_id_;
    std::list<Connection*> strangers_;  // in the order of their arrival
    ServerData data_;
    std::array<char, std::size_t{256} << 10U> buffer_;
    std::thread thread_;
};

TcpServer::TcpServer(UniqueFd listener, const security::Secret& secret, bool share_secret)
    : secret_(secret), owner_(::getpid()) {
    if (::fcntl(listener.get(), F_SETFD, FD_CLOEXEC) != 0 ||
        ::fcntl(listener.get(), F_SETFL, ::fcntl(listener.get(), F_GETFL) | O_NONBLOCK) != 0) {
        throw InvalidArgument(fmt::format("TCPStore server: {} is not an open socket", listener.get()));
    }
    address_ = net::local_address(listener.get());
    std::optional<security::LocalSecretServer> local;
    if (share_secret) local.emplace(address_.port, secret);
    loop_ = std::make_unique<Loop>(std::move(listener), secret, std::move(local));
}

TcpServer::~TcpServer() {
    // A forked child has neither the loop's thread nor its sockets.
    if (::getpid() != owner_) (void)loop_.release();
}

}  // namespace tutti::store
