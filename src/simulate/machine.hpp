// Machine: what the plays of collectives have in common: the time, the links, and the cores of ranks and hosts.
//
// Several plays may run at once on the same ranks. Their messages share the links; and a rank has one core for all of
// them, as one thread moves all that is in flight: they take turns, a step each.
//
// Threads: one at a time.
#pragma once

#include "simulate/player.hpp"

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <queue>
#include <string>
#include <unordered_map>
#include <vector>

namespace tutti::simulate {

using Index = std::uint32_t;
inline constexpr Index none = std::numeric_limits<Index>::max();

/// Two numbers, both from 0, as the key of a map.
inline std::uint64_t pair_key(int a, int b) {
    return static_cast<std::uint64_t>(static_cast<Index>(a)) << 32 | static_cast<Index>(b);
}

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
    Index play = 0;
    Index of = 0;         // rank, lane or flow
    Index version = 0;    // of a flow
    double first_us = 0;  // arrives: when its first byte came
    bool operator>(const Event& other) const { return us != other.us ? us > other.us : number > other.number; }
};

class Play;

class Machine {
 public:
    /// `hosts`: of all ranks; `played`: ranks.
    Machine(const Network& network, const algorithm::CostModel& model, const Conditions& conditions, int hosts,
            int played, int ranks_per_host);
    ~Machine();
    Machine(const Machine&) = delete;
    Machine& operator=(const Machine&) = delete;

    double now() const noexcept { return now_; }
    int host_of(int rank) const { return rank / ranks_per_host_; }
    int ranks_per_host() const noexcept { return ranks_per_host_; }
    const Conditions& conditions() const noexcept { return conditions_; }
    double far_us() const noexcept { return far_us_; }
    double byte_us() const noexcept { return byte_us_; }

    void at(double us, Happening what, Index play, Index of, Index version = 0, double first_us = 0) {
        events_.push({us, ++numbers_, what, play, of, version, first_us});
    }
    /// The way between two ranks of different hosts.
    Links::Way way(int from, int to) const;
    void begin_flow(const Links::Way& way, double bytes, Index play, Index lane);

    /// `play` has a step for the rank, as it had none before.
    void offer(Index rank, Index play) { cores_[rank].offers.push_back(play); }
    /// Begins a step, if the rank has one and a core.
    void run_core(Index rank);
    /// Since when the rank's core has had nothing to do.
    double idle_since(Index rank) const { return cores_[rank].idle_since; }

    /// A play of a cast; its ranks begin with Happening::start. The arguments outlive it. `seed`: of the conditions'
    /// jitter. `traces`: Play::finish() tells the path.
    Play& add(const Cast& cast, const algorithm::Layout& layout, const algorithm::StepCosts& costs, std::uint64_t seed,
              bool traces);
    /// Until nothing more happens. `each` is called now and then. Plays that are over go, unless `keeps`.
    void run(bool keeps, const std::function<void()>& each);
    void describe_links(Played& played) const;
    std::uint64_t events() const noexcept { return happened_; }

 private:
    struct Core {
        double idle_since = 0;
        std::vector<Index> offers;  // plays with steps that can run, in turn
        bool busy = false, queued = false;
    };
    struct Host {
        int running = 0;
        std::vector<Index> queue;  // of ranks that wait for a core
    };
    struct Owner {
        Index play = 0, lane = 0;
    };
    Host& host(Index rank) { return hosts_[static_cast<std::size_t>(host_of(static_cast<int>(rank)))]; }
    void core_done(Index rank, Index play);
    // Whether the flow has passed. Then it is taken away, and `lane` is the one that it was of.
    bool end_flow(Index flow, Index version, Index& lane);

    const Conditions& conditions_;
    int ranks_per_host_, cores_of_host_;
    Links links_;
    Flows flows_;
    double far_us_, byte_us_;
    std::unordered_map<std::uint64_t, int> slow_links_;
    std::vector<std::string> slow_names_;
    std::vector<double> slow_gbps_;
    std::vector<Core> cores_;  // by rank
    std::vector<Host> hosts_;
    std::vector<Owner> owners_;  // by flow
    std::vector<std::unique_ptr<Play>> plays_;
    std::vector<Flows::Change> changes_;
    std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
    double now_ = 0;
    std::uint64_t numbers_ = 0, happened_ = 0;
};

/// One cast on a machine.
class Play {
 public:
    /// As Machine::add.
    Play(Machine& machine, Index number, const Cast& cast, const algorithm::Layout& layout,
         const algorithm::StepCosts& costs, std::uint64_t seed, bool traces);

    void happen(const Event& event);
    /// Whether the rank has a step that can run.
    bool can_run(Index rank) const { return !actors_[rank].stopped && !actors_[rank].ready.empty(); }
    /// Begins the first step that can run. Returns how long it keeps the core.
    double run_step(Index rank);
    /// Its core is done with it.
    void end_step(Index rank);
    Index number() const noexcept { return number_; }
    bool over() const noexcept { return ranks_left_ == 0; }
    std::uint64_t done() const noexcept { return done_; }
    /// The results of the play; the machine has those of the links.
    Played finish();
    /// Called when a rank is done.
    std::function<void(Index rank)> on_end;

 private:
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
        std::size_t first_op = 0, first_to = 0, first_from = 0;  // in the play's lists
        std::vector<Index> ready;                                // a heap: the first op on top
        Index running = none, last = none, left = 0;
        Index waits_to_share = none;
        std::int64_t published = -1, seen = -1;
        Index released = 0;
        bool stopped = false, met = false;
    };

    void enter(bool traces);
    bool near(Index rank, int peer) const {
        return layout_.shared_memory && machine_.host_of(static_cast<int>(rank)) == machine_.host_of(peer);
    }
    // The played rank that stands for a rank.
    Index stand_in(int rank) const { return static_cast<Index>(rank % cast_.played); }
    int peer_of(Index rank, int distance, bool receives = false) const;
    const Op& op_of(Index rank, Index op) const { return actors_[rank].program->ops[op]; }
    Lane& lane_into(Index rank, const Op& op) { return lanes_[lane_from_[actors_[rank].first_from + op.peer]]; }
    Index lane_out(Index rank, const Op& op) const { return static_cast<Index>(actors_[rank].first_to) + op.peer; }
    const Op& send_of(const Lane& lane, Index number) const;
    bool announced(const Op& send, const Lane& lane) const;
    void at(double us, Happening what, Index of, Index version = 0, double first_us = 0) {
        machine_.at(us, what, number_, of, version, first_us);
    }
    double now() const { return machine_.now(); }
    double varied(double us, Index rank, Index op) const {
        return simulate::varied(us, machine_.conditions().jitter, seed_, rank, op);
    }
    Links::Way way(const Lane& lane) const;

    void start(Index rank);
    void enable(Index rank, Index op);
    void make_ready(Index rank, Index op);
    double work_us(Index rank, Index op);
    void complete(Index rank, Index op);
    void end(Index rank);
    void flow(Index index);
    void grant(Lane& lane);
    void passed(Index index);
    void arrives(Index index, double first_us);
    void wake_watchers(Index rank);
    void try_to_share(Index rank);
    Index missing(Index rank, const Op& op);
    void trace(Index rank);

    Machine& machine_;
    const Index number_;
    const Cast& cast_;
    const algorithm::Layout& layout_;
    const algorithm::StepCosts& costs_;
    const std::uint64_t seed_;
    std::int64_t full_;  // ranks, with those that the last switch lacks
    std::vector<Actor> actors_;
    std::vector<std::vector<Index>> watchers_;  // by rank: the ranks that wait until it is further
    std::vector<Index> waits_;                  // by op: how many others it waits for
    std::vector<Lane> lanes_;
    std::vector<Index> lane_from_;
    std::vector<Moment> moments_;
    Index cause_rank_ = none, cause_op_ = none;
    Index ranks_left_ = 0;
    std::uint64_t done_ = 0;
    Played played_;
};

}  // namespace tutti::simulate
