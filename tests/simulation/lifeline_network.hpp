// LifelineNetwork: ranks of one world with their lifelines (rendezvous::Lifelines), and between them a simulated
// network, kernels and processes: a connection carries bytes in order and late, a process is stopped, leaves or dies,
// a host is lost, a connection breaks, the network falls into two halves. The heir has the time and the events, and
// hears what the lifelines inform their ranks of.
//
// Threads: one.
#pragma once

#include "core/deadline.hpp"
#include "rendezvous/lifelines.hpp"
#include "rendezvous/linger.hpp"

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace tutti::simulation {

class LifelineNetwork {
 public:
    /// After which a rank of another host sees that a process has ended whose connections something keeps open.
    static constexpr std::chrono::milliseconds outlived_time{2000};

    LifelineNetwork(const LifelineNetwork&) = delete;
    LifelineNetwork& operator=(const LifelineNetwork&) = delete;
    virtual ~LifelineNetwork();

 protected:
    /// How long a rank tries to reach its first parent.
    static constexpr std::chrono::milliseconds joining_limit{20'000};

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
    struct Connection {
        struct End {
            int rank = -1;
            rendezvous::LineId line = 0;  // none yet
            bool open = true;
            std::deque<Parcel> inbox{};
            Instant last{};
            std::string early{};                             // of the answer that a dial waits for
            std::function<void(bool answered)> on_answer{};  // while a dial waits
        };
        std::array<End, 2> ends;
        bool is_torn = false;  // nothing more comes through

        End& end(Side side) { return ends.at(static_cast<std::size_t>(side.number)); }
        End& other(Side side) { return ends.at(static_cast<std::size_t>(1 - side.number)); }
    };
    struct Rank {
        rendezvous::Roster roster;
        std::unique_ptr<rendezvous::Lifelines> lines{};  // null: it has not come yet
        bool joined = false;                             // it has its first lifeline, if it needs one
        bool stopped = false, has_been_stopped = false;
        bool leaving = false, closed = false;  // closed: nothing listens or is connected any more
        bool died = false, process_ended = false;
        bool cut = false;                          // one of its lifelines broke
        std::chrono::milliseconds lag{0};          // of all that it sends and gets
        std::optional<rendezvous::Linger> stay{};  // while it leaves
        std::map<rendezvous::LineId, Side> sides{};
        std::vector<std::function<void()>> held{};  // events that wait until it runs
        std::optional<Instant> tick{};

        int number() const { return roster.rank; }
        const std::string& host() const { return roster.own().host_key; }
        bool runs() const { return lines && !stopped && !closed; }
    };

    /// `silence_limit`: after which kernels give up a connection to a host that does not answer. The references must
    /// outlive it.
    LifelineNetwork(std::mt19937_64& chance, const Instant& now, std::chrono::milliseconds silence_limit);
    void add_ranks(std::vector<rendezvous::Card> cards, std::uint64_t world);
    Rank& rank(int number) { return *ranks_[static_cast<std::size_t>(number)]; }
    const Rank& rank(int number) const { return *ranks_[static_cast<std::size_t>(number)]; }
    const std::vector<std::unique_ptr<Rank>>& ranks() const noexcept { return ranks_; }

    // What happens to a rank.
    void come(Rank& rank);
    void leave(Rank& rank);
    void stop(Rank& rank);
    void resume(Rank& rank);
    void die(Rank& rank);
    void close_all(Rank& rank);
    void lose_host(const std::string& host);
    void cut(Rank& rank);
    /// Until then nothing passes between these hosts and the others.
    void part(std::set<std::string> hosts, Instant until);
    bool is_parted(const Rank& one, const Rank& other) const;
    bool is_lost(const std::string& host) const { return lost_hosts_.contains(host); }
    /// After its lifelines were called.
    void after_event(Rank& rank);
    /// When something that a rank sends now is with another.
    Instant soon(int from, int to);
    void at_rank(int rank, Instant when, std::function<void()> act);

    // What the heir adds.
    virtual void at(Instant when, std::function<void()> act) = 0;
    virtual void inform(Rank& rank, const rendezvous::Inform& news) = 0;
    virtual void after(Rank&) {}
    virtual void cannot_join(Rank& rank) = 0;
    virtual void has_left(Rank& rank) = 0;
    virtual void has_reparented() {}
    /// Whether a lifeline loses what is sent now, as none does.
    virtual bool loses() { return false; }
    virtual void wrong(const std::string& what) = 0;

 private:
    using OnFailure = std::function<void(rendezvous::DialFailure)>;

    void perform(Rank& rank);
    void join(Rank& rank, std::size_t tried);
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
    void linger(Rank& rank);
    void end_by_leaving(Rank& rank);

    std::mt19937_64& chance_;
    const Instant& now_;
    const std::chrono::milliseconds silence_limit_;
    std::vector<std::unique_ptr<Rank>> ranks_;
    std::list<Connection> connections_;
    std::set<std::string> lost_hosts_, parted_;
    Instant parted_until_{};
};

}  // namespace tutti::simulation
