#include "simulate/machine.hpp"

#include "core/assert.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::simulate {

Machine::Machine(const Network& network, const algorithm::CostModel& model, const Conditions& conditions, int hosts,
                 int played, int ranks_per_host)
    : conditions_(conditions),
      ranks_per_host_(ranks_per_host),
      cores_of_host_(std::max(1, static_cast<int>(model.cores))),
      links_(network, hosts, played / ranks_per_host),
      flows_(links_, model.tcp_gbps),
      far_us_(network.us >= 0 ? network.us : std::max(0.0, model.tcp_us - model.tcp_send_us - model.tcp_receive_us)),
      byte_us_(1 / (model.tcp_gbps * 1e3)),
      cores_(static_cast<std::size_t>(played)),
      hosts_(static_cast<std::size_t>(played / ranks_per_host)) {
    for (const auto& slow : conditions.slow_links) {
        const double whole = network.nic_gbps > 0 ? std::min(network.nic_gbps, model.tcp_gbps) : model.tcp_gbps;
        for (const auto& [a, b] : {std::pair{slow.a, slow.b}, {slow.b, slow.a}}) {
            slow_links_[pair_key(a, b)] = flows_.add_link(whole * slow.share);
            slow_names_.push_back(fmt::format("host {} to host {}", a, b));
            slow_gbps_.push_back(whole * slow.share);
        }
    }
}

Machine::~Machine() = default;

Play& Machine::add(const Cast& cast, const algorithm::Layout& layout, const algorithm::StepCosts& costs,
                   std::uint64_t seed, bool traces) {
    TUTTI_ASSERT(static_cast<std::size_t>(cast.played) == cores_.size() && cast.ranks_per_host == ranks_per_host_);
    const auto number = static_cast<Index>(plays_.size());
    return *plays_.emplace_back(std::make_unique<Play>(*this, number, cast, layout, costs, seed, traces));
}

Links::Way Machine::way(int from, int to) const {
    const int per_host = ranks_per_host_;
    Links::Way way = links_.way(host_of(from), from % per_host, host_of(to), to % per_host);
    if (!slow_links_.empty()) {
        const auto slow = slow_links_.find(pair_key(host_of(from), host_of(to)));
        if (slow != slow_links_.end()) way.links[way.count++] = slow->second;
    }
    return way;
}

void Machine::begin_flow(const Links::Way& way, double bytes, Index play, Index lane) {
    const Index flow = flows_.begin(way, bytes, now_);
    if (owners_.size() <= flow) owners_.resize(flow + 1);
    owners_[flow] = {play, lane};
}

bool Machine::end_flow(Index flow, Index version, Index& lane) {
    if (!flows_.is_current(flow, version)) return false;
    flows_.end(flow, now_);
    lane = owners_[flow].lane;
    return true;
}

void Machine::run_core(Index rank) {
    Core& core = cores_[rank];
    if (core.busy) return;
    const auto idle = [&](Index play) { return !plays_[play]->can_run(rank); };
    if (!core.offers.empty() && idle(core.offers.front())) std::erase_if(core.offers, idle);  // ranks that have stopped
    if (core.offers.empty()) return;
    Host& host = this->host(rank);
    if (ranks_per_host_ > cores_of_host_ && host.running >= cores_of_host_) {
        if (!core.queued) host.queue.push_back(rank);
        core.queued = true;
        return;
    }
    const Index play = core.offers.front();
    core.offers.erase(core.offers.begin());
    core.busy = true;
    ++host.running;
    const double us = plays_[play]->run_step(rank);
    if (plays_[play]->can_run(rank)) core.offers.push_back(play);
    at(now_ + us, Happening::core, play, rank);
}

void Machine::core_done(Index rank, Index play) {
    Core& core = cores_[rank];
    Host& host = this->host(rank);
    core.busy = false;
    core.idle_since = now_;
    --host.running;
    plays_[play]->end_step(rank);
    if (!host.queue.empty()) {
        const Index next = host.queue.front();
        host.queue.erase(host.queue.begin());
        cores_[next].queued = false;
        run_core(next);
    }
    run_core(rank);
}

void Machine::run(bool keeps, const std::function<void()>& each) {
    while (!events_.empty() || flows_.unsettled()) {
        if (flows_.unsettled() && (events_.empty() || events_.top().us > now_)) {
            changes_.clear();
            flows_.settle(now_, changes_);
            for (const Flows::Change& change : changes_)
                at(change.end_us, Happening::passed, owners_[change.flow].play, change.flow, change.version);
            continue;
        }
        Event event = events_.top();
        events_.pop();
        TUTTI_ASSERT(event.us >= now_);
        now_ = event.us;
        constexpr std::uint64_t often = 0xfffff;
        if ((++happened_ & often) == 0) each();
        Play* const play = plays_[event.play].get();
        if (play == nullptr) continue;  // it is over: nobody looks at what was seen
        if (event.what == Happening::core) {
            core_done(event.of, event.play);
        } else if (event.what != Happening::passed || end_flow(event.of, event.version, event.of)) {
            play->happen(event);
        }
        if (!keeps && play->over()) plays_[event.play].reset();
    }
}

void Machine::describe_links(Played& played) const {
    played.links = flows_.uses();
    for (int link = 0; link < links_.count(); ++link) {
        played.names.push_back(links_.name_of(link));
        played.capacity_gbps.push_back(links_.gbps(link));
    }
    played.names.insert(played.names.end(), slow_names_.begin(), slow_names_.end());
    played.capacity_gbps.insert(played.capacity_gbps.end(), slow_gbps_.begin(), slow_gbps_.end());
}

}  // namespace tutti::simulate
