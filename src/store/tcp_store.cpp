// TCPStore: which process hosts the server, which connect, and the store's operations as requests.
//
// Threads: any; see TcpClient. Servers that stores of this process share (multi_tenant) are listed under one mutex.
#include "core/assert.hpp"
#include "core/deadline.hpp"
#include "core/descriptors.hpp"
#include "core/env.hpp"
#include "core/log.hpp"
#include "core/names.hpp"
#include "core/patience.hpp"
#include "core/socket.hpp"
#include "security/local_secret.hpp"
#include "store/failover_client.hpp"
#include "store/local_door.hpp"
#include "store/messages.hpp"
#include "store/tcp_client.hpp"
#include "store/tcp_server.hpp"
#include "store/wire.hpp"

#include <tutti/error.hpp>
#include <tutti/store.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace tutti {
namespace {

using store::Op;

constexpr const char* every_address = "0.0.0.0";

bool is_every_address(const std::string& host) {
    return host == every_address || host == "::";
}

class TcpBackend : public StoreBackend {
 public:
    TcpBackend(const net::Address& address, const security::Secret& secret, const Deadline& deadline,
               std::shared_ptr<store::TcpServer> server, net::Refusal refusal = net::Refusal::not_yet)
        : address_(address),
          name_(fmt::format("TCPStore({})", net::to_string(address))),
          server_(std::move(server)),
          client_(address, secret, name_, deadline, abort_flag(), refusal) {}

    void set(std::string_view key, std::string_view value, Milliseconds timeout) override {
        // While the server is known to be well this only sends a small value: later requests on this connection come
        // after it.
        const Instant start = Clock::now();
        const std::array<std::string_view, 2> fields{key, value};
        try {
            if (!failover_ && client_.try_post(Op::post, fields, timeout, abort_flag())) return;
        } catch (const Timeout&) {
            const std::string name(key);
            store::throw_timeout(name_, "set", {&name, 1}, start, timeout);
        }
        call(Op::set, "set", {key, value}, timeout, key);
    }
    std::string get(std::string_view key, Milliseconds timeout) override {
        return field(call(Op::get, "get", {key}, timeout, key));
    }
    std::int64_t add(std::string_view key, std::int64_t amount, Milliseconds timeout) override {
        const auto raw = store::encode_number(static_cast<std::uint64_t>(amount));
        return number(call(Op::add, "add", {key, {raw.data(), raw.size()}}, timeout, key));
    }
    void append(std::string_view key, std::string_view value, Milliseconds timeout) override {
        call(Op::append, "append", {key, value}, timeout, key);
    }
    bool check(std::span<const std::string> keys, Milliseconds timeout) override {
        return number(call(Op::check, "check", views(keys), timeout, keys)) != 0;
    }
    std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                            Milliseconds timeout) override {
        return field(call(Op::compare_set, "compare_set", {key, expected, desired}, timeout, key));
    }
    bool delete_key(std::string_view key, Milliseconds timeout) override {
        return number(call(Op::delete_key, "delete_key", {key}, timeout, key)) != 0;
    }
    std::int64_t num_keys(Milliseconds timeout) override {
        return number(call(Op::num_keys, "num_keys", std::vector<std::string_view>{}, timeout, {}));
    }
    void wait(std::span<const std::string> keys, Milliseconds timeout) override {
        call(Op::wait, "wait", views(keys), timeout, keys);
    }
    std::vector<std::string> multi_get(std::span<const std::string> keys, Milliseconds timeout) override {
        const std::string body = call(Op::get, "multi_get", views(keys), timeout, keys);
        const auto fields = store::split_fields(body);
        if (!fields || fields->size() != keys.size()) throw_nonsense();
        return {fields->begin(), fields->end()};
    }
    void multi_set(std::span<const std::string> keys, std::span<const std::string> values,
                   Milliseconds timeout) override {
        TUTTI_ASSERT(keys.size() == values.size());
        std::vector<std::string_view> fields;
        fields.reserve(2 * keys.size());
        for (std::size_t i = 0; i < keys.size(); ++i) {
            fields.push_back(keys[i]);
            fields.push_back(values[i]);
        }
        call(Op::multi_set, "multi_set", fields, timeout, keys);
    }
    std::string describe() const override { return name_; }
    std::string local_host() const override { return local_host_; }
    std::chrono::microseconds round_trip() const override { return round_trip_; }
    bool set_will(std::string_view key, std::string_view value, Milliseconds timeout) override {
        call(Op::set_will, "set_will", {key, value}, timeout, key);
        return true;
    }

    /// Other threads use the store only afterwards. `standby`: as FailoverClient.
    void join(const security::Secret& secret, Milliseconds timeout,
              const std::optional<net::Address>& standby = std::nullopt) {
        const std::string body = call(Op::join, "join", std::vector<std::string_view>{}, timeout, {});
        const auto fields = store::split_fields(body);
        if (!fields || fields->size() < 3 || fields->size() > 4) throw_nonsense();
        const std::string listens((*fields)[1]), door((*fields)[2]);
        TUTTI_ASSERT(local_host_.empty());
        const bool open = is_every_address(listens) && net::is_loopback(client_.local_host());
        local_host_ = open ? every_address : client_.local_host();
        round_trip_ = net::round_trip(client_.raw().fd).value_or(round_trip_);
        if (fields->size() == 4) {  // the server may have a standby
            const auto id = store::decode_number((*fields)[3]);
            if (!id) throw_nonsense();
            failover_.emplace(client_, *id, address_, secret, name_, standby);
            return;
        }
        client_.loses("; the keys, counters and wills that it held are lost with it, as the store has no standby");
        if (door.empty() || !store::local_doors_wanted()) return;
        client_.move_to(door, secret);
    }

    bool may_have_standby() const noexcept { return failover_.has_value(); }
    /// Where this process reaches the server.
    std::string own_host() const { return client_.local_host(); }
    /// Keeps a standby of the server as long as this object.
    void keep(std::shared_ptr<store::TcpServer> standby) { server_ = std::move(standby); }

    void await_workers(int world_size, const Deadline& deadline) {
        const Instant start = Clock::now();
        TUTTI_ASSERT(world_size >= 1);
        const Patience patience([&] { return fmt::format("{} users of {}", world_size, name_); });
        const auto raw = store::encode_number(static_cast<std::uint64_t>(world_size));
        const std::string_view count(raw.data(), raw.size());
        try {
            request(Op::await_workers, {&count, 1}, deadline);
        } catch (const Timeout&) {
            const auto present = number(request(Op::count_workers, {}, Deadline::after(wait_slice)));
            throw DistStoreError(fmt::format("{}: {} of {} users have connected within {}", name_, present, world_size,
                                             store::show_duration(Clock::now() - start)),
                                 {.operation = "TCPStore", .hint = "did every process start, with the same address?"},
                                 ErrorCode::timeout);
        }
    }

 private:
    static std::vector<std::string_view> views(std::span<const std::string> keys) { return {keys.begin(), keys.end()}; }

    std::string request(Op op, std::span<const std::string_view> fields, const Deadline& deadline) {
        if (failover_) [[unlikely]]
            return failover_->call(op, fields, deadline, abort_flag());
        return client_.call(op, fields, deadline, abort_flag());
    }
    std::string call(Op op, const char* operation, std::initializer_list<std::string_view> fields, Milliseconds timeout,
                     std::string_view key) {
        const Instant start = Clock::now();
        const Patience patience([&] {
            const std::string name(key);
            return store::what_is_awaited(name_, operation, {&name, 1});
        });
        try {
            return request(op, {fields.begin(), fields.size()}, Deadline::after(timeout, start));
        } catch (const Timeout&) {
            const std::string name(key);
            store::throw_timeout(name_, operation, {&name, 1}, start, timeout);
        }
    }
    std::string call(Op op, const char* operation, const std::vector<std::string_view>& fields, Milliseconds timeout,
                     std::span<const std::string> keys) {
        const Instant start = Clock::now();
        const Patience patience([&] { return store::what_is_awaited(name_, operation, keys); });
        try {
            return request(op, fields, Deadline::after(timeout, start));
        } catch (const Timeout&) {
            store::throw_timeout(name_, operation, keys, start, timeout);
        }
    }

    std::string field(std::string body) const {
        const auto fields = store::split_fields(body);
        if (!fields || fields->size() != 1) throw_nonsense();
        body.erase(0, store::field_header_bytes);
        return body;
    }
    std::int64_t number(const std::string& body) const {
        const auto fields = store::split_fields(body);
        const auto value = fields && fields->size() == 1 ? store::decode_number(fields->front()) : std::nullopt;
        if (!value) throw_nonsense();
        return static_cast<std::int64_t>(*value);
    }
    [[noreturn]] void throw_nonsense() const {
        throw DistStoreError(fmt::format("{}: the server's answer makes no sense", name_));
    }

    const net::Address address_;
    std::string name_;
    std::string local_host_;
    std::chrono::microseconds round_trip_{};
    std::shared_ptr<store::TcpServer> server_;  // outlives the client's connection to it
    store::TcpClient client_;
    std::optional<store::FailoverClient> failover_;
};

using ServerMap = std::map<std::pair<std::string, std::uint16_t>, std::weak_ptr<store::TcpServer>>;

struct Tenants {
    std::mutex mutex;
    ServerMap servers;
};

Tenants& tenants() {
    static Tenants& instance = *new Tenants;  // stores may outlive static objects
    return instance;
}

/// The meaning of `host` on the master is no matter to processes that know the secret: its own name may be a loopback
/// address there (Debian), others may come by another name or by a forwarding address. So the server listens
/// everywhere.
std::string address_for_all(const std::string& host) {
    if (host.empty()) return {};
    const net::Answer answer = net::ask_for(host);
    if (answer.is_final) throw DistNetworkError(fmt::format("TCPStore: {}", answer.cause), {.operation = "listen"});
    if (!answer.is_known()) {
        TUTTI_INFO("TCPStore: the master does not know the address of {} (yet), and does not need it: {}", host,
                   answer.cause);
    } else if (!net::is_of_this_host(host)) {
        TUTTI_WARN(
            "TCPStore: the master listens on every address of this host, but {} is none of them; the others reach it "
            "only if that address leads here",
            host);
    }
    return {};
}

std::shared_ptr<store::TcpServer> make_server(const TCPStoreOptions& options, const Deadline& deadline) {
    UniqueFd listener(options.master_listen_fd);
    const auto job = security::resolve_secret(
        {.host = options.host, .port = options.port, .is_master = true, .explicit_secret = options.secret}, deadline);
    if (!listener)
        listener = net::listen_tcp(job.is_given ? address_for_all(options.host) : options.host, options.port, deadline);
    return std::make_shared<store::TcpServer>(
        std::move(listener), job.secret, job.serve_locally,
        options.with_standby ? store::ServerKind::with_standby : store::ServerKind::plain);
}

/// It listens where its process reaches the primary; where all know the secret, on every address.
std::shared_ptr<store::TcpServer> make_standby(const TCPStoreOptions& options, const security::JobSecret& job,
                                               const TcpBackend& client, const Deadline& deadline) {
    if (!client.may_have_standby()) {
        throw DistStoreError(
            fmt::format("{}: is_standby: the server was made without with_standby, and takes no standby",
                        client.describe()),
            {.operation = "TCPStore"});
    }
    UniqueFd listener = net::listen_tcp(job.is_given ? std::string() : client.own_host(), 0);
    return std::make_shared<store::TcpServer>(std::move(listener), job.secret, !job.is_given,
                                              net::Address{options.host, options.port}, deadline, nullptr);
}

std::shared_ptr<store::TcpServer> host_server(const TCPStoreOptions& options, const Deadline& deadline) {
    if (!options.multi_tenant) return make_server(options, deadline);
    const std::lock_guard lock(tenants().mutex);
    auto& servers = tenants().servers;
    std::erase_if(servers, [](const auto& entry) { return entry.second.expired(); });
    for (const auto& [place, shared] : servers) {
        auto server = place.second == options.port ? shared.lock() : nullptr;
        if (!server || (place.first != options.host && !is_every_address(server->address().host))) continue;
        // A socket that was handed over is the store's: it is not needed.
        const UniqueFd unused(options.master_listen_fd);
        return server;
    }
    auto server = make_server(options, deadline);
    servers[{options.host, server->port()}] = server;
    TUTTI_ASSERT(server->port() != 0);
    return server;
}

void check_options(const TCPStoreOptions& options) {
    if (options.world_size && *options.world_size < 1) {
        throw InvalidArgument(fmt::format("TCPStore: world_size {}: expected at least 1, or none for no fixed number",
                                          *options.world_size));
    }
    if (net::is_multicast(options.host)) {
        throw InvalidArgument(fmt::format("TCPStore: host {}: a multicast address is not supported", options.host));
    }
    if (!options.is_master && options.port == 0) {
        throw InvalidArgument("TCPStore: port 0: only the master can choose a port");
    }
    if (!options.is_master && options.master_listen_fd >= 0) {
        throw InvalidArgument("TCPStore: master_listen_fd is for the master only");
    }
    if (options.is_standby && (options.is_master || options.with_standby)) {
        throw InvalidArgument(
            fmt::format("TCPStore: is_standby with {}: expected is_standby alone, in a process that is not the master",
                        options.is_master ? "is_master" : "with_standby"));
    }
    if (options.with_standby && (!options.is_master || options.multi_tenant)) {
        throw InvalidArgument(options.is_master ? "TCPStore: with_standby and multi_tenant: expected one of them"
                                                : "TCPStore: with_standby: expected at the master only (is_master)");
    }
    if (options.timeout < Milliseconds::zero()) {
        throw InvalidArgument(fmt::format("TCPStore: timeout of {} ms: expected 0 or more", options.timeout.count()));
    }
}

/// The time limit is the server's: it begins when the name is known.
Deadline after_name(const std::string& host, const Deadline& deadline) {
    const Patience patience([&] { return fmt::format("the address of {}: {}", host, net::why_unknown(host)); });
    return net::after_name(host, deadline);
}

/// Where `tutti run` keeps a standby of the store that it serves at this place, as it told this process.
std::optional<net::Address> standby_of_launcher(const TCPStoreOptions& options) {
    const auto standby = env::get("TUTTI_STORE_STANDBY");
    if (!standby || options.is_master || options.is_standby) return std::nullopt;
    if (env::get("MASTER_ADDR") != options.host || env::get("TUTTI_STORE_PORT") != std::to_string(options.port))
        return std::nullopt;
    auto address = net::to_address(*standby);
    if (!address)
        throw InvalidArgument(
            fmt::format("TUTTI_STORE_STANDBY={}: expected HOST:PORT or [IPv6 address]:PORT", *standby));
    return address;
}

/// Joins at that one of the two which serves: the standby may have taken over since this process was told of them.
std::shared_ptr<TcpBackend> join_one_of(const net::Address& primary, const net::Address& standby,
                                        const security::Secret& secret, const Deadline& deadline) {
    constexpr Milliseconds try_time{1500}, pause{50};
    for (bool first = true;; first = !first) {
        const Deadline limit = Deadline::after(std::min<Clock::duration>(try_time, deadline.remaining()));
        try {
            auto backend = std::make_shared<TcpBackend>(first ? primary : standby, secret, limit, nullptr,
                                                        net::Refusal::no_longer);
            backend->join(secret, std::chrono::ceil<Milliseconds>(limit.remaining()),
                          first ? std::optional(standby) : std::nullopt);
            return backend;
        } catch (const DistError& error) {
            const bool elsewhere = error.code() == ErrorCode::network || error.code() == ErrorCode::timeout ||
                                   error.code() == ErrorCode::store;
            if (!elsewhere || deadline.expired()) throw;
        }
        check_wait(deadline, nullptr, "connecting to a TCPStore");
        std::this_thread::sleep_for(pause);
    }
}

/// Where the master's own client finds its server.
std::string reachable(const std::string& listens, const std::string& host) {
    TUTTI_ASSERT(!listens.empty());
    if (is_every_address(listens)) return "127.0.0.1";
    return host.empty() ? listens : host;
}

}  // namespace

TCPStore::TCPStore(TCPStoreOptions options) : host_(options.host), port_(options.port) {
    check_options(options);
    descriptors::raise();
    Deadline deadline = Deadline::after(options.timeout);
    std::shared_ptr<store::TcpServer> server;
    std::optional<security::Secret> secret;
    std::optional<security::JobSecret> job;
    const auto other = standby_of_launcher(options);
    if (options.is_master) {
        server = host_server(options, deadline);
        port_ = server->port();
        secret = server->secret();
    } else {
        if (!other) deadline = after_name(host_, deadline);
        job = security::resolve_secret(
            {.host = host_, .port = port_, .is_master = false, .explicit_secret = options.secret}, deadline);
        secret = job->secret;
    }
    const std::string host = options.is_master ? reachable(server->address().host, host_) : host_;
    std::shared_ptr<TcpBackend> backend;
    if (other) {
        backend = join_one_of({host, port_}, *other, *secret, deadline);
    } else {
        backend = std::make_shared<TcpBackend>(net::Address{host, port_}, *secret, deadline, std::move(server));
        backend->join(*secret, std::chrono::ceil<Milliseconds>(deadline.remaining()));
    }
    if (options.is_standby) {
        auto standby = make_standby(options, *job, *backend, deadline);
        standby_port_ = standby->port();
        backend->keep(std::move(standby));
    }
    if (options.is_master && options.wait_for_workers && options.world_size) {
        backend->await_workers(*options.world_size, deadline);
    }
    static_cast<Store&>(*this) = Store(std::move(backend), options.timeout);
}

}  // namespace tutti
