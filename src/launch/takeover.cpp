// The part of the launchers' watch over each other that lets one take over from the one that served the job's store
// (--standby).
#include "core/assert.hpp"
#include "core/log.hpp"
#include "launch/nodes.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace tutti::launch {

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
    may_leave_ = !places_ || hosts_->has_standby();
    const std::lock_guard lock(mutex_);
    servers_ = hosts_->servers();
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
