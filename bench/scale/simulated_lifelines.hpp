// SimulatedLifelines: the lifelines of many ranks in one process, with a simulated network and a simulated time. Each
// rank is a rendezvous::Lifelines, as in a real world; a message takes a latency on its way, and the thread of a rank
// takes a while for each message that it sends or reads, one after the other. Nothing gets lost, and nobody is slow.
//
// Threads: one.
#pragma once

#include "rendezvous/lifelines.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tutti::bench {

class SimulatedLifelines {
 public:
    struct Costs {
        std::chrono::microseconds latency{50}, message{5};
    };
    /// What happened from the begin of a phase to its end.
    struct Figures {
        double seconds = 0;
        std::uint64_t messages = 0, bytes = 0;  ///< that all ranks sent
        std::uint64_t busiest = 0;              ///< messages that one rank sent and read, at most
    };

    /// Ranks of a host are consecutive.
    SimulatedLifelines(int ranks, int ranks_per_host, Costs costs);
    ~SimulatedLifelines();
    SimulatedLifelines(const SimulatedLifelines&) = delete;
    SimulatedLifelines& operator=(const SimulatedLifelines&) = delete;

    /// All ranks connect to their parents; until all lifelines are confirmed at both ends.
    Figures join();
    /// The process of `rank` ends; until all others know it and have answered.
    Figures kill(int rank);
    /// How long after kill() the last rank was told.
    double last_told_s() const noexcept { return last_told_s_; }
    /// All ranks leave, each at a random time within this.
    Figures leave(std::chrono::milliseconds within);

    /// The ranks that were told of the death, and those that have not got away.
    int told() const noexcept { return told_; }
    int present() const;
    /// The most lifelines that one rank has.
    std::size_t most_lifelines() const;

 private:
    struct Rank;
    struct Connection;
    struct Event;

    Rank& rank(int number) { return *ranks_[static_cast<std::size_t>(number)]; }
    Figures play(const std::function<void()>& begin);
    void add(Event event);
    void handle(Event& event);
    void after_event(Rank& rank, Instant now);
    void perform(Rank& rank);
    void connect(Rank& from, int to, rendezvous::Role role);
    void send(Rank& from, rendezvous::LineId line, std::string bytes);
    void close(Rank& rank);
    void end(Rank& from, rendezvous::LineId line);

    Costs costs_;
    Instant now_{std::chrono::hours(1)}, killed_{};
    std::vector<std::unique_ptr<Rank>> ranks_;
    std::vector<Connection> connections_;
    std::vector<Event> events_;  // a heap
    std::uint64_t next_event_ = 0;
    Figures figures_;
    double last_told_s_ = 0;
    int told_ = 0;
};

}  // namespace tutti::bench
