// The rule of succession, simulated: two servers, their clients and a network with delays, cuts, stops and kills, by
// seeds. Never two servers that serve, and nothing lost that a client was told.
#include "store/succession.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace tutti::store {
namespace {

using namespace std::chrono_literals;

/// A change is its number; the contents are the set of changes made.
struct Message {
    enum class Kind { change, term, pulse, have, goes_on, end_of_all, end, ask, vote, request, answer } kind{};
    int from = 0;
    std::uint64_t number = 0;  // of the change, sequence, term
    Instant pulse{};
    bool flag = false;        // asked; in order
    std::uint64_t value = 0;  // a client's change
    ClientId client = 0;
};

struct Server {
    Succession rule;
    bool dead = false;
    Instant stopped_until{};
    std::uint64_t seq = 0;
    std::set<std::uint64_t> contents{};
    struct Held {
        std::uint64_t seq;
        int client;
        std::uint64_t value;
    };
    std::deque<Held> held{};
    Instant heard_pulse{};
    Term notice_term = 0;
    bool connected = true;
};

/// Nodes 0 and 1 are the primary and its standby, the others clients 2, 3, ….
class World {
 public:
    explicit World(std::uint64_t seed) : random_(seed), clients_(1 + static_cast<int>(random_() % 6)) {
        servers_.push_back({Succession(false)});
        servers_.push_back({Succession(true)});
        for (int c = 0; c < clients_; ++c) {
            state_.push_back({});
            servers_[0].rule.came(static_cast<ClientId>(c), ++servers_[0].seq);
        }
    }

    std::string run() {
        // The standby gets the contents: the clients with their votes.
        Server& a = servers_[0];
        a.rule.begin_pair(++a.seq);
        for (int c = 0; c < clients_; ++c)
            send(0, 1, {.kind = Message::Kind::change, .number = a.seq, .client = static_cast<ClientId>(c)});
        send(0, 1, {.kind = Message::Kind::end_of_all, .number = a.seq});
        for (now_ = Instant(1h); now_ < Instant(1h) + 25s && fault_.empty(); now_ += 10ms) step();
        return fault_;
    }
    int takeovers = 0, alone = 0;

 private:
    struct Client {
        Ballot ballot{};
        int server = 0;
        bool dead = false;
        bool joined = true;                    // and has been told so
        std::optional<std::uint64_t> asked{};  // the change that is not answered
        Instant silent_since = Instant(1h);
    };
    struct Flying {
        Instant at;
        Message message;
    };

    bool chance(unsigned per_10000) { return random_() % 10000 < per_10000; }
    bool is_dead(int node) const {
        return node < 2 ? servers_[static_cast<std::size_t>(node)].dead
                        : state_[static_cast<std::size_t>(node - 2)].dead;
    }
    bool is_cut(int from, int to) const { return cuts_.contains({from, to}); }

    // A stream: in order, late, and kept while the way is cut.
    void send(int from, int to, Message message) {
        message.from = from;
        if (from < 2 && to < 2 && !servers_[static_cast<std::size_t>(from)].connected) return;
        ways_[{from, to}].push_back({now_ + std::chrono::milliseconds(random_() % 40), message});
    }

    void step() {
        chaos();
        for (auto& [way, queue] : ways_) {
            const auto [from, to] = way;
            if (to < 2 && servers_[static_cast<std::size_t>(to)].stopped_until > now_) continue;
            while (!queue.empty() && queue.front().at <= now_ && !is_cut(from, to)) {
                const Message message = queue.front().message;
                queue.pop_front();
                if (is_dead(to)) continue;
                to < 2 ? serve(to, message) : hear(to - 2, message);
            }
        }
        for (int s = 0; s < 2; ++s) {
            if (!servers_[static_cast<std::size_t>(s)].dead &&
                servers_[static_cast<std::size_t>(s)].stopped_until <= now_)
                look(s);
        }
        for (int c = 0; c < clients_; ++c) {
            if (!state_[static_cast<std::size_t>(c)].dead) work(c);
        }
        check();
    }

    void chaos() {
        if (now_ < Instant(1h) + 500ms) return;
        if (chance(30)) {
            const int a = static_cast<int>(random_() % static_cast<unsigned>(clients_ + 2)),
                      b = static_cast<int>(random_() % static_cast<unsigned>(clients_ + 2));
            cuts_.insert({a, b});
            if (chance(7000)) cuts_.insert({b, a});
        }
        if (chance(60) && !cuts_.empty()) cuts_.erase(cuts_.begin());
        if (chance(5)) {  // between two halves
            for (int a = 0; a < clients_ + 2; ++a) {
                for (int b = 0; b < clients_ + 2; ++b) {
                    if (a % 2 != b % 2) cuts_.insert({a, b});
                }
            }
        }
        if (chance(8)) cuts_.clear();
        if (chance(10)) servers_[random_() % 2].stopped_until = now_ + std::chrono::milliseconds(random_() % 6000);
        if (chance(6)) kill(static_cast<int>(random_() % 2));
        if (chance(5)) state_[random_() % state_.size()].dead = true;
        if (Server& a = servers_[0]; !a.dead && a.stopped_until <= now_ && a.rule.serves()) come_and_go(a);
        // Something between them ends the connection, and both processes live.
        if (chance(4) && servers_[0].connected) {
            for (int s = 0; s < 2; ++s) {
                servers_[static_cast<std::size_t>(s)].connected = false;
                ways_[{1 - s, s}].clear();
                if (!servers_[static_cast<std::size_t>(s)].dead)
                    servers_[static_cast<std::size_t>(s)].rule.other_ended(false, false, now_);
            }
        }
    }

    // The primary loses a client, which may live, and takes new ones.
    void come_and_go(Server& a) {
        if (chance(15)) change_voters(a, static_cast<ClientId>(random_() % state_.size()), true);
        if (!chance(10) || clients_ > 9) return;
        state_.push_back({.joined = false});
        change_voters(a, static_cast<ClientId>(clients_), false);
        a.held.push_back({a.seq, clients_++, 0});
    }
    void change_voters(Server& a, ClientId client, bool leaves) {
        leaves ? a.rule.left(client, ++a.seq) : a.rule.came(client, ++a.seq);
        if (a.rule.has_standby())
            send(0, 1, {.kind = Message::Kind::change, .number = a.seq, .flag = leaves, .client = client});
    }

    // Its kernel says so to the other one: behind all that was sent, or at once, when it drops the rest.
    void kill(int s) {
        Server& server = servers_[static_cast<std::size_t>(s)];
        if (server.dead || servers_[static_cast<std::size_t>(1 - s)].dead) return;  // one of the two lives
        server.dead = true;
        const bool in_order = chance(5000);
        if (!in_order) ways_[{s, 1 - s}].clear();
        if (server.connected) send(s, 1 - s, {.kind = Message::Kind::end, .flag = in_order});
    }

    void serve(int s, const Message& m) {
        Server& me = servers_[static_cast<std::size_t>(s)];
        using Kind = Message::Kind;
        const bool of_other = m.from < 2;
        if (of_other && s == 1 && !me.rule.serves() && me.rule.role() != Succession::Role::retired &&
            m.kind != Kind::end)
            me.rule.heard(now_);
        if (of_other && s == 1 && (me.rule.serves() || me.rule.role() == Succession::Role::retired)) return;
        switch (m.kind) {
            case Kind::change:
                if (m.value != 0)
                    me.contents.insert(m.value);
                else if (m.flag)
                    me.rule.left(m.client, m.number);
                else
                    me.rule.came(m.client, m.number);
                me.seq = m.number;
                break;
            case Kind::end_of_all: me.seq = m.number; break;
            case Kind::term:
                me.seq = m.number;
                me.rule.follow(m.value, now_);
                break;
            case Kind::pulse: me.heard_pulse = m.pulse; break;
            case Kind::have:
                if (me.rule.acked(m.number, m.pulse, m.flag, now_)) {
                    const Term term = me.rule.new_term(++me.seq);
                    send(0, 1, {.kind = Kind::term, .number = me.seq, .value = term});
                }
                release(s);
                return;
            case Kind::goes_on: me.rule.other_goes_on(); return;
            case Kind::end:
                me.connected = false;
                me.rule.other_ended(true, m.flag, now_);
                return;
            case Kind::vote: me.rule.vote(m.client, m.number, now_); return;
            case Kind::request:
                if (!me.rule.serves()) return;
                if (!me.contents.contains(m.value)) {
                    me.contents.insert(m.value);
                    ++me.seq;
                    if (me.rule.has_standby())
                        send(s, 1 - s, {.kind = Kind::change, .number = me.seq, .value = m.value});
                }
                me.held.push_back({me.seq, m.from - 2, m.value});
                release(s);
                return;
            default: return;
        }
        if (s == 1)
            send(1, 0, {.kind = Kind::have, .number = me.seq, .pulse = me.heard_pulse, .flag = me.rule.has_asked()});
    }

    void release(int s) {
        Server& me = servers_[static_cast<std::size_t>(s)];
        while (!me.held.empty() && me.rule.may_answer(me.held.front().seq, now_)) {
            const auto held = me.held.front();
            me.held.pop_front();
            if (held.value != 0) told_.insert(held.value);
            for (const std::uint64_t value : told_) {  // whoever answers has all that anybody was told
                if (!me.contents.contains(value))
                    fault_ = fmt::format("server {} answers without change {} at {} ms", s, value,
                                         (now_ - Instant(1h)) / 1ms);
            }
            send(s, held.client + 2, {.kind = Message::Kind::answer, .number = me.rule.term(), .value = held.value});
        }
    }

    void look(int s) {
        Server& me = servers_[static_cast<std::size_t>(s)];
        if (me.rule.has_standby() && (now_ - Instant(1h)) / 10ms % 10 == 0 && me.connected)
            send(0, 1, {.kind = Message::Kind::pulse, .pulse = now_});
        if (me.rule.role() == Succession::Role::alone && me.rule.term() > 1 && me.notice_term != me.rule.term()) {
            me.notice_term = me.rule.term();
            ++(s == 1 ? takeovers : alone);
            if (me.connected) send(s, 1 - s, {.kind = Message::Kind::goes_on});
        }
        release(s);
        if (me.rule.asks(now_) && (now_ - Instant(1h)) / 10ms % 5 == 0) {
            for (int c = 0; c < clients_; ++c) {
                if (state_[static_cast<std::size_t>(c)].server == s)
                    send(s, c + 2, {.kind = Message::Kind::ask, .number = me.rule.term()});
            }
        }
    }

    void hear(int c, const Message& m) {
        Client& me = state_[static_cast<std::size_t>(c)];
        if (m.kind == Message::Kind::answer && m.value == 0) {
            me.joined = true;
            me.ballot.know(m.number);
        } else if (m.kind == Message::Kind::ask) {
            if (me.joined && me.ballot.grant(std::to_string(m.from), m.number))
                send(c + 2, m.from,
                     {.kind = Message::Kind::vote, .number = m.number, .client = static_cast<ClientId>(c)});
        } else if (m.kind == Message::Kind::answer && me.asked == m.value) {
            me.asked.reset();
            me.silent_since = now_;
        }
    }

    // It asks again, from time to time at the other server.
    void work(int c) {
        Client& me = state_[static_cast<std::size_t>(c)];
        const bool again = (now_ - Instant(1h)) / 10ms % 20 == c % 20;
        if (!me.joined) return;
        if (!me.asked && chance(300)) {
            me.asked = ++last_value_;
            me.silent_since = now_;
        } else if (!me.asked || !again) {
            return;
        }
        if (now_ - me.silent_since > 1200ms) {
            me.server = 1 - me.server;
            me.silent_since = now_;
        }
        send(c + 2, me.server, {.kind = Message::Kind::request, .value = *me.asked});
    }

    void check() {
        int serving = 0;
        for (const Server& server : servers_) serving += !server.dead && server.rule.may_answer(0, now_) ? 1 : 0;
        if (serving > 1) fault_ = fmt::format("both serve at {} ms", (now_ - Instant(1h)) / 1ms);
    }

    std::mt19937_64 random_;
    int clients_;
    Instant now_ = Instant(1h);
    std::vector<Server> servers_;
    std::vector<Client> state_;
    std::map<std::pair<int, int>, std::deque<Flying>> ways_;
    std::set<std::pair<int, int>> cuts_;
    std::set<std::uint64_t> told_;
    std::uint64_t last_value_ = 0;
    std::string fault_;
};

TEST(Succession, never_has_two_servers_that_serve_and_loses_nothing_that_a_client_was_told) {
    const char* worlds = std::getenv("TUTTI_TEST_WORLDS");
    const std::uint64_t count = worlds != nullptr ? std::strtoull(worlds, nullptr, 10) : 300;
    int takeovers = 0, alone = 0;
    for (std::uint64_t seed = 1; seed <= count; ++seed) {
        World world(seed);
        const std::string fault = world.run();
        ASSERT_EQ(fault, "") << "seed " << seed;
        takeovers += world.takeovers;
        alone += world.alone;
    }
    EXPECT_GT(takeovers, static_cast<int>(count / 10));
    EXPECT_GT(alone, static_cast<int>(count / 20));
}

/// A pair whose standby has everything, in term 2, and clients 1, 2, ….
struct Two {
    explicit Two(int clients) {
        for (int c = 1; c <= clients; ++c) {
            primary.came(static_cast<ClientId>(c), 1);
            standby.came(static_cast<ClientId>(c), 1);
        }
        primary.begin_pair(1);
        EXPECT_TRUE(primary.acked(1, now, false, now));
        standby.follow(primary.new_term(2), now);
        primary.acked(2, now, false, now);
    }
    Instant now{1h};
    Succession primary{false}, standby{true};
};

TEST(Succession, of_a_primary_that_ended_in_order_needs_no_votes) {
    Two two(4);
    two.standby.other_ended(true, true, two.now);
    EXPECT_TRUE(two.standby.serves());
    EXPECT_EQ(two.standby.term(), 3U);
}

TEST(Succession, of_a_silent_primary_needs_half_of_the_clients) {
    Two two(4);
    two.now += 1200ms;
    two.standby.vote(1, 2, two.now);  // it has not asked yet
    EXPECT_FALSE(two.standby.asks(two.now));
    two.now += 200ms;
    two.standby.vote(1, 2, two.now);
    two.standby.vote(1, 2, two.now);  // once more
    two.standby.vote(3, 1, two.now);  // of another term
    two.standby.vote(9, 2, two.now);  // nobody's
    EXPECT_FALSE(two.standby.serves());
    two.standby.vote(2, 2, two.now);
    EXPECT_TRUE(two.standby.serves()) << "with equal halves the standby goes on";
}

TEST(Succession, of_a_silent_standby_leaves_a_primary_with_half_of_the_clients_waiting) {
    Two two(4);
    two.now += 1100ms;
    EXPECT_TRUE(two.primary.doubts(two.now));
    EXPECT_FALSE(two.primary.may_answer(0, two.now));
    EXPECT_FALSE(two.primary.asks(two.now)) << "it is patient";
    two.now += 3s;
    two.primary.vote(1, 2, two.now);
    two.primary.vote(2, 2, two.now);
    EXPECT_EQ(two.primary.role(), Succession::Role::paired);
    two.primary.vote(3, 2, two.now);
    EXPECT_EQ(two.primary.role(), Succession::Role::alone);
}

TEST(Succession, within_the_lease_a_primary_goes_on_when_its_standby_has_ended) {
    Two well(1), late(2), there(2);
    well.primary.other_ended(true, false, well.now + 900ms);
    EXPECT_EQ(well.primary.role(), Succession::Role::alone);
    late.primary.other_ended(true, false, late.now + 1100ms);
    EXPECT_EQ(late.primary.role(), Succession::Role::paired) << "the standby may have taken over before it ended";
    there.primary.other_ended(false, false, there.now);
    EXPECT_EQ(there.primary.role(), Succession::Role::paired) << "its process listens still";
}

TEST(Ballot, gives_each_terms_vote_once) {
    Ballot ballot;
    EXPECT_TRUE(ballot.grant("a", 2));
    EXPECT_TRUE(ballot.grant("a", 2));
    EXPECT_FALSE(ballot.grant("b", 2));
    EXPECT_TRUE(ballot.grant("b", 3));
    EXPECT_FALSE(ballot.grant("a", 2));
    ballot.know(3);
    EXPECT_TRUE(ballot.grant("b", 3));
    ballot.know(6);
    EXPECT_FALSE(ballot.grant("a", 5));
    EXPECT_TRUE(ballot.grant("a", 6));
}

}  // namespace
}  // namespace tutti::store
