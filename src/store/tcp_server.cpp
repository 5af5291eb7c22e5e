#include "store/tcp_server.hpp"

#include "core/socket.hpp"
#include "security/handshake.hpp"
#include "security/local_secret.hpp"
#include "store/table.hpp"
#include "store/wire.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include <algorithm>
#include <array>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tutti::store {
namespace {

using wire::Operation;
using wire::Status;

constexpr std::size_t strangers_max = 1024;  // connections that have not proved the secret yet

}  // namespace

class TcpServer::Loop {
 public:
    Loop(UniqueFd listener, const security::Secret& secret, bool share_secret) : secret_(secret) {
        port_ = net::local_address(listener.get()).port;
        if (share_secret) local_secret_.emplace(port_, secret_);
        table_.set_counter(coordination_key, 0);
        uv_loop_init(&loop_);
        uv_async_init(&loop_, &stop_, [](uv_async_t* handle) { static_cast<Loop*>(handle->data)->close_all(); });
        uv_tcp_init(&loop_, &listener_);
        stop_.data = listener_.data = this;
        uv_tcp_open(&listener_, listener.release());
        const int error =
            uv_listen(reinterpret_cast<uv_stream_t*>(&listener_), 512, [](uv_stream_t* handle, int status) {
                if (status == 0) static_cast<Loop*>(handle->data)->accept();
            });
        if (local_secret_) {
            uv_poll_init(&loop_, &secret_poll_, local_secret_->fd());
            secret_poll_.data = this;
            uv_poll_start(&secret_poll_, UV_READABLE, [](uv_poll_t* handle, int, int) {
                static_cast<Loop*>(handle->data)->local_secret_->serve();
            });
        }
        if (error != 0) {
            close_all();
            uv_run(&loop_, UV_RUN_DEFAULT);
            uv_loop_close(&loop_);
            throw DistNetworkError(fmt::format("TCPStore: cannot listen on port {}: {}", port_, uv_strerror(error)));
        }
        thread_ = std::thread([this] { uv_run(&loop_, UV_RUN_DEFAULT); });
    }

    ~Loop() {
        uv_async_send(&stop_);
        thread_.join();
        uv_loop_close(&loop_);
    }

    std::uint16_t port() const noexcept { return port_; }

 private:
    struct Connection {
        Loop* loop = nullptr;
        uv_tcp_t socket{};
        uv_timer_t timer{};
        int open_handles = 2;
        bool closing = false;
        security::Handshake handshake;
        std::string inbox;
        std::vector<char> buffer;
        std::list<Connection>::iterator self;
        explicit Connection(const security::Secret& secret)
            : handshake(secret, security::Role::accepting, "store"), buffer(4096) {}
        bool trusted() const { return handshake.state() == security::Handshake::State::done; }
    };
    struct Waiter {
        Connection* connection;
        std::uint64_t id;
        Operation operation;
        std::vector<std::string> keys;
        std::int64_t amount = 0;
    };
    struct Write {
        uv_write_t request{};
        std::string bytes;
    };

    void accept() {
        connections_.emplace_front(secret_);
        Connection& c = connections_.front();
        c.self = connections_.begin();
        c.loop = this;
        uv_tcp_init(&loop_, &c.socket);
        uv_timer_init(&loop_, &c.timer);
        c.socket.data = c.timer.data = &c;
        ++strangers_;
        if (uv_accept(reinterpret_cast<uv_stream_t*>(&listener_), reinterpret_cast<uv_stream_t*>(&c.socket)) != 0 ||
            strangers_ > strangers_max) {
            return close(c);
        }
        uv_tcp_nodelay(&c.socket, 1);
        uv_tcp_keepalive(&c.socket, 1, 30);
        uv_timer_start(
            &c.timer,
            [](uv_timer_t* timer) {
                auto& late = *static_cast<Connection*>(timer->data);
                late.loop->close(late);
            },
            static_cast<std::uint64_t>(security::handshake_timeout().count()), 0);
        uv_read_start(
            reinterpret_cast<uv_stream_t*>(&c.socket),
            [](uv_handle_t* handle, std::size_t, uv_buf_t* buffer) {
                auto& connection = *static_cast<Connection*>(handle->data);
                // Never more than the handshake wants, so that nothing after it is read as part of it.
                const std::size_t want = connection.trusted()
                                             ? connection.buffer.size()
                                             : std::min(connection.buffer.size(), connection.handshake.wanted());
                *buffer = uv_buf_init(connection.buffer.data(), static_cast<unsigned>(want));
            },
            [](uv_stream_t* stream, ssize_t count, const uv_buf_t* buffer) {
                auto& connection = *static_cast<Connection*>(stream->data);
                if (count < 0) return connection.loop->close(connection);
                connection.loop->received(connection, {buffer->base, static_cast<std::size_t>(count)});
            });
    }

    void received(Connection& c, std::string_view bytes) {
        if (!c.trusted()) {
            c.handshake.consume(wire::bytes_of(bytes));
            const auto output = c.handshake.output();
            if (!output.empty()) send(c, std::string(reinterpret_cast<const char*>(output.data()), output.size()));
            c.handshake.sent(output.size());
            if (c.handshake.state() == security::Handshake::State::failed) return close(c);
            if (c.trusted()) {
                uv_timer_stop(&c.timer);
                --strangers_;
                c.buffer.resize(std::size_t{64} << 10);
            }
            return;
        }
        c.inbox += bytes;
        std::size_t at = 0;
        while (!c.closing && c.inbox.size() - at >= wire::length_bytes) {
            std::uint64_t length = 0;
            std::memcpy(&length, c.inbox.data() + at, sizeof length);
            if (length > wire::frame_limit || length < wire::head_bytes - wire::length_bytes) return close(c);
            if (c.inbox.size() - at - wire::length_bytes < length) break;
            request(c, std::string_view(c.inbox).substr(at + wire::length_bytes, length));
            at += wire::length_bytes + length;
        }
        c.inbox.erase(0, at);
        if (c.inbox.empty() && c.inbox.capacity() > (std::size_t{1} << 20)) c.inbox.shrink_to_fit();
    }

    void request(Connection& c, std::string_view bytes) {
        wire::Reader reader(bytes);
        const auto id = static_cast<std::uint64_t>(reader.integer());
        const auto operation = static_cast<Operation>(reader.byte());
        try {
            perform(c, id, operation, reader);
        } catch (const DistError& error) {
            wire::Writer writer(id, static_cast<std::uint8_t>(Status::error));
            writer.field(error.what());
            send(c, std::move(writer).finish());
        }
    }

    void perform(Connection& c, std::uint64_t id, Operation operation, wire::Reader& reader) {
        wire::Writer answer(id, static_cast<std::uint8_t>(Status::ok));
        std::vector<std::string> changed;
        switch (operation) {
            case Operation::set:
            case Operation::append: {
                const auto key = reader.field(), value = reader.field();
                if (reader.failed()) return close(c);
                if (operation == Operation::set)
                    table_.set(key, value);
                else
                    table_.append(key, value);
                changed.emplace_back(key);
                break;
            }
            case Operation::multi_set:
                for (std::int64_t left = reader.integer(); left > 0 && !reader.failed(); --left) {
                    const auto key = reader.field(), value = reader.field();
                    if (reader.failed()) break;
                    table_.set(key, value);
                    changed.emplace_back(key);
                }
                break;
            case Operation::add: {
                const auto key = reader.field();
                const std::int64_t amount = reader.integer();
                if (reader.failed()) return close(c);
                answer.integer(table_.add(key, amount));
                changed.emplace_back(key);
                break;
            }
            case Operation::compare_set: {
                const auto key = reader.field(), expected = reader.field(), desired = reader.field();
                if (reader.failed()) return close(c);
                answer.field(table_.compare_set(key, expected, desired));
                if (table_.contains(key)) changed.emplace_back(key);
                break;
            }
            case Operation::erase: answer.integer(table_.erase(reader.field()) ? 1 : 0); break;
            case Operation::num_keys: answer.integer(table_.size()); break;
            case Operation::check: {
                bool all = true;
                for (std::int64_t left = reader.integer(); left > 0 && !reader.failed(); --left)
                    all &= table_.contains(reader.field());
                answer.integer(all ? 1 : 0);
                break;
            }
            case Operation::get:
            case Operation::wait: {
                Waiter waiter{&c, id, operation, {}};
                for (std::int64_t left = reader.integer(); left > 0 && !reader.failed(); --left)
                    waiter.keys.emplace_back(reader.field());
                if (reader.failed()) return close(c);
                if (!satisfied(waiter)) wait(std::move(waiter));
                return;
            }
            case Operation::wait_count: {
                Waiter waiter{&c, id, operation, {std::string(reader.field())}};
                waiter.amount = reader.integer();
                if (reader.failed()) return close(c);
                if (!satisfied(waiter)) wait(std::move(waiter));
                return;
            }
            case Operation::cancel: {
                const auto other = static_cast<std::uint64_t>(reader.integer());
                forget([&](const Waiter& w) { return w.connection == &c && w.id == other; });
                return;
            }
            default: return close(c);
        }
        if (reader.failed()) return close(c);
        send(c, std::move(answer).finish());
        for (const std::string& key : changed) wake(key);
    }

    // Answers and returns true if everything that the waiter wants is there.
    bool satisfied(const Waiter& waiter) {
        if (waiter.operation == Operation::wait_count) {
            if (table_.counter(waiter.keys[0]) < waiter.amount) return false;
        } else if (!std::ranges::all_of(waiter.keys, [&](const std::string& key) { return table_.contains(key); })) {
            return false;
        }
        wire::Writer answer(waiter.id, static_cast<std::uint8_t>(Status::ok));
        if (waiter.operation == Operation::get) {
            for (const std::string& key : waiter.keys) answer.field(*table_.find(key));
        }
        send(*waiter.connection, std::move(answer).finish());
        return true;
    }

    // A waiter is listed under one key that it misses; when that comes, under the next.
    void wait(Waiter waiter) {
        std::string missing = waiter.keys[0];
        for (const std::string& key : waiter.keys) {
            if (!table_.contains(key)) missing = key;
        }
        waiters_[missing].push_back(std::move(waiter));
    }

    void wake(const std::string& key) {
        const auto found = waiters_.find(key);
        if (found == waiters_.end()) return;
        std::vector<Waiter> woken = std::move(found->second);
        waiters_.erase(found);
        for (Waiter& waiter : woken) {
            if (!waiter.connection->closing && !satisfied(waiter)) wait(std::move(waiter));
        }
    }

    template <class F>
    void forget(F match) {
        for (auto it = waiters_.begin(); it != waiters_.end();) {
            std::erase_if(it->second, match);
            it = it->second.empty() ? waiters_.erase(it) : std::next(it);
        }
    }

    void send(Connection& c, std::string bytes) {
        if (c.closing) return;
        // Most answers fit into the socket's buffer at once.
        uv_buf_t buffer = uv_buf_init(bytes.data(), static_cast<unsigned>(bytes.size()));
        auto* stream = reinterpret_cast<uv_stream_t*>(&c.socket);
        std::size_t done = 0;
        if (stream->write_queue_size == 0) {
            const int count = uv_try_write(stream, &buffer, 1);
            if (count > 0) done = static_cast<std::size_t>(count);
            if (done == bytes.size()) return;
        }
        auto* write = new Write;
        write->bytes = std::move(bytes);
        write->request.data = write;
        buffer = uv_buf_init(write->bytes.data() + done, static_cast<unsigned>(write->bytes.size() - done));
        uv_write(&write->request, stream, &buffer, 1,
                 [](uv_write_t* request, int) { delete static_cast<Write*>(request->data); });
    }

    void close(Connection& c) {
        if (c.closing) return;
        c.closing = true;
        if (!c.trusted()) --strangers_;
        forget([&](const Waiter& w) { return w.connection == &c; });
        const auto closed = [](uv_handle_t* handle) {
            auto& connection = *static_cast<Connection*>(handle->data);
            if (--connection.open_handles == 0) connection.loop->connections_.erase(connection.self);
        };
        uv_close(reinterpret_cast<uv_handle_t*>(&c.socket), closed);
        uv_close(reinterpret_cast<uv_handle_t*>(&c.timer), closed);
    }

    void close_all() {
        for (Connection& c : connections_) close(c);
        uv_close(reinterpret_cast<uv_handle_t*>(&listener_), nullptr);
        uv_close(reinterpret_cast<uv_handle_t*>(&stop_), nullptr);
        if (local_secret_) uv_close(reinterpret_cast<uv_handle_t*>(&secret_poll_), nullptr);
    }

    security::Secret secret_;
    std::uint16_t port_ = 0;
    std::optional<security::LocalSecretServer> local_secret_;
    uv_loop_t loop_{};
    uv_async_t stop_{};
    uv_tcp_t listener_{};
    uv_poll_t secret_poll_{};
    std::list<Connection> connections_;
    std::size_t strangers_ = 0;
    Table table_;
    std::unordered_map<std::string, std::vector<Waiter>> waiters_;
    std::thread thread_;
};

TcpServer::TcpServer(UniqueFd listener, const security::Secret& secret, bool share_secret)
    : loop_(std::make_unique<Loop>(std::move(listener), secret, share_secret)) {}
TcpServer::~TcpServer() = default;
std::uint16_t TcpServer::port() const noexcept {
    return loop_->port();
}

}  // namespace tutti::store
