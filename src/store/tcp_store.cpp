// TCPStore's client.
//
// Threads: any number call at once over one connection. Whoever waits for an answer reads for all: one caller is the
// reader at a time, the others sleep until it hands them their answer or the reading over. A child after fork() must
// not use the parent's connection, and is told so.
#include "core/socket.hpp"
#include "security/handshake.hpp"
#include "security/local_secret.hpp"
#include "store/table.hpp"
#include "store/tcp_server.hpp"
#include "store/wait_error.hpp"
#include "store/wire.hpp"

#include <tutti/store.hpp>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <map>
#include <mutex>
#include <unordered_map>

namespace tutti {
namespace {

using store::wire::Operation;
using store::wire::Reader;
using store::wire::Status;
using store::wire::Writer;

class TcpBackend final : public StoreBackend {
 public:
    TcpBackend(const std::string& host, std::uint16_t port, const security::Secret& secret, Milliseconds timeout,
               std::shared_ptr<store::TcpServer> server)
        : server_(std::move(server)),
          name_(fmt::format("TCPStore({})", net::to_string({host, port}))),
          process_(::getpid()) {
        const Deadline deadline = Deadline::after(timeout);
        try {
            fd_ = net::connect_tcp({host, port}, deadline, nullptr);
            security::authenticate(fd_.get(), secret, security::Role::connecting, "store", deadline, nullptr);
        } catch (const DistNetworkError& error) {
            if (error.code() == ErrorCode::security) {
                throw DistNetworkError(fmt::format("{}: {}", name_, error.what()), error.context(),
                                       ErrorCode::security);
            }
            throw DistStoreError(fmt::format("{}: {}; does rank 0 run, and is this its address?", name_, error.what()),
                                 error.context());
        }
    }

    void set(std::string_view key, std::string_view value, Milliseconds timeout) override {
        call(Operation::set, "set", key, timeout, [&](Writer& w) { w.field(key), w.field(value); });
    }
    std::string get(std::string_view key, Milliseconds timeout) override {
        const std::string name(key);
        return multi_get({&name, 1}, timeout)[0];
    }
    std::int64_t add(std::string_view key, std::int64_t amount, Milliseconds timeout) override {
        return Reader(call(Operation::add, "add", key, timeout, [&](Writer& w) { w.field(key), w.integer(amount); }))
            .integer();
    }
    void append(std::string_view key, std::string_view value, Milliseconds timeout) override {
        call(Operation::append, "append", key, timeout, [&](Writer& w) { w.field(key), w.field(value); });
    }
    bool check(std::span<const std::string> keys, Milliseconds timeout) override {
        return Reader(call(Operation::check, "check", "", timeout, [&](Writer& w) { put(w, keys); })).integer() != 0;
    }
    std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                            Milliseconds timeout) override {
        const std::string answer = call(Operation::compare_set, "compare_set", key, timeout,
                                        [&](Writer& w) { w.field(key), w.field(expected), w.field(desired); });
        return std::string(Reader(answer).field());
    }
    bool delete_key(std::string_view key, Milliseconds timeout) override {
        return Reader(call(Operation::erase, "delete_key", key, timeout, [&](Writer& w) { w.field(key); })).integer() !=
               0;
    }
    std::int64_t num_keys(Milliseconds timeout) override {
        return Reader(call(Operation::num_keys, "num_keys", "", timeout, [](Writer&) {})).integer();
    }
    void wait(std::span<const std::string> keys, Milliseconds timeout) override {
        if (!keys.empty()) call(Operation::wait, "wait", keys, timeout, [&](Writer& w) { put(w, keys); });
    }
    std::vector<std::string> multi_get(std::span<const std::string> keys, Milliseconds timeout) override {
        std::vector<std::string> values;
        if (keys.empty()) return values;
        const std::string answer = call(Operation::get, "get", keys, timeout, [&](Writer& w) { put(w, keys); });
        Reader reader(answer);
        for (std::size_t i = 0; i < keys.size(); ++i) values.emplace_back(reader.field());
        return values;
    }
    void multi_set(std::span<const std::string> keys, std::span<const std::string> values,
                   Milliseconds timeout) override {
        call(Operation::multi_set, "multi_set", keys, timeout, [&](Writer& w) {
            w.integer(static_cast<std::int64_t>(keys.size()));
            for (std::size_t i = 0; i < keys.size(); ++i) w.field(keys[i]), w.field(values[i]);
        });
    }
    void wait_for_users(std::int64_t users, Milliseconds timeout) {
        try {
            call(Operation::wait_count, "wait", store::coordination_key, timeout,
                 [&](Writer& w) { w.field(store::coordination_key), w.integer(users); });
        } catch (const DistStoreError& error) {
            if (error.code() != ErrorCode::timeout) throw;
            const std::int64_t present = add(store::coordination_key, 0, timeout);
            throw DistStoreError(
                fmt::format("{}: {} of {} users connected within {} ms", name_, present, users, timeout.count()),
                error.context(), ErrorCode::timeout);
        }
    }
    std::string describe() const override { return name_; }

 private:
    static void put(Writer& w, std::span<const std::string> keys) {
        w.integer(static_cast<std::int64_t>(keys.size()));
        for (const std::string& key : keys) w.field(key);
    }

    template <class F>
    std::string call(Operation operation, const char* name, std::string_view key, Milliseconds timeout, F fields) {
        const std::string copy(key);
        return call(operation, name, std::span(&copy, 1), timeout, fields);
    }

    template <class F>
    std::string call(Operation operation, const char* name, std::span<const std::string> keys, Milliseconds timeout,
                     F fields) {
        if (::getpid() != process_) {
            throw DistStoreError(fmt::format("{}: this connection belongs to process {}; make a new store after fork()",
                                             name_, process_));
        }
        const Deadline deadline = Deadline::after(timeout);
        std::unique_lock lock(mutex_);
        const std::uint64_t id = ++last_id_;
        Writer writer(id, static_cast<std::uint8_t>(operation));
        fields(writer);
        const std::string request = std::move(writer).finish();
        if (request.size() > store::wire::frame_limit) {
            throw InvalidArgument(fmt::format("{}.{}: {} bytes: expected at most 1 GiB", name_, name, request.size()));
        }
        answers_.emplace(id, std::nullopt);
        try {
            transmit(request, deadline, lock);
            return receive(id, name, keys, timeout, deadline, lock);
        } catch (const Timeout&) {
            answers_.erase(id);
            broken_ = true;  // half a request may be on its way
            throw store::timeout_error(name, keys, name_, timeout);
        } catch (...) {
            answers_.erase(id);
            throw;
        }
    }

    // Requests are sent whole, one after the other, without the lock that readers need.
    void transmit(const std::string& request, const Deadline& deadline, std::unique_lock<std::mutex>& lock) {
        lost_if_broken();
        lock.unlock();
        const std::unique_lock writing(write_mutex_);
        try {
            net::send_all(fd_.get(), store::wire::bytes_of(request), deadline, nullptr, name_.c_str());
        } catch (const DistNetworkError&) {
            lock.lock();
            broken_ = true;
            lost_if_broken();
        }
        lock.lock();
    }

    void lost_if_broken() const {
        if (broken_) throw DistStoreError(fmt::format("{}: the server is gone (connection closed)", name_));
    }

    std::string receive(std::uint64_t id, const char* name, std::span<const std::string> keys, Milliseconds timeout,
                        const Deadline& deadline, std::unique_lock<std::mutex>& lock) {
        for (;;) {
            if (auto& answer = answers_.at(id)) {
                const std::string bytes = std::move(*answer);
                answers_.erase(id);
                if (static_cast<Status>(bytes[0]) == Status::ok) return bytes.substr(1);
                throw DistStoreError(fmt::format("{}: {}", name_, Reader(std::string_view(bytes).substr(1)).field()));
            }
            lost_if_broken();
            if (interrupt_requested()) check_wait(deadline, nullptr, name);
            if (deadline.expired()) {
                answers_.erase(id);
                Writer cancel(0, static_cast<std::uint8_t>(Operation::cancel));
                cancel.integer(static_cast<std::int64_t>(id));
                const std::string request = std::move(cancel).finish();
                transmit(request, Deadline::after(std::chrono::seconds(1)), lock);
                throw store::timeout_error(name, keys, name_, timeout);
            }
            if (reading_) {
                answered_.wait_until(lock, std::min(deadline.when(), Clock::now() + wait_slice));
                continue;
            }
            reading_ = true;
            lock.unlock();
            const bool open = read_some(deadline);
            lock.lock();
            reading_ = false;
            if (!open) broken_ = true;
            sort_answers();
            answered_.notify_all();
        }
    }

    // Reads what there is, or waits a slice for it; false when the connection is closed.
    bool read_some(const Deadline& deadline) {
        char buffer[16 << 10];
        for (int attempt = 0; attempt < 2; ++attempt) {
            const ssize_t count = ::recv(fd_.get(), buffer, sizeof buffer, 0);
            if (count > 0) {
                inbox_.append(buffer, static_cast<std::size_t>(count));
                return true;
            }
            if (count == 0 || (errno != EAGAIN && errno != EINTR)) return false;
            if (attempt == 0) {
                pollfd entry{fd_.get(), POLLIN, 0};
                ::poll(&entry, 1, deadline.poll_ms(wait_slice));
            }
        }
        return true;
    }

    void sort_answers() {
        std::size_t at = 0;
        while (inbox_.size() - at >= store::wire::head_bytes) {
            Reader reader(std::string_view(inbox_).substr(at));
            const auto length = static_cast<std::uint64_t>(reader.integer());
            const auto id = static_cast<std::uint64_t>(reader.integer());
            if (length < 9 || length > store::wire::frame_limit) {
                broken_ = true;
                return;
            }
            if (inbox_.size() - at - store::wire::length_bytes < length) break;
            // Answers that nobody waits for any more are dropped.
            if (const auto found = answers_.find(id); found != answers_.end()) {
                found->second = inbox_.substr(at + 16, length - 8);
            }
            at += store::wire::length_bytes + length;
        }
        inbox_.erase(0, at);
    }

    std::shared_ptr<store::TcpServer> server_;
    std::string name_;
    pid_t process_;
    UniqueFd fd_;
    std::mutex mutex_, write_mutex_;
    std::condition_variable answered_;
    std::uint64_t last_id_ = 0;
    std::unordered_map<std::uint64_t, std::optional<std::string>> answers_;
    std::string inbox_;  // of the thread that reads
    bool reading_ = false;
    bool broken_ = false;
};

// Servers that stores of this process share (multi_tenant), by address.
struct Tenants {
    std::mutex mutex;
    std::map<std::pair<std::string, std::uint16_t>, std::pair<std::weak_ptr<store::TcpServer>, std::string>> servers;
};
Tenants& tenants() {
    static Tenants instance;
    return instance;
}

struct Hosted {
    std::shared_ptr<store::TcpServer> server;
    std::optional<security::Secret> secret;
};

Hosted host_server(const TCPStoreOptions& options) {
    const std::lock_guard lock(tenants().mutex);
    const auto key = std::pair(options.host, options.port);
    if (options.multi_tenant) {
        auto& [existing, secret] = tenants().servers[key];
        if (auto server = existing.lock()) return {std::move(server), security::Secret::from_text(secret)};
    }
    UniqueFd listener(options.master_listen_fd);
    if (!listener) listener = net::listen_tcp(options.host, options.port);
    const std::uint16_t port = net::local_address(listener.get()).port;
    const auto choice =
        security::resolve_secret({options.host, port, true, options.secret}, Deadline::after(options.timeout));
    Hosted hosted{std::make_shared<store::TcpServer>(std::move(listener), choice.secret, choice.serve_locally),
                  choice.secret};
    if (options.multi_tenant) tenants().servers[key] = {hosted.server, choice.secret.to_text()};
    return hosted;
}

}  // namespace

TCPStore::TCPStore(TCPStoreOptions options) : host_(options.host), port_(options.port) {
    if (options.world_size && *options.world_size < 1) {
        throw InvalidArgument(fmt::format("TCPStore world_size {}: expected at least 1, or none", *options.world_size));
    }
    if (net::is_multicast(host_))
        throw InvalidArgument(fmt::format("TCPStore host {}: multicast is not supported", host_));
    if (!options.is_master && port_ == 0) throw InvalidArgument("TCPStore port 0: only the master can choose a port");
    const Deadline deadline = Deadline::after(options.timeout);
    Hosted hosted;
    if (options.is_master) {
        hosted = host_server(options);
        port_ = hosted.server->port();
    } else {
        hosted.secret = security::resolve_secret({host_, port_, false, options.secret}, deadline).secret;
    }
    const auto left = std::chrono::ceil<Milliseconds>(deadline.remaining());
    auto backend = std::make_shared<TcpBackend>(host_, port_, *hosted.secret, left, std::move(hosted.server));
    backend->add(store::coordination_key, 1, left);
    if (options.is_master && options.wait_for_workers && options.world_size) {
        backend->wait_for_users(*options.world_size, std::chrono::ceil<Milliseconds>(deadline.remaining()));
    }
    static_cast<Store&>(*this) = Store(std::move(backend), options.timeout);
}

}  // namespace tutti
