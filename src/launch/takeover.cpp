// The part of the launchers' watch over each other that lets one take over from the one that served the job's store
// (--standby).
#include "core/assert.hpp"
#include "core/log.hpp"
#include "launch/nodes.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <chrono>

namespace tutti::launch {
namespace {

using namespace std::chrono_literals;

// In the store that a launcher serves which was started as node 0 when the job was running without it: where the job
// is.
constexpr const char* elsewhere_key = "launch/elsewhere";
constexpr std::chrono::milliseconds between_calls = 3s, call_time = 300ms;

}  // namespace

StoreHosts::Servers Nodes::servers() {
    const std::lock_guard lock(mutex_);
    return servers_.value_or(StoreHosts::Servers{.primary = {options_.master_addr, options_.master_port}});
}

void Nodes::look_at_servers(Store& store) {
    if (!hosts_) {
        std::string host = store.backend()->local_host();
        if (host.empty() || host == "0.0.0.0") host = options_.master_addr;  // the server is on this host
        hosts_.emplace(
            StoreHosts::Options{
                .id = id_, .host = host, .server = {options_.master_addr, options_.master_port}, .secret = secret_},
            options_.server, leaving_);
        if (places_) hosts_->publish(store);
    }
    hosts_->look(store);
    if (places_ && !hosts_->serves())
        throw DistStoreError("another node's launcher serves the job's store now, as nothing was heard of this one");
    if (!places_ && hosts_->serves()) take_over(store);
    if (places_) hosts_->keep_standby(store, places_->others());
    if (places_ && options_.server == nullptr) call_node_0();
    may_leave_ = !places_ || hosts_->has_standby();
    const std::lock_guard lock(mutex_);
    servers_ = hosts_->servers();
}

// After a takeover. A launcher that is started as node 0 again, as by a platform that restarts it, would begin another
// job: it serves a store where node 0 did, and hears there where the job is. So do those that come to it.
void Nodes::call_node_0() {
    TUTTI_ASSERT(places_ && hosts_ && options_.server == nullptr);
    const auto now = std::chrono::steady_clock::now();
    if (now < next_call_) return;
    next_call_ = now + between_calls;
    try {
        TCPStore store({.host = options_.master_addr,
                        .port = options_.master_port,
                        .timeout = call_time,
                        .secret = secret_of_node_0(call_time)});
        store.set(elsewhere_key, net::to_string(hosts_->servers().primary));
    } catch (const DistError&) {  // NOLINT(bugprone-empty-catch): nobody has been started there
    }
}

// Whether the store is that of a launcher which the job's launchers have told so.
bool Nodes::is_elsewhere(Store& store) {
    if (met_ || !store.check({elsewhere_key})) return false;
    const auto address = net::to_address(store.get(elsewhere_key));
    if (!address) return false;
    TUTTI_WARN("tutti run: the job runs already, and its store is at {}: this launcher joins it there",
               net::to_string(*address));
    const std::lock_guard lock(mutex_);
    elsewhere_ = *address;
    ::eventfd_write(wake_.get(), 1);
    return true;
}

std::optional<net::Address> Nodes::elsewhere() {
    const std::lock_guard lock(mutex_);
    return elsewhere_;
}

// The standby on this node serves the store now: this launcher goes on from what is there.
void Nodes::take_over(Store& store) {
    TUTTI_ASSERT(hosts_ && !places_);
    std::string text;
    Inheritance from{.id = id_, .lost_id = hosts_->servers().id};
    for (int attempt = 0; store.check({attempt_key(attempt, "roster")}); ++attempt) {
        const std::string roster = store.get(attempt_key(attempt, "roster"));
        if (roster.empty()) break;  // that attempt did not begin
        text = roster;
        from.running.reset();
        if (!store.check({attempt_key(attempt, "end")})) from.running = attempt;
    }
    if (text.empty()) {
        hosts_.reset();
        throw DistStoreError("the launcher of node 0 was lost before the job had begun");
    }
    from.roster = NodesRoster::from_text(text);
    const int ranks_port = ranks_port_.emplace(std::uint16_t{0}).number();
    places_.emplace(store, from, ranks_port);
    hosts_->publish(store);
    enough_at_ = std::chrono::steady_clock::now();
    TUTTI_WARN(
        "tutti run: the launcher that served the job's store is lost; this node, {}, serves it now, at {}, where "
        "launchers that come may --join",
        node_.load(), net::to_string(hosts_->servers().primary));
}

}  // namespace tutti::launch
