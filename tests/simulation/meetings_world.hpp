// MeetingsWorld: processes that meet in one simulated store and in a simulated time: late ones, dead ones and those
// that come for them, two of one rank, ranks that disagree, that cannot come, that come again, also as another rank,
// two jobs under one name, a slow store, a store without wills, one that fails one of them or tears it out of a wait,
// and ranks that wait for each other in a circle. A seed decides all. It looks whether Meeting keeps its promises, as
// meet() (tutti/meeting.hpp) and as the joining of worlds use it.
//
// Threads: one.
#pragma once

#include "core/deadline.hpp"
#include "rendezvous/meeting.hpp"
#include "simulation/store_world.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace tutti::simulation {

enum class Trouble {
    none,
    late,
    absent,
    death,
    refusal,
    disagreement,
    other_size,
    twice,
    two_jobs,
    broken_store,
    circle,
    successor,    // a process comes for one that has died
    renumbered,   // one comes with a wrong rank, and again with its own
    smaller_job,  // some meet without the one that did not come
    unfit,        // rank 0 does not like a card
    torn          // a wait ends from outside
};
inline constexpr int troubles = 16;

class MeetingsWorld {
 public:
    explicit MeetingsWorld(std::uint64_t seed);
    ~MeetingsWorld();
    MeetingsWorld(const MeetingsWorld&) = delete;
    MeetingsWorld& operator=(const MeetingsWorld&) = delete;

    /// The first promise that is broken, in words; empty: none.
    std::string run();
    Trouble trouble() const noexcept { return trouble_; }
    int met() const noexcept { return met_; }

 private:
    struct Call {
        MeetingTerms terms;
        Milliseconds pause{0};  // before it
        bool cannot_come = false;
    };
    struct Result {
        std::string id, error, card, job;
        int rank = 0, size = 0, round = 0, kind = 0;  // an ErrorCode; 0: met
        Met met;
        std::size_t process = 0;
        bool is_refusal = false;
    };
    struct Process;
    enum class Step { call, arrive, answer, out_of_time, die, will };
    struct Event {
        Step step;
        std::size_t process = 0;
        std::uint64_t serial = 0;  // of the request that it belongs to
    };

    void make_one_meeting();
    void make_circle();
    Process& add(const std::string& job, const MeetingTerms& terms, int rounds, Milliseconds pause);
    void at(Milliseconds later, Event event);
    Milliseconds latency();
    void handle(const Event& event);
    void begin_call(Process& process);
    void ask(Process& process);
    void arrive(Process& process);
    void write(const std::string& key, const std::string& value);
    bool try_to_answer_wait(Process& process);
    void answer(Process& process, std::vector<std::string> values);
    void go_on(Process& process);
    void end_call(Process& process);
    std::string check_results() const;
    std::string check_alike() const;
    std::string check_trouble() const;
    std::string check_news() const;
    std::string check_dead() const;
    std::uint64_t below(std::uint64_t n);

    std::mt19937_64 chance_;
    Trouble trouble_ = Trouble::none;
    Milliseconds slowest_{2};
    bool once_ = false, has_wills_ = true, concludes_ = false;
    int size_ = 2, rounds_ = 1, met_ = 0;
    Instant now_{}, begin_{};
    std::vector<std::unique_ptr<Process>> processes_;
    Events<Event> events_;
    StoreKeys keys_;
    std::map<std::string, Instant> written_;     // when each key was first
    std::map<std::string, std::size_t> writer_;  // of each key that is written unconditionally: the last process
    std::vector<Result> results_;
    std::string wrong_, left_by_dead_;  // the second: the attempt in which a rank died that had put its card
};

}  // namespace tutti::simulation
