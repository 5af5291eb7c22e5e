// A world of ranks in one process and in a time of its own: each has its lifelines (rendezvous::Lifelines), and the
// simulation is the network, the kernels and the processes. By the seed, ranks come late, leave, stop for a while or
// for ever, die, or lose their host; lifelines break; ranks begin news. At the end the promises of LIFELINES.md are
// checked.
//
// Threads: one.
#pragma once

#include "rendezvous/lifelines.hpp"
#include "simulation/chance.hpp"

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <vector>

namespace tutti::simulation {

enum class Strike : std::uint8_t { leave, stop, death, host_loss, cut, news };

class LifelinesWorld {
 public:
    explicit LifelinesWorld(std::uint64_t seed);
    ~LifelinesWorld();
    LifelinesWorld(const LifelinesWorld&) = delete;
    LifelinesWorld& operator=(const LifelinesWorld&) = delete;

    /// Runs it to its end. Returns the first promise that it breaks, in words; empty: it keeps all.
    std::string run();
    bool has(Strike strike) const { return strikes_.contains(strike); }
    /// Whether some rank has been informed of a death, and whether one has found a new parent.
    bool death_is_known() const noexcept { return death_is_known_; }
    bool has_reparented() const noexcept { return has_reparented_; }
    /// From now on a lifeline loses what it carries now and then, as no lifeline does.
    void lose_news() noexcept { loses_ = true; }
    bool has_lost_any() const noexcept { return has_lost_; }

 private:
    struct Rank;
    struct Connection;
    struct Parcel {
        Instant when;
        std::string bytes;
        std::optional<rendezvous::LineEnd::How> end;
    };
    struct Side {
        Connection* connection = nullptr;
        int number = 0;  // 0: of the rank that made it
    };
    using OnFailure = std::function<void(rendezvous::DialFailure)>;

    // Time and processes.
    void at(Instant when, std::function<void()> act);
    void at_rank(int rank, Instant when, std::function<void()> act);
    Instant soon(int from, int to);
    Rank& rank(int number) { return *ranks_[static_cast<std::size_t>(number)]; }
    const Rank& rank(int number) const { return *ranks_[static_cast<std::size_t>(number)]; }
    void after_event(Rank& rank);
    void perform(Rank& rank);
    void come(Rank& rank);
    void join(Rank& rank, std::size_t tried);
    void resume(Rank& rank);
    // Connections.
    Connection& connect(int from, int to);
    bool attach_unseen(Rank& rank, const rendezvous::Dial& wanted);
    void dial(Rank& rank, const rendezvous::Dial& wanted);
    void dial_in_background(Rank& rank, const rendezvous::Dial& wanted, const OnFailure& on_failure);
    void give_up(Side side);
    void attach(Side side, rendezvous::Role role, bool confirmed);
    void put(Side to, Parcel parcel);
    void send(Side from, const std::string& bytes);
    void send_end(Side from, rendezvous::LineEnd::How how);
    void close(Side side);
    void read(Side side);
    void read_answer(Side side, const Parcel& parcel);
    void read_end(Rank& rank, Side side, rendezvous::LineEnd::How how);
    // What may happen.
    void plan_strikes();
    void strike(Strike strike);
    void leave(Rank& rank);
    void linger(Rank& rank);
    void end_by_leaving(Rank& rank);
    void close_all(Rank& rank);
    void stop(Rank& rank);
    void die(Rank& rank);
    void note_witnesses(Rank& rank);
    void lose_host(const std::string& host);
    void cut(Rank& rank);
    void begin_news(Rank& rank);
    bool is_attached(const Rank& rank) const;
    // Checks: they fail the test.
    void inform(Rank& rank, const rendezvous::Inform& news);
    void check_verdict(const Rank& rank, const rendezvous::Verdict& verdict);
    void check_settled(Rank& rank);
    void check_end();
    bool is_given_up(const Rank& rank) const;
    void check_tree();
    void wrong(const std::string& what);

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
    std::vector<std::unique_ptr<Rank>> ranks_;
    std::list<Connection> connections_;
    std::set<Strike> strikes_;
    std::set<std::string> lost_hosts_;
    bool may_stay_unknown_ = false;  // the end of the world: a limit of the protocol (README.md)
    bool loses_ = false, has_lost_ = false, has_reparented_ = false, death_is_known_ = false;
    std::string wrong_;
};

}  // namespace tutti::simulation
