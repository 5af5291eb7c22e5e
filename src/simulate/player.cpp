#include "simulate/player.hpp"

#include "algorithm/scale.hpp"
#include "core/assert.hpp"
#include "transport/mailbox.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>
#include <unordered_map>

namespace tutti::simulate {
namespace {

using schedule::StepKind;
using Index = std::uint32_t;
static_assert(algorithm::longest_eager_bytes == transport::Mailbox::eager_bytes);
constexpr Index none = std::numeric_limits<Index>::max();

enum class Happening : std::uint8_t {
    start,    // a rank begins
    core,     // a rank's core is done with a step
    leaves,   // a message has been handed to the network, or announced
    passed,   // a flow has passed the links
    arrives,  // a message is there
    granted,  // the receiver of an announced message waits for it
    seen,     // what a rank has published can be seen
    stop,     // a rank hears of a death, or dies
};

struct Event {
    double us = 0;
    std::uint64_t number = 0;  // in the order in which they were found: equal times have an order
    Happening what = Happening::start;
    Index of = 0;         // rank, lane or flow
    Index version = 0;    // of a flow
    double first_us = 0;  // arrives: when its first byte came
    bool operator>(const Event& other) const { return us != other.us ? us > other.us : number > other.number; }
};

// The messages from one rank to another: they keep their order.
struct Lane {
    Index from = 0, to = 0;          // played ranks
    Index sender = 0, receiver = 0;  // Program::to of the one, Program::from of the other
    Index left = 0, asked = 0, granted = 0, passed = 0, arrived = 0, posted = 0, taken = 0;  // how many
    double first_us = 0, posted_us = 0;
    double flow_began_us = 0;
    bool flowing = false, near = false;
    float way_us = 0;
    Rank peer = 0;  // the receiver as the sender knows it
};

struct Actor {
    const Program* program = nullptr;
    std::size_t first_op = 0, first_to = 0, first_from = 0;  // in the player's lists
    std::vector<Index> ready;                                // a heap: the first op on top
    double idle_since = 0;
    Index running = none, last = none, left = 0;
    Index waits_to_share = none;
    std::int64_t published = -1, seen = -1;
    Index released = 0;
    bool busy = false, queued = false, stopped = false, met = false;
};

struct Host {
    int running = 0;
    std::vector<Index> queue;  // of ranks that wait for a core
};

std::uint64_t mixed(std::uint64_t x) {  // splitmix64
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

class Stage {
 public:
    Stage(const Cast& cast, const algorithm::Layout& layout, const algorithm::CostModel& model,
          const algorithm::StepCosts& costs, const Network& network, const Conditions& conditions,
          const Progress& progress)
        : cast_(cast),
          layout_(layout),
          costs_(costs),
          conditions_(conditions),
          progress_(progress),
          links_(network, cast.hosts, cast.played / cast.ranks_per_host),
          flows_(links_, model.tcp_gbps),
          far_us_(network.us >= 0 ? network.us : costs.message(0, false).latency_us),
          byte_us_(1 / (model.tcp_gbps * 1e3)),
          cores_(std::max(1, static_cast<int>(model.cores))),
          full_((std::int64_t{cast.ranks} + cast.played - 1) / cast.played * cast.played) {
        TUTTI_ASSERT(cast.whole() || conditions.usual());
        TUTTI_ASSERT(cast.played % cast.ranks_per_host == 0);
        for (const auto& slow : conditions.slow_links) {
            const double whole = network.nic_gbps > 0 ? std::min(network.nic_gbps, model.tcp_gbps) : model.tcp_gbps;
            for (const auto& [a, b] : {std::pair{slow.a, slow.b}, {slow.b, slow.a}}) {
                slow_links_[key(a, b)] = flows_.add_link(whole * slow.share);
                slow_names_.push_back(fmt::format("host {} to host {}", a, b));
                slow_gbps_.push_back(whole * slow.share);
            }
        }
        enter();
    }

    Played run() {
        std::vector<double> begins = conditions_.begins_us;
        if (begins.empty()) begins.resize(actors_.size(), 0);
        TUTTI_ASSERT(begins.size() == actors_.size());
        for (const auto& [rank, us] : conditions_.delays_us) begins[static_cast<std::size_t>(rank)] = us;
        for (Index rank = 0; rank < actors_.size(); ++rank) at(begins[rank], Happening::start, rank);
        for (Index rank = 0; rank < conditions_.told_us.size(); ++rank)
            if (conditions_.told_us[rank] < never) at(conditions_.told_us[rank], Happening::stop, rank);
        while (!events_.empty() || flows_.unsettled()) {
            if (flows_.unsettled() && (events_.empty() || events_.top().us > now_)) {
                changes_.clear();
                flows_.settle(now_, changes_);
                for (const Flows::Change& change : changes_)
                    at(change.end_us, Happening::passed, change.flow, change.version);
                continue;
            }
            const Event event = events_.top();
            events_.pop();
            TUTTI_ASSERT(event.us >= now_);
            now_ = event.us;
            if ((++played_.events & 0xfffff) == 0 && progress_)
                progress_({.share = static_cast<double>(done_) / static_cast<double>(cast_.steps), .us = now_});
            happen(event);
        }
        return finish();
    }

 private:
    bool near(Index rank, int peer) const {
        return layout_.shared_memory && host_of(static_cast<int>(rank)) == host_of(peer);
    }
    static std::uint64_t key(int a, int b) {
        return static_cast<std::uint64_t>(static_cast<Index>(a)) << 32 | static_cast<Index>(b);
    }
    int host_of(int rank) const { return rank / cast_.ranks_per_host; }
    // The played rank that stands for a rank.
    Index stand_in(int rank) const { return static_cast<Index>(rank % cast_.played); }
    // The rank at a distance, of a receive's sender or anything's peer. Behind a last switch that is not full the ranks
    // go on to its end, so that each played rank has one neighbour at each distance.
    int peer_of(Index rank, int distance, bool receives = false) const {
        const bool back =
            receives ? 2 * std::int64_t{distance} >= cast_.ranks : 2 * std::int64_t{distance} > cast_.ranks;
        return static_cast<int>((std::int64_t{rank} + distance - (back ? cast_.ranks : 0) + full_) % full_);
    }
    const Op& op_of(Index rank, Index op) const { return actors_[rank].program->ops[op]; }

    void at(double us, Happening what, Index of, Index version = 0, double first_us = 0) {
        events_.push({us, ++numbers_, what, of, version, first_us});
    }

    // Ranks, their ops, and the lanes between them.
    void enter() {
        actors_.resize(static_cast<std::size_t>(cast_.played));
        played_.finish_us.assign(actors_.size(), never);
        hosts_.resize(static_cast<std::size_t>(cast_.played / cast_.ranks_per_host));
        watchers_.resize(actors_.size());
        std::size_t ops = 0, to = 0, from = 0;
        for (Index rank = 0; rank < actors_.size(); ++rank) {
            Actor& actor = actors_[rank];
            actor.program = &cast_.program(static_cast<int>(rank));
            actor.first_op = ops;
            actor.first_to = to;
            actor.first_from = from;
            actor.left = static_cast<Index>(actor.program->ops.size());
            ops += actor.program->ops.size();
            to += actor.program->to.size();
            from += actor.program->from.size();
        }
        waits_.resize(ops);
        lanes_.resize(to);
        lane_from_.resize(from, none);
        if (ops <= path_steps_max) moments_.resize(ops);
        std::unordered_map<std::uint64_t, Index> lane_of;  // by sender, and distance of the receiver
        lane_of.reserve(to);
        for (Index rank = 0; rank < actors_.size(); ++rank) {
            const Actor& actor = actors_[rank];
            for (std::size_t i = 0; i < actor.program->ops.size(); ++i)
                waits_[actor.first_op + i] = actor.program->ops[i].waits;
            for (Index i = 0; i < actor.program->to.size(); ++i) {
                const int distance = actor.program->to[i].distance;
                Lane& lane = lanes_[actor.first_to + i];
                lane.from = rank;
                lane.sender = i;
                lane.peer = peer_of(rank, distance);
                lane.to = stand_in(lane.peer);
                lane.near = near(rank, lane.peer);
                if (!lane.near && host_of(static_cast<int>(rank)) != host_of(lane.peer))
                    lane.way_us = static_cast<float>(way(lane).us);
                lane_of[key(static_cast<int>(rank), distance)] = static_cast<Index>(actor.first_to) + i;
            }
        }
        for (Index rank = 0; rank < actors_.size(); ++rank) {
            const Actor& actor = actors_[rank];
            for (Index i = 0; i < actor.program->from.size(); ++i) {
                const int distance = actor.program->from[i].distance;
                const auto found = lane_of.find(key(static_cast<int>(stand_in(peer_of(rank, distance, true))),
                                                    (cast_.ranks - distance) % cast_.ranks));
                TUTTI_ASSERT(found != lane_of.end());  // each receive has a send
                lanes_[found->second].receiver = i;
                lane_from_[actor.first_from + i] = found->second;
            }
        }
    }

    Links::Way way(const Lane& lane) const {
        const int from = static_cast<int>(lane.from), per_host = cast_.ranks_per_host;
        if (host_of(from) == host_of(lane.peer)) return {};
        Links::Way result = links_.way(host_of(from), from % per_host, host_of(lane.peer), lane.peer % per_host);
        if (!slow_links_.empty()) {
            const auto slow = slow_links_.find(key(host_of(from), host_of(lane.peer)));
            if (slow != slow_links_.end()) result.links[result.count++] = slow->second;
        }
        return result;
    }

    void happen(const Event& event) {
        switch (event.what) {
            case Happening::start: return start(event.of);
            case Happening::core: return core_done(event.of);
            case Happening::leaves: ++lanes_[event.of].left; return flow(event.of);
            case Happening::granted: lanes_[event.of].granted = lanes_[event.of].asked; return flow(event.of);
            case Happening::passed: return passed(event.of, event.version);
            case Happening::arrives: return arrives(event.of, event.first_us);
            case Happening::seen:
                actors_[event.of].seen = std::max(actors_[event.of].seen, std::int64_t{event.version});
                return wake_watchers(event.of);
            case Happening::stop: actors_[event.of].stopped = actors_[event.of].left > 0; return;
        }
    }

    void start(Index rank) {
        Actor& actor = actors_[rank];
        actor.idle_since = now_;
        if (actor.left == 0) {
            actor.last = none;
            played_.finish_us[rank] = now_;
        }
        // Ops that wait for nothing can run, in the order of the program.
        for (Index op = 0; op < actor.program->ops.size(); ++op) {
            if (actor.program->ops[op].waits == 0) enable(rank, op);
        }
        run_core(rank);
    }

    // All ops that this one waits for are done.
    void enable(Index rank, Index op) {
        const Op& what = op_of(rank, op);
        if (schedule::receives(what.kind)) {
            Lane& lane = lane_into(rank, what);
            if (lane.posted == lane.taken) lane.posted_us = now_;
            ++lane.posted;
            grant(lane);
            if (lane.arrived >= lane.posted) make_ready(rank, op);
        } else if (schedule::is_shared(what.kind)) {
            actors_[rank].waits_to_share = op;
            try_to_share(rank);
        } else {
            make_ready(rank, op);
        }
    }

    Lane& lane_into(Index rank, const Op& op) { return lanes_[lane_from_[actors_[rank].first_from + op.peer]]; }
    Index lane_out(Index rank, const Op& op) const { return static_cast<Index>(actors_[rank].first_to) + op.peer; }
    const Op& send_of(const Lane& lane, Index number) const {
        const Program& program = *actors_[lane.from].program;
        return program.ops[program.to[lane.sender].ops[number]];
    }
    static bool announced(const Op& send, bool near) {
        return !near && send.bytes > static_cast<double>(transport::Mailbox::eager_bytes);
    }

    void make_ready(Index rank, Index op) {
        Actor& actor = actors_[rank];
        actor.ready.push_back(op);
        std::ranges::push_heap(actor.ready, std::greater{});
        if (!moments_.empty()) {
            Moment& moment = moments_[actor.first_op + op];
            moment.ready_us = now_;
            moment.rank = static_cast<Rank>(cause_rank_ == none ? rank : cause_rank_);
            moment.op = cause_op_;
        }
    }

    // Begins the first step that can run, if the rank has a core.
    void run_core(Index rank) {
        Actor& actor = actors_[rank];
        if (actor.busy || actor.stopped || actor.ready.empty()) return;
        Host& host = hosts_[static_cast<std::size_t>(host_of(static_cast<int>(rank)))];
        if (cast_.ranks_per_host > cores_ && host.running >= cores_) {
            if (!actor.queued) host.queue.push_back(rank);
            actor.queued = true;
            return;
        }
        std::ranges::pop_heap(actor.ready, std::greater{});
        const Index op = actor.ready.back();
        actor.ready.pop_back();
        actor.running = op;
        actor.busy = true;
        ++host.running;
        const double us = work_us(rank, op);
        if (!moments_.empty()) {
            Moment& moment = moments_[actor.first_op + op];
            moment.begin_us = now_;
            moment.end_us = now_ + us;
            if (moment.ready_us < now_ && actor.last != none) {  // it was the core that it waited for
                moment.rank = static_cast<Rank>(rank);
                moment.op = actor.last;
            }
        }
        at(now_ + us, Happening::core, rank);
    }

    double varied(double us, Index rank, Index op) const {
        return simulate::varied(us, conditions_.jitter, conditions_.seed, rank, op);
    }

    // How long the step keeps the core; a send sets its message off.
    double work_us(Index rank, Index op) {
        const Op& what = op_of(rank, op);
        if (what.kind == StepKind::send) {
            const Index index = lane_out(rank, what);
            const Lane& lane = lanes_[index];
            const auto message = costs_.message(what.bytes, lane.near);
            const double send_us = varied(message.send_us, rank, op);
            if (lane.near) return send_us + (message.pulled ? 0 : varied(message.send_bytes_us, rank, op));
            at(now_ + send_us, Happening::leaves, index);
            return send_us + what.bytes * byte_us_;
        }
        if (!schedule::receives(what.kind)) return varied(what.work_us, rank, op);
        const Lane& lane = lane_into(rank, what);
        const auto message = costs_.message(what.bytes, lane.near);
        // What it has copied while the bytes arrived, and it had nothing else to do.
        const double idle = now_ - std::max({actors_[rank].idle_since, lane.first_us, lane.posted_us});
        const bool beside = costs_.rates().crowd <= 1 && !message.pulled;
        const double rest = message.receive_bytes_us - (beside ? std::clamp(idle, 0.0, message.receive_bytes_us) : 0);
        return varied(message.receive_us + rest + what.work_us, rank, op);
    }

    void core_done(Index rank) {
        Actor& actor = actors_[rank];
        Host& host = hosts_[static_cast<std::size_t>(host_of(static_cast<int>(rank)))];
        actor.busy = false;
        actor.idle_since = now_;
        --host.running;
        const Index op = actor.running;
        actor.last = op;
        if (!actor.stopped) effect(rank, op);
        if (host.queue.empty()) return run_core(rank);
        const Index next = host.queue.front();
        host.queue.erase(host.queue.begin());
        actors_[next].queued = false;
        run_core(next);
        run_core(rank);
    }

    void effect(Index rank, Index op) {
        const Op& what = op_of(rank, op);
        cause_rank_ = rank;
        cause_op_ = op;
        if (what.kind == StepKind::send) {
            Lane& lane = lanes_[lane_out(rank, what)];
            ++played_.messages;
            played_.bytes += what.bytes;
            if (lane.near) {
                const auto message = costs_.message(what.bytes, true);
                ++lane.left;
                at(now_ + message.latency_us, Happening::arrives, lane_out(rank, what), 0,
                   now_ - message.send_bytes_us);
                if (message.pulled) return;  // done when the receiver has read it
            } else if (announced(what, false)) {
                return;  // done when it has passed
            }
        } else if (schedule::receives(what.kind)) {
            Lane& lane = lane_into(rank, what);
            const Index number = lane.taken++;
            if (lane.near && costs_.message(what.bytes, true).pulled)
                complete(lane.from, actors_[lane.from].program->to[lane.sender].ops[number]);
        } else if (what.kind == StepKind::publish || what.kind == StepKind::signal) {
            Actor& actor = actors_[rank];
            actor.published = what.round;
            at(now_ + costs_.rates().signal_us, Happening::seen, rank, what.round);
        } else if (what.kind == StepKind::release) {
            actors_[rank].released = std::max(actors_[rank].released, what.round);
        }
        complete(rank, op);
        if (what.kind == StepKind::release) wake_watchers(rank);
        cause_rank_ = none;
    }

    void complete(Index rank, Index op) {
        Actor& actor = actors_[rank];
        const Op& what = op_of(rank, op);
        TUTTI_ASSERT(actor.left > 0);
        ++done_;
        if (--actor.left == 0) played_.finish_us[rank] = now_;
        for (Index i = 0; i < what.next_count; ++i) {
            const Index next = actor.program->next[what.first_next + i];
            if (--waits_[actor.first_op + next] == 0) enable(rank, next);
        }
        if (!actor.busy && rank != cause_rank_) run_core(rank);
    }

    // Messages of a lane pass one after the other, in order.
    void flow(Index index) {
        Lane& lane = lanes_[index];
        if (lane.flowing || lane.passed >= lane.left || actors_[lane.from].stopped) return;
        const Op& send = send_of(lane, lane.passed);
        if (announced(send, lane.near) && lane.granted <= lane.passed) return grant(lane);
        lane.flowing = true;
        lane.flow_began_us = now_;
        const Index flow = flows_.begin(way(lane), send.bytes, now_);
        if (lane_of_flow_.size() <= flow) lane_of_flow_.resize(flow + 1);
        lane_of_flow_[flow] = index;
    }

    // Tells the sender of an announced message that its receive waits. The announcement has to be there first.
    void grant(Lane& lane) {
        const Index index = static_cast<Index>(&lane - lanes_.data());
        if (lane.near || lane.passed >= lane.left || lane.posted <= lane.passed || lane.asked > lane.passed) return;
        if (!announced(send_of(lane, lane.passed), false)) return;
        lane.asked = lane.passed + 1;
        at(now_ + 2 * (far_us_ + lane.way_us), Happening::granted, index);
    }

    void passed(Index flow, Index version) {
        if (!flows_.is_current(flow, version)) return;
        const Index index = lane_of_flow_[flow];
        Lane& lane = lanes_[index];
        flows_.end(flow, now_);
        const Index number = lane.passed++;
        lane.flowing = false;
        if (!actors_[lane.from].stopped) {
            const double way_us = far_us_ + lane.way_us;
            at(now_ + way_us, Happening::arrives, index, 0, lane.flow_began_us + way_us);
            const Program& program = *actors_[lane.from].program;
            const Index op = program.to[lane.sender].ops[number];
            if (announced(program.ops[op], false)) {
                cause_rank_ = lane.from;
                cause_op_ = op;
                complete(lane.from, op);
                cause_rank_ = none;
                run_core(lane.from);
            }
        }
        this->flow(index);
    }

    void arrives(Index index, double first_us) {
        Lane& lane = lanes_[index];
        const Index number = lane.arrived++;
        lane.first_us = first_us;
        const Actor& receiver = actors_[lane.to];
        if (receiver.stopped || lane.posted <= number) return;
        cause_rank_ = lane.from;
        cause_op_ = actors_[lane.from].program->to[lane.sender].ops[number];
        make_ready(lane.to, receiver.program->from[lane.receiver].ops[number]);
        cause_rank_ = none;
        run_core(lane.to);
    }

    void wake_watchers(Index rank) {
        std::vector<Index> woken;
        woken.swap(watchers_[rank]);
        for (const Index watcher : woken) {
            const Index cause = cause_rank_;
            if (cause == none) {
                cause_rank_ = rank;
                cause_op_ = actors_[rank].last == none ? 0 : actors_[rank].last;
            }
            try_to_share(watcher);
            cause_rank_ = cause;
            run_core(watcher);
        }
    }

    // A step on the staging area, or in place, runs when the ranks that it needs are as far.
    void try_to_share(Index rank) {
        Actor& actor = actors_[rank];
        const Index op = actor.waits_to_share;
        if (op == none || actor.stopped) return;
        if (const Index other = missing(rank, op_of(rank, op)); other != none) {
            watchers_[other].push_back(rank);
            return;
        }
        actor.waits_to_share = none;
        make_ready(rank, op);
    }

    // A rank for which the step has to wait.
    Index missing(Index rank, const Op& op) {
        const int per_host = cast_.ranks_per_host;
        const Index first = static_cast<Index>(host_of(static_cast<int>(rank)) * per_host);
        const auto other_behind = [&](auto&& is_behind) {
            for (Index other = first; other < first + static_cast<Index>(per_host); ++other) {
                if (other != rank && is_behind(actors_[other]) &&
                    cast_.spread.group(static_cast<int>(other)) == cast_.spread.group(static_cast<int>(rank)))
                    return other;
            }
            return none;
        };
        switch (op.kind) {
            case StepKind::publish:
                if (actors_[rank].program->in_slots || op.round + 1 <= layout_.slots) return none;
                return other_behind([&](const Actor& a) { return a.released < op.round + 1 - layout_.slots; });
            case StepKind::meet: {
                if (!actors_[rank].met) {
                    actors_[rank].met = true;
                    at(now_ + costs_.rates().signal_us, Happening::seen, rank, 0);
                }
                return other_behind([](const Actor& a) { return !a.met; });
            }
            case StepKind::settle: return other_behind([&](const Actor& a) { return a.released < op.round; });
            case StepKind::read:
            case StepKind::read_combine:
            case StepKind::wait:
                for (Index i = 0; i < op.watched_count; ++i) {
                    const Index peer = stand_in(peer_of(rank, actors_[rank].program->watched[op.first_watched + i]));
                    if (actors_[peer].seen < std::int64_t{op.round}) return peer;
                }
                return none;
            default: return none;
        }
    }

    Played finish() {
        Index last = none;
        for (Index rank = 0; rank < actors_.size(); ++rank) {
            double& finish = played_.finish_us[rank];
            if (finish == never && !conditions_.kill)
                throw InternalError(fmt::format("the play of {} ends before rank {} is done", cast_.algorithm, rank));
            if (finish == never) continue;
            if (last == none || finish > played_.end_us) last = rank;
            played_.end_us = std::max(played_.end_us, finish);
        }
        played_.links = flows_.uses();
        for (int link = 0; link < links_.count(); ++link) {
            played_.names.push_back(links_.name_of(link));
            played_.capacity_gbps.push_back(links_.gbps(link));
        }
        played_.names.insert(played_.names.end(), slow_names_.begin(), slow_names_.end());
        played_.capacity_gbps.insert(played_.capacity_gbps.end(), slow_gbps_.begin(), slow_gbps_.end());
        if (last != none && !moments_.empty() && actors_[last].last != none) trace(last);
        return std::move(played_);
    }

    // Back from the last step of the last rank.
    void trace(Index rank) {
        Index op = actors_[rank].last;
        constexpr std::size_t longest = 2'000'000;
        while (played_.path.size() < longest) {
            const Moment& moment = moments_[actors_[rank].first_op + op];
            played_.path.push_back({static_cast<Rank>(rank), op, moment.begin_us, moment.end_us, moment.ready_us});
            const auto from = static_cast<Index>(moment.rank);
            if (moment.op == none || moment.begin_us <= 0 || (from == rank && moment.op == op)) break;
            const Moment& cause = moments_[actors_[from].first_op + moment.op];
            if (cause.begin_us > moment.begin_us) break;
            rank = from;
            op = moment.op;
        }
        std::ranges::reverse(played_.path);
    }

    const Cast& cast_;
    const algorithm::Layout& layout_;
    const algorithm::StepCosts& costs_;
    const Conditions& conditions_;
    const Progress& progress_;
    Links links_;
    Flows flows_;
    double far_us_, byte_us_;
    int cores_;
    std::int64_t full_;  // ranks, with those that the last switch lacks
    std::unordered_map<std::uint64_t, int> slow_links_;
    std::vector<std::string> slow_names_;
    std::vector<double> slow_gbps_;
    std::vector<Actor> actors_;
    std::vector<Host> hosts_;
    std::vector<std::vector<Index>> watchers_;  // by rank: who waits until it is further
    std::vector<Index> waits_;                  // by op: how many others it waits for
    std::vector<Lane> lanes_;
    std::vector<Index> lane_from_, lane_of_flow_;
    std::vector<Moment> moments_;
    std::vector<Flows::Change> changes_;
    std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
    Index cause_rank_ = none, cause_op_ = none;
    double now_ = 0;
    std::uint64_t numbers_ = 0, done_ = 0;
    Played played_;
};

}  // namespace

double varied(double us, double jitter, std::uint64_t seed, std::uint64_t rank, std::uint64_t op) {
    if (jitter == 0) return us;
    const std::uint64_t bits = mixed(mixed(seed ^ mixed(rank)) + op);
    return us * (1 + jitter * static_cast<double>(bits >> 11) * 0x1p-53);
}

Played play(const Cast& cast, const algorithm::Layout& layout, const algorithm::CostModel& model,
            const algorithm::StepCosts& costs, const Network& network, const Conditions& conditions,
            const Progress& progress) {
    TUTTI_ASSERT(cast.played > 0 && cast.program_of.size() == static_cast<std::size_t>(cast.played));
    return Stage(cast, layout, model, costs, network, conditions, progress).run();
}

}  // namespace tutti::simulate
