// A world of ranks in one process and in a time of its own, over a LifelineNetwork. By the seed, ranks come late,
// leave, stop for a while or for ever, die, or lose their host; lifelines break; ranks begin news. At the end the
// promises of LIFELINES.md are checked.
//
// Threads: one.
#pragma once

#include "simulation/lifeline_network.hpp"

#include <cstdint>
#include <functional>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace tutti::simulation {

enum class Strike : std::uint8_t { leave, stop, death, host_loss, cut, news };

class LifelinesWorld final : private LifelineNetwork {
 public:
    explicit LifelinesWorld(std::uint64_t seed);
    ~LifelinesWorld() override;

    /// Runs it to its end. Returns the first promise that it breaks, in words; empty: it keeps all.
    std::string run();
    bool has(Strike strike) const { return strikes_.contains(strike); }
    /// Whether some rank has been informed of a death, and whether one has found a new parent.
    bool death_is_known() const noexcept { return death_is_known_; }
    bool finds_new_parents() const noexcept { return finds_new_parents_; }
    /// From now on a lifeline loses what it carries now and then, as no lifeline does.
    void lose_news() noexcept { loses_ = true; }
    bool has_lost_any() const noexcept { return has_lost_; }

 private:
    struct Account;

    Account& account(const Rank& rank) { return accounts_[static_cast<std::size_t>(rank.number())]; }
    void at(Instant when, std::function<void()> act) override;
    void cannot_join(Rank& rank) override;
    void has_left(Rank& rank) override;
    void has_reparented() override { finds_new_parents_ = true; }
    bool loses() override;
    // What may happen.
    void plan_strikes();
    void strike(Strike strike);
    void stop_for_a_while(Rank& rank);
    void end(Rank& rank);
    void end_host(const std::string& host);
    void note_witnesses(Rank& rank);
    void begin_news(Rank& rank);
    bool is_attached(const Rank& rank) const;
    // Checks: they fail the test.
    static bool counts(const Rank& rank);
    void inform(Rank& rank, const rendezvous::Inform& news) override;
    void check_verdict(const Rank& rank, const rendezvous::Verdict& verdict);
    void after(Rank& rank) override;
    void check_end();
    bool is_given_up(const Rank& rank) const;
    void check_tree();
    void wrong(const std::string& what) override;

    struct Event {
        Instant when;
        std::uint64_t number;
        std::function<void()> act;
        bool operator<(const Event& other) const {
            return when != other.when ? when > other.when : number > other.number;
        }
    };

    std::mt19937_64 chance_;
    Instant now_{std::chrono::hours(1)}, quiet_after_ = now_;
    std::priority_queue<Event> events_;
    std::uint64_t next_event_ = 0;
    std::vector<Account> accounts_;
    std::set<Strike> strikes_;
    bool may_stay_unknown_ = false;  // the end of the world: a limit of the protocol (README.md)
    bool loses_ = false, has_lost_ = false, finds_new_parents_ = false, death_is_known_ = false;
    std::string wrong_;
};

}  // namespace tutti::simulation
