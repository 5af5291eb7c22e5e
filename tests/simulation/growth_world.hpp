// GrowthWorld: groups that take newcomers in (ProcessGroup::grow, join), in one simulated store and in a simulated
// time: newcomers that are late or too few, ranks and newcomers that die before or after any request, ranks that are
// stopped and come back, lifelines that break, a network that falls into two halves, ranks that hear late, two groups
// in one place, groups that change again, calls before and after a failure, a slow store. A seed decides all. In every
// third world the ranks train (Training), and their groups change as they have to. The ranks
// hear of each other by their lifelines alone (SimulatedGroup). It looks whether Lifelines, Health, Growth, Survivors,
// Newcomer and Meeting together keep what membership.md promises.
//
// Threads: one.
#pragma once

#include "core/deadline.hpp"
#include "rendezvous/growth.hpp"
#include "simulation/simulated_group.hpp"
#include "simulation/store_world.hpp"
#include "simulation/training.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace tutti::simulation {

class GrowthWorld {
 public:
    explicit GrowthWorld(std::uint64_t seed);
    ~GrowthWorld();
    GrowthWorld(const GrowthWorld&) = delete;
    GrowthWorld& operator=(const GrowthWorld&) = delete;

    /// The first promise that is broken, in words; empty: none.
    std::string run();
    /// How many processes are in groups that were made, by what has happened.
    int made() const noexcept { return made_; }
    int deaths() const noexcept { return deaths_; }
    int excluded() const noexcept { return excluded_; }
    int told() const noexcept { return told_; }
    /// How many groups were made of one that had been made before.
    int changed_again() const noexcept { return changed_again_; }
    int parted() const noexcept { return parted_from_.has_value() ? 1 : 0; }
    /// How many processes have ended their training, and how often ranks took newcomers in between two steps, got
    /// another group after a failure, and went back to a copy.
    int trained() const noexcept { return trained_; }
    int admissions() const noexcept { return admissions_; }
    int recoveries() const noexcept { return recoveries_; }
    int times_back() const noexcept { return times_back_; }

 private:
    struct Process;
    struct Result {
        std::size_t process = 0;
        std::string group;                                           // of a rank
        int call = 0;                                                // of a rank: which of its calls
        std::string plan;                                            // its number; empty: there was none
        bool is_made = false, is_excluded = false, is_late = false;  // the last: some have not come to the new group
        bool is_again = false;                                       // of a group that had been made before
        std::vector<std::string> cards{};
        std::string error{};
        std::exception_ptr thrown{};
        Instant when{};
    };
    enum class Step { begin, arrive, answer, out_of_time, will, stop, resume, fail, cut, part, of_lifelines };
    struct Event {
        Step step;
        std::size_t process = 0;
        std::uint64_t serial = 0;  // of the request
        std::function<void()> act{};
    };

    void add_group(const std::string& name, bool may_have_trouble);
    void add_newcomers(int wanted);
    Process& add_process(std::string label);
    SimulatedGroup& make_group(const std::string& name, std::vector<std::size_t> processes);
    SimulatedGroup& group_of(const rendezvous::GrowthPlan& plan, const std::vector<std::string>& cards);
    void part();
    bool have_met() const;
    rendezvous::StoreTalk<bool> live(Process& process);
    rendezvous::StoreTalk<bool> train(Process& process);
    rendezvous::StoreTalk<bool> grow_in_training(Process& process, Training::Wish wish);
    rendezvous::StoreTalk<Result> grow(Process& process, int call, Training::Wish wish);
    void note_time(const Process& process);
    rendezvous::StoreTalk<Result> join(Process& process);
    rendezvous::StoreTalk<bool> meet(const rendezvous::GrowthPlan& plan, int rank, Process& process,
                                     std::function<void()> check, Result& result);
    rendezvous::SurvivorsTerms survivors_terms(Process& process, int call);
    void leave_all(Process& process);

    void at(Milliseconds later, Event event);
    Milliseconds latency();
    void handle(const Event& event);
    void ask(Process& process);
    void arrive(Process& process);
    void die(Process& process);
    std::string key_of(const Process& process, int store, const std::string& key) const;
    std::optional<std::string> read(const Process& process, int store, const std::string& key) const;
    void write(const std::string& key, const std::string& value);
    bool try_to_answer_wait(Process& process);
    void answer(Process& process, std::vector<std::string> values);
    bool is_cut_off(const Process& process) const;
    bool may_be_accused(const Process& process) const;
    static bool was_cut(const Process& process);
    bool may_be_unreached(const Process& process) const;
    std::string check_results();
    std::string check_trainings();
    std::string check_group_of(const Process& process) const;
    std::string check_plan(const std::string& number) const;
    std::string check_call(const std::string& group, int call) const;
    std::string check_sentence(const Result& result) const;
    std::uint64_t below(std::uint64_t n);
    bool one_in(std::uint64_t n) { return below(n) == 0; }

    std::mt19937_64 chance_;
    Instant now_{};
    Milliseconds slowest_{2};
    Milliseconds silence_limit_{0}, patience_{0};
    std::vector<std::string> hosts_;
    std::vector<std::unique_ptr<Process>> processes_;
    std::map<std::string, std::unique_ptr<SimulatedGroup>> groups_;
    std::set<std::string> parted_;  // hosts that cannot reach the others, and the store
    std::optional<Instant> parted_from_{};
    Instant parted_until_{};
    std::optional<Instant> last_death_{};
    bool changes_again_ = false, trains_ = false;
    Training::Terms training_;
    Events<Event> events_;
    StoreKeys keys_;
    std::vector<Result> results_;
    std::string wrong_;
    int made_ = 0, deaths_ = 0, excluded_ = 0, told_ = 0, stopped_ = 0, changed_again_ = 0;
    int trained_ = 0, admissions_ = 0, recoveries_ = 0, times_back_ = 0;
    bool is_quiet_ = false;  // nothing goes wrong: every call has to succeed
};

}  // namespace tutti::simulation
