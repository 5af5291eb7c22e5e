#include "simulate/machine.hpp"

#include "algorithm/scale.hpp"
#include "core/assert.hpp"
#include "core/socket.hpp"
#include "transport/mailbox.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <unordered_map>

namespace tutti::simulate {
namespace {

using schedule::StepKind;
static_assert(algorithm::longest_eager_bytes(net::far_round_trip.count() / 2.0 - 1) == transport::Mailbox::eager_bytes);
static_assert(algorithm::longest_eager_bytes(net::far_round_trip.count() / 2.0) ==
              transport::Mailbox::eager_bytes_to_far);

std::uint64_t mixed(std::uint64_t x) {  // splitmix64
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

}  // namespace

Play::Play(Machine& machine, Index number, const Cast& cast, const algorithm::Layout& layout,
           const algorithm::StepCosts& costs, std::uint64_t seed, bool traces)
    : machine_(machine),
      number_(number),
      cast_(cast),
      layout_(layout),
      costs_(costs),
      seed_(seed),
      full_((std::int64_t{cast.ranks} + cast.played - 1) / cast.played * cast.played) {
    TUTTI_ASSERT(cast.whole() || machine.conditions().usual());
    TUTTI_ASSERT(cast.played % cast.ranks_per_host == 0);
    enter(traces);
}

// The rank at a distance, of a receive's sender or anything's peer. Behind a last switch that is not full the ranks
// go on to its end, so that each played rank has one neighbour at each distance.
int Play::peer_of(Index rank, int distance, bool receives) const {
    const bool back = receives ? 2 * std::int64_t{distance} >= cast_.ranks : 2 * std::int64_t{distance} > cast_.ranks;
    return static_cast<int>((std::int64_t{rank} + distance - (back ? cast_.ranks : 0) + full_) % full_);
}

const Op& Play::send_of(const Lane& lane, Index number) const {
    const Program& program = *actors_[lane.from].program;
    return program.ops[program.to[lane.sender].ops[number]];
}

bool Play::announced(const Op& send, const Lane& lane) const {
    return !lane.near && send.bytes > algorithm::longest_eager_bytes(machine_.far_us() + lane.way_us);
}

Links::Way Play::way(const Lane& lane) const {
    const int from = static_cast<int>(lane.from);
    return machine_.host_of(from) == machine_.host_of(lane.peer) ? Links::Way{} : machine_.way(from, lane.peer);
}

// Ranks, their ops, and the lanes between them.
void Play::enter(bool traces) {
    actors_.resize(static_cast<std::size_t>(cast_.played));
    ranks_left_ = static_cast<Index>(cast_.played);
    played_.finish_us.assign(actors_.size(), never);
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
    if (traces && ops <= path_steps_max) moments_.resize(ops);
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
            if (!lane.near && machine_.host_of(static_cast<int>(rank)) != machine_.host_of(lane.peer))
                lane.way_us = static_cast<float>(way(lane).us);
            lane_of[pair_key(static_cast<int>(rank), distance)] = static_cast<Index>(actor.first_to) + i;
        }
    }
    for (Index rank = 0; rank < actors_.size(); ++rank) {
        const Actor& actor = actors_[rank];
        for (Index i = 0; i < actor.program->from.size(); ++i) {
            const int distance = actor.program->from[i].distance;
            const auto found = lane_of.find(pair_key(static_cast<int>(stand_in(peer_of(rank, distance, true))),
                                                     (cast_.ranks - distance) % cast_.ranks));
            TUTTI_ASSERT(found != lane_of.end());  // each receive has a send
            lanes_[found->second].receiver = i;
            lane_from_[actor.first_from + i] = found->second;
        }
    }
}

void Play::happen(const Event& event) {
    switch (event.what) {
        case Happening::start: return start(event.of);
        case Happening::core: return;  // the machine ends the step
        case Happening::leaves: ++lanes_[event.of].left; return flow(event.of);
        case Happening::granted: lanes_[event.of].granted = lanes_[event.of].asked; return flow(event.of);
        case Happening::passed: return passed(event.of);
        case Happening::arrives: return arrives(event.of, event.first_us);
        case Happening::seen:
            actors_[event.of].seen = std::max(actors_[event.of].seen, std::int64_t{event.version});
            return wake_watchers(event.of);
        case Happening::stop: actors_[event.of].stopped = actors_[event.of].left > 0; return;
    }
}

void Play::start(Index rank) {
    Actor& actor = actors_[rank];
    if (actor.left == 0) end(rank);
    // Ops that wait for nothing can run, in the order of the program.
    for (Index op = 0; op < actor.program->ops.size(); ++op) {
        if (actor.program->ops[op].waits == 0) enable(rank, op);
    }
    machine_.run_core(rank);
}

// All ops that this one waits for are done.
void Play::enable(Index rank, Index op) {
    const Op& what = op_of(rank, op);
    if (schedule::receives(what.kind)) {
        Lane& lane = lane_into(rank, what);
        if (lane.posted == lane.taken) lane.posted_us = now();
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

void Play::make_ready(Index rank, Index op) {
    Actor& actor = actors_[rank];
    actor.ready.push_back(op);
    std::ranges::push_heap(actor.ready, std::greater{});
    if (actor.ready.size() == 1) machine_.offer(rank, number_);
    if (!moments_.empty()) {
        Moment& moment = moments_[actor.first_op + op];
        moment.ready_us = now();
        moment.rank = static_cast<Rank>(cause_rank_ == none ? rank : cause_rank_);
        moment.op = cause_op_;
    }
}

double Play::run_step(Index rank) {
    Actor& actor = actors_[rank];
    TUTTI_ASSERT(can_run(rank));
    std::ranges::pop_heap(actor.ready, std::greater{});
    const Index op = actor.ready.back();
    actor.ready.pop_back();
    actor.running = op;
    const double us = work_us(rank, op);
    if (!moments_.empty()) {
        Moment& moment = moments_[actor.first_op + op];
        moment.begin_us = now();
        moment.end_us = now() + us;
        if (moment.ready_us < now() && actor.last != none) {  // it was the core that it waited for
            moment.rank = static_cast<Rank>(rank);
            moment.op = actor.last;
        }
    }
    return us;
}

// How long the step keeps the core; a send sets its message off.
double Play::work_us(Index rank, Index op) {
    const Op& what = op_of(rank, op);
    if (what.kind == StepKind::send) {
        const Index index = lane_out(rank, what);
        const Lane& lane = lanes_[index];
        const auto message = costs_.message(what.bytes, lane.near);
        const double send_us = varied(message.send_us, rank, op);
        if (lane.near) return send_us + (message.pulled ? 0 : varied(message.send_bytes_us, rank, op));
        at(now() + send_us, Happening::leaves, index);
        return send_us + what.bytes * machine_.byte_us();
    }
    if (!schedule::receives(what.kind)) return varied(what.work_us, rank, op);
    const Lane& lane = lane_into(rank, what);
    const auto message = costs_.message(what.bytes, lane.near);
    // What it has copied while the bytes arrived, and it had nothing else to do.
    const double idle = now() - std::max({machine_.idle_since(rank), lane.first_us, lane.posted_us});
    const bool beside = costs_.rates().crowd <= 1 && !message.pulled;
    const double rest = message.receive_bytes_us - (beside ? std::clamp(idle, 0.0, message.receive_bytes_us) : 0);
    return varied(message.receive_us + rest + what.work_us, rank, op);
}

void Play::end_step(Index rank) {
    const Index op = actors_[rank].running;
    actors_[rank].last = op;
    if (actors_[rank].stopped) return;
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
            at(now() + message.latency_us, Happening::arrives, lane_out(rank, what), 0, now() - message.send_bytes_us);
            if (message.pulled) return;  // done when the receiver has read it
        } else if (announced(what, lane)) {
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
        const bool slot = actor.program->in_slots;
        at(now() + (slot ? costs_.rates().slot_us : costs_.rates().signal_us), Happening::seen, rank, what.round);
    } else if (what.kind == StepKind::release) {
        actors_[rank].released = std::max(actors_[rank].released, what.round);
    }
    complete(rank, op);
    if (what.kind == StepKind::release) wake_watchers(rank);
    cause_rank_ = none;
}

void Play::complete(Index rank, Index op) {
    Actor& actor = actors_[rank];
    const Op& what = op_of(rank, op);
    TUTTI_ASSERT(actor.left > 0);
    ++done_;
    --actor.left;
    for (Index i = 0; i < what.next_count; ++i) {
        const Index next = actor.program->next[what.first_next + i];
        if (--waits_[actor.first_op + next] == 0) enable(rank, next);
    }
    if (rank != cause_rank_) machine_.run_core(rank);
    if (actor.left == 0) end(rank);
}

void Play::end(Index rank) {
    played_.finish_us[rank] = now();
    --ranks_left_;
    if (on_end) on_end(rank);
}

// Messages of a lane pass one after the other, in order.
void Play::flow(Index index) {
    Lane& lane = lanes_[index];
    if (lane.flowing || lane.passed >= lane.left || actors_[lane.from].stopped) return;
    const Op& send = send_of(lane, lane.passed);
    if (announced(send, lane) && lane.granted <= lane.passed) return grant(lane);
    lane.flowing = true;
    lane.flow_began_us = now();
    machine_.begin_flow(way(lane), send.bytes, number_, index);
}

// Tells the sender of an announced message that its receive waits. The announcement has to be there first.
void Play::grant(Lane& lane) {
    const Index index = static_cast<Index>(&lane - lanes_.data());
    if (lane.near || lane.passed >= lane.left || lane.posted <= lane.passed || lane.asked > lane.passed) return;
    if (!announced(send_of(lane, lane.passed), lane)) return;
    lane.asked = lane.passed + 1;
    at(now() + 2 * (machine_.far_us() + lane.way_us), Happening::granted, index);
}

void Play::passed(Index index) {
    Lane& lane = lanes_[index];
    const Index number = lane.passed++;
    lane.flowing = false;
    if (!actors_[lane.from].stopped) {
        const double way_us = machine_.far_us() + lane.way_us;
        at(now() + way_us, Happening::arrives, index, 0, lane.flow_began_us + way_us);
        const Program& program = *actors_[lane.from].program;
        const Index op = program.to[lane.sender].ops[number];
        if (announced(program.ops[op], lane)) {
            cause_rank_ = lane.from;
            cause_op_ = op;
            complete(lane.from, op);
            cause_rank_ = none;
            machine_.run_core(lane.from);
        }
    }
    flow(index);
}

void Play::arrives(Index index, double first_us) {
    Lane& lane = lanes_[index];
    const Index number = lane.arrived++;
    lane.first_us = first_us;
    const Actor& receiver = actors_[lane.to];
    if (receiver.stopped || lane.posted <= number) return;
    cause_rank_ = lane.from;
    cause_op_ = actors_[lane.from].program->to[lane.sender].ops[number];
    make_ready(lane.to, receiver.program->from[lane.receiver].ops[number]);
    cause_rank_ = none;
    machine_.run_core(lane.to);
}

void Play::wake_watchers(Index rank) {
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
        machine_.run_core(watcher);
    }
}

// A step on the staging area, or in place, runs when the ranks that it needs are as far.
void Play::try_to_share(Index rank) {
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
Index Play::missing(Index rank, const Op& op) {
    const int per_host = cast_.ranks_per_host;
    const Index first = static_cast<Index>(machine_.host_of(static_cast<int>(rank)) * per_host);
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
                at(now() + costs_.rates().signal_us, Happening::seen, rank, 0);
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

Played Play::finish() {
    Index last = none;
    for (Index rank = 0; rank < actors_.size(); ++rank) {
        double& finish = played_.finish_us[rank];
        if (finish == never && !machine_.conditions().kill)
            throw InternalError(fmt::format("the play of {} ends before rank {} is done", cast_.algorithm, rank));
        if (finish == never) continue;
        if (last == none || finish > played_.end_us) last = rank;
        played_.end_us = std::max(played_.end_us, finish);
    }
    if (last != none && !moments_.empty() && actors_[last].last != none) trace(last);
    return std::move(played_);
}

// Back from the last step of the last rank.
void Play::trace(Index rank) {
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

double varied(double us, double jitter, std::uint64_t seed, std::uint64_t rank, std::uint64_t op) {
    if (jitter == 0) return us;
    const std::uint64_t bits = mixed(mixed(seed ^ mixed(rank)) + op);
    return us * (1 + jitter * static_cast<double>(bits >> 11) * 0x1p-53);
}

Played play(const Cast& cast, const algorithm::Layout& layout, const algorithm::CostModel& model,
            const algorithm::StepCosts& costs, const Network& network, const Conditions& conditions,
            const Progress& progress) {
    TUTTI_ASSERT(cast.played > 0 && cast.program_of.size() == static_cast<std::size_t>(cast.played));
    Machine machine(network, model, conditions, cast.hosts, cast.played, cast.ranks_per_host);
    Play& only = machine.add(cast, layout, costs, conditions.seed, true);
    const auto ranks = static_cast<std::size_t>(cast.played);
    std::vector<double> begins = conditions.begins_us;
    if (begins.empty()) begins.resize(ranks, 0);
    TUTTI_ASSERT(begins.size() == ranks);
    for (const auto& [rank, us] : conditions.delays_us) begins[static_cast<std::size_t>(rank)] = us;
    for (Index rank = 0; rank < ranks; ++rank) machine.at(begins[rank], Happening::start, 0, rank);
    for (Index rank = 0; rank < conditions.told_us.size(); ++rank)
        if (conditions.told_us[rank] < never) machine.at(conditions.told_us[rank], Happening::stop, 0, rank);
    machine.run(true, [&] {
        if (progress)
            progress(
                {.share = static_cast<double>(only.done()) / static_cast<double>(cast.steps), .us = machine.now()});
    });
    Played played = only.finish();
    played.events = machine.events();
    machine.describe_links(played);
    return played;
}

}  // namespace tutti::simulate
