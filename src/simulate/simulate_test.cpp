// Plays against closed forms, and classes of ranks against all of them.
#include "simulate/answer.hpp"

#include "algorithm/plan.hpp"
#include "algorithm/select.hpp"
#include "simulate/cast.hpp"
#include "simulate/goal.hpp"
#include "simulate/test_machine.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <sstream>

namespace tutti::simulate {
namespace {

using algorithm::StepCosts;

constexpr double o_send = 3, o_receive = 2, latency = 10, us_a_byte = 1e-3, sum_us_a_byte = 0.25e-3;

Question question(Collective collective, int ranks, int hosts, std::uint64_t count, std::string algorithm = {}) {
    Question q;
    q.costs = round_numbers();
    q.layout = layout_of_hosts(ranks, hosts);
    q.request.collective = collective;
    q.request.element_bytes = 4;
    q.request.count = count;
    const CollectiveTraits& traits = traits_of(collective);
    if (traits.has_blocks()) q.request.counts.assign(static_cast<std::size_t>(ranks), count / ranks);
    if (traits.exchanges()) set_even_blocks(q.request, ranks, count / ranks);
    if (!algorithm.empty()) q.request.algorithm = std::move(algorithm);
    return q;
}

// As no rank stands for another.
Question whole(Question q) {
    q.conditions.delays_us.emplace_back(0, 0.0);
    return q;
}

TEST(Simulate, OneMessageIsLogGP) {
    const Answer a = answer(question(Collective::broadcast, 2, 2, 1000, "binomial"));
    EXPECT_NEAR(a.play.end_us, o_send + 4000 * us_a_byte + latency + o_receive, 1e-6);
    EXPECT_EQ(a.play.messages, 1U);
    EXPECT_EQ(a.play.bytes, 4000);
}

TEST(Simulate, RingIsItsClosedForm) {
    for (const int n : {2, 3, 8, 64, 1024}) {
        const std::uint64_t slice = 100;  // elements
        const Question q = question(Collective::all_reduce, n, n, slice * n, "ring");
        const double bytes = 4.0 * slice;
        // Each step: a core sends, then receives; the last n-1 steps combine nothing.
        const double step = o_send + bytes * us_a_byte + latency + o_receive;
        const double formula = 2 * (n - 1) * step + (n - 1) * bytes * sum_us_a_byte;
        const Answer by_classes = answer(q), of_all = answer(whole(q));
        EXPECT_NEAR(of_all.play.end_us, formula, 1e-3 * formula) << n;
        EXPECT_DOUBLE_EQ(by_classes.play.end_us, of_all.play.end_us) << n;
        EXPECT_TRUE(by_classes.exact && of_all.exact);
        EXPECT_EQ(by_classes.played, n > 1 ? 1 : n);
        EXPECT_EQ(of_all.played, n);
    }
}

TEST(Simulate, RecursiveDoublingIsItsClosedForm) {
    const std::uint64_t count = 1000;
    for (const int n : {2, 4, 16, 256}) {
        const Answer a = answer(question(Collective::all_reduce, n, n, count, "recursive_doubling"));
        const double bytes = 4.0 * count;
        const double formula =
            std::log2(n) * (o_send + bytes * us_a_byte + latency + o_receive + bytes * sum_us_a_byte);
        EXPECT_NEAR(a.play.end_us, formula, 1e-3 * formula) << n;
    }
}

// A node sends to its subtrees one after the other: the last to hear is that behind the most sends and ways.
TEST(Simulate, TreeBroadcastIsItsClosedForm) {
    const double bytes = 4000, send = o_send + bytes * us_a_byte, way = latency + o_receive;
    for (const int n : {2, 8, 100, 1000}) {
        std::vector<double> has(static_cast<std::size_t>(n), 0);
        double last = 0;
        for (int rank = 0; rank < n; ++rank) {
            std::vector<int> children;
            for (int distance = 1; (rank & distance) == 0 && rank + distance < n && distance < n; distance *= 2)
                children.push_back(rank + distance);
            double now = has[static_cast<std::size_t>(rank)];
            for (auto child = children.rbegin(); child != children.rend(); ++child) {
                now += send;
                has[static_cast<std::size_t>(*child)] = now + way;
                last = std::max(last, now + way);
            }
        }
        const Answer a = answer(question(Collective::broadcast, n, n, 1000, "binomial"));
        EXPECT_NEAR(a.play.end_us, last, 1e-6 * last) << n;
    }
}

// A rank that only sends runs ahead: calls of a broadcast cost the root's work alone. In a ring everyone waits.
TEST(Simulate, CallsOneBehindTheOther) {
    Question q = question(Collective::broadcast, 2, 2, 1000, "binomial");
    const Answer one = answer(q);
    q.calls = 10;
    const Answer ten = answer(q);
    EXPECT_EQ(ten.play.messages, 10U);
    EXPECT_EQ(ten.play.bytes, 10 * one.play.bytes);
    EXPECT_NEAR(ten.play.end_us, one.play.end_us + 9 * (o_send + 4000 * us_a_byte), 1e-6);
    EXPECT_DOUBLE_EQ(ten.call_us, ten.play.end_us / 10);
    for (const char* name : {"ring", "rails", "hierarchical"}) {
        q = question(Collective::all_reduce, 16, 4, 16 * 1600, name);
        const double once = answer(whole(q)).play.end_us;
        q.calls = 5;
        const Answer five = answer(whole(q));
        EXPECT_GT(five.play.end_us, 3.5 * once) << name;
        EXPECT_LT(five.play.end_us, 5.1 * once) << name;
    }
}

// Two messages through one card take twice as long; each link carries the schedule's bytes.
TEST(Simulate, LinksShareTheirCapacityAndKeepTheirBytes) {
    Question q = question(Collective::all_reduce, 16, 4, 16 * 4096, "rails");
    q.network = {.name = "test", .us = 10, .nic_gbps = 1};
    const Answer shared = answer(whole(q));
    q.network.nic_gbps = 100;
    const Answer wide = answer(whole(q));
    EXPECT_GT(shared.play.end_us, wide.play.end_us);
    std::map<int, double> out, in;
    for (const algorithm::Layout& layout = q.layout; Rank rank : std::vector<Rank>{0, 4, 8, 12}) {
        for (Rank r = rank; r < rank + 4; ++r) {
            algorithm::Request request = q.request;
            request.rank = r;
            const schedule::Schedule s = algorithm::plan(layout, request);
            for (const schedule::Step& step : s.steps) {
                if (step.kind == schedule::StepKind::send) out[rank / 4] += algorithm::operand_bytes(s, step, 4);
                if (schedule::receives(step.kind)) in[rank / 4] += static_cast<double>(bytes_of(s, step.target, 4));
            }
        }
    }
    double all = 0;
    for (int host = 0; host < 4; ++host) {
        EXPECT_EQ(shared.play.links[static_cast<std::size_t>(host)].bytes, out[host]);
        EXPECT_EQ(shared.play.links[static_cast<std::size_t>(4 + host)].bytes, in[host]);
        all += out[host];
    }
    EXPECT_EQ(shared.play.bytes, all);
    // One card of 1 GB/s for four streams of 1 GB/s: no quicker than its bytes.
    EXPECT_GE(shared.play.end_us, out[0] * us_a_byte);
}

TEST(Simulate, TwoStreamsThroughOneCardHaveHalfEach) {
    // Ranks 0 and 1 of host 0 each send to a host of their own: 2 messages of 4000 bytes through a card of 1 GB/s.
    const Links links({.name = "test", .us = 0, .nic_gbps = 1}, 4, 4);
    Flows flows(links, 1);
    std::vector<Flows::Change> changes;
    flows.begin(links.way(0, 0, 1, 0), 4000, 0);
    flows.begin(links.way(0, 1, 2, 0), 4000, 0);
    flows.settle(0, changes);
    std::map<std::uint32_t, double> ends;
    for (const auto& change : changes) ends[change.flow] = change.end_us;
    EXPECT_EQ(ends.size(), 2U);
    for (const auto& [flow, us] : ends) EXPECT_DOUBLE_EQ(us, 8);
    // One has passed after half of the time: the other gets all of the card.
    flows.end(0, 4);
    changes.clear();
    flows.settle(4, changes);
    ASSERT_EQ(changes.size(), 1U);
    EXPECT_DOUBLE_EQ(changes[0].end_us, 4 + 2);
}

TEST(Simulate, SameInputSameOutput) {
    Question q = question(Collective::all_reduce, 60, 20, 60 * 100, "rails");
    q.conditions.jitter = 0.3;
    const Answer a = answer(q), b = answer(q);
    EXPECT_EQ(a.play.finish_us, b.play.finish_us);
    q.conditions.seed = 2;
    EXPECT_NE(answer(q).play.finish_us, a.play.finish_us);
    q.conditions.jitter = 0;
    EXPECT_LT(answer(whole(q)).play.end_us, a.play.end_us);
}

TEST(Simulate, ADelayShowsWhereItIsAndBehind) {
    Question q = question(Collective::broadcast, 8, 8, 100, "binomial");
    const Answer usual = answer(whole(q));
    q.conditions.delays_us = {{4, 5000.0}};  // the root of ranks 5, 6 and 7
    const Answer late = answer(q);
    for (std::size_t rank = 0; rank < 8; ++rank) {
        if (rank < 4)
            EXPECT_DOUBLE_EQ(late.play.finish_us[rank], usual.play.finish_us[rank]) << rank;
        else
            EXPECT_GE(late.play.finish_us[rank], 5000) << rank;
    }
    const auto on_path = [&](Rank rank) {
        return std::ranges::any_of(late.play.path, [&](const Moment& m) { return m.rank == rank; });
    };
    EXPECT_TRUE(on_path(4));
}

TEST(Simulate, ASlowLinkSlowsThoseThatUseIt) {
    Question q = question(Collective::broadcast, 4, 4, 10000, "binomial");
    const Answer usual = answer(whole(q));
    q.conditions.slow_links = {{2, 3, 0.1}};  // rank 2 passes on to 3
    const Answer slow = answer(q);
    for (const std::size_t rank : {0, 1, 2}) EXPECT_DOUBLE_EQ(slow.play.finish_us[rank], usual.play.finish_us[rank]);
    EXPECT_NEAR(slow.play.finish_us[3] - usual.play.finish_us[3], 40000 * us_a_byte * 9, 1e-3);
    q.conditions.slow_links = {{0, 3, 0.1}};  // nobody uses it
    EXPECT_DOUBLE_EQ(answer(q).play.end_us, usual.play.end_us);
}

TEST(Simulate, ADeathIsToldAlongTheTree) {
    Question q = question(Collective::all_reduce, 16, 16, 1600, "ring");
    q.conditions.kill = {.rank = 4, .us = 50};
    const Answer a = answer(q);
    const double hop = 15;
    EXPECT_EQ(a.told_us[4], 50);
    for (const int beside : {0, 5, 6}) EXPECT_DOUBLE_EQ(a.told_us[static_cast<std::size_t>(beside)], 50 + hop);
    for (const int next : {1, 2, 7, 8}) EXPECT_DOUBLE_EQ(a.told_us[static_cast<std::size_t>(next)], 50 + 2 * hop);
    EXPECT_DOUBLE_EQ(a.told_us[15], 50 + 5 * hop);  // 4 0 8 12 14 15
    for (const double us : a.play.finish_us) EXPECT_EQ(us, never);
    // After the end a death changes no result.
    q.conditions.kill = {.rank = 4, .us = 1e9};
    for (const double us : answer(q).play.finish_us) EXPECT_LT(us, never);
}

// What cast.cpp knows by name holds for every rank, collective and algorithm.
TEST(Simulate, TwinsHaveTheSameSteps) {
    std::set<std::string> twinned;
    for (const auto& [ranks, hosts] : {std::pair{12, 12}, {24, 6}, {40, 5}, {64, 64}, {7, 7}}) {
        for (int c = 1; c <= collective_count; ++c) {
            for (const std::uint64_t a_rank : {64, 3}) {
                const auto collective = static_cast<Collective>(c);
                Question q = question(collective, ranks, hosts, a_rank * static_cast<std::uint64_t>(ranks * ranks));
                const StepCosts costs(q.layout, q.costs, 0);
                for (const std::string& name : algorithm::applicable(q.layout, q.request)) {
                    q.request.algorithm = name;
                    algorithm::Plans plans(q.layout, q.request);
                    // Where a slice of the staging area ends inside a slice of the ring, other local steps come first.
                    const bool by_hosts = name == "rails" || name == "hierarchical" || name == "circulant";
                    for (Rank rank = 0; rank < ranks; ++rank) {
                        const Rank twin = twin_of(name, collective, ranks, ranks / hosts, 0, rank);
                        if (twin == rank) continue;
                        twinned.insert(std::string(to_string(collective)) + " " + name);
                        EXPECT_LE(likeness(compile(plans.of(rank), rank, Spread::all(ranks), 4, costs),
                                           compile(plans.of(twin), twin, Spread::all(ranks), 4, costs), 0),
                                  by_hosts ? Likeness::ordered : Likeness::rounded)
                            << to_string(collective) << ' ' << name << ' ' << ranks << ' ' << hosts << ' ' << rank;
                    }
                }
            }
        }
    }
    EXPECT_GE(twinned.size(), 20U) << "the table of symmetric algorithms is not used";
}

// Ranks that stand for others have the others' times: exactly where that is promised, else nearly.
TEST(Simulate, ClassesAreAsGoodAsAllRanks) {
    for (const auto& [ranks, hosts] : {std::pair{64, 16}, {80, 40}, {256, 64}}) {
        for (const Network& network : {Network{}, network_named("ethernet-100"), network_named("fat-tree")}) {
            for (const auto& [collective, name] :
                 std::initializer_list<std::pair<Collective, const char*>>{{Collective::all_reduce, "rails"},
                                                                           {Collective::all_reduce, "hierarchical"},
                                                                           {Collective::all_reduce, "ring"},
                                                                           {Collective::all_reduce, "circulant"},
                                                                           {Collective::barrier, "hierarchical"},
                                                                           {Collective::barrier, "dissemination"}}) {
                Question q = question(collective, ranks, hosts, 1 << 18, name);
                q.network = network;
                const Answer by_classes = answer(q), of_all = answer(whole(q));
                const double slack = by_classes.exact ? 1e-9 : 0.05;
                EXPECT_NEAR(by_classes.play.end_us, of_all.play.end_us, slack * of_all.play.end_us)
                    << name << ' ' << ranks << ' ' << network.name << ": " << by_classes.words;
            }
        }
    }
}

// GOAL as LogGOPSim's compiler reads it. Throws std::runtime_error for anything else.
struct GoalText {
    struct Message {
        int from, to, tag;
        long bytes;
        auto operator<=>(const Message&) const = default;
    };
    std::vector<Message> sends, receives;
    int ranks = 0, calcs = 0, requires_lines = 0;
};
GoalText parsed_goal(const std::string& text) {
    GoalText goal;
    std::istringstream lines(text);
    int rank = -1, seen = 0;
    std::set<std::string> labels;
    const auto expect = [](bool good, const std::string& line) {
        if (!good) throw std::runtime_error("GOAL: " + line);
    };
    for (std::string line; std::getline(lines, line);) {
        if (line.empty()) continue;
        std::istringstream words(line);
        std::string first, second;
        words >> first >> second;
        if (first == "num_ranks") {
            goal.ranks = std::stoi(second);
        } else if (first == "rank") {
            expect(rank == -1 && line.ends_with(" {") && std::stoi(second) == seen, line);
            rank = seen++;
            labels.clear();
        } else if (first == "}") {
            expect(rank >= 0, line);
            rank = -1;
        } else if (second == "requires") {
            std::string other;
            words >> other;
            expect(labels.contains(first) && labels.contains(other) && first != other, line);
            ++goal.requires_lines;
        } else {
            expect(rank >= 0 && first.ends_with(":") && labels.insert(first.substr(0, first.size() - 1)).second, line);
            if (second == "calc") {
                long ns = -1;
                expect(static_cast<bool>(words >> ns) && ns >= 0, line);
                ++goal.calcs;
            } else {
                std::string bytes, direction, tag;
                int peer = -1, number = -1;
                expect(static_cast<bool>(words >> bytes >> direction >> peer >> tag >> number) && tag == "tag", line);
                expect(bytes.ends_with("b") && peer >= 0 && peer < goal.ranks && peer != rank, line);
                const long size = std::stol(bytes.substr(0, bytes.size() - 1));
                if (second == "send" && direction == "to")
                    goal.sends.push_back({rank, peer, number, size});
                else if (second == "recv" && direction == "from")
                    goal.receives.push_back({peer, rank, number, size});
                else
                    expect(false, line);
            }
        }
    }
    expect(rank == -1 && seen == goal.ranks, "the end");
    return goal;
}

TEST(Simulate, GoalHasAllMessages) {
    for (const char* name : {"ring", "rails", "hierarchical", "recursive_halving"}) {
        const Question q = question(Collective::all_reduce, 12, 3, 12000, name);
        GoalText goal = parsed_goal(goal_of(q));
        EXPECT_EQ(goal.ranks, 12);
        EXPECT_GT(goal.sends.size(), 12U);
        EXPECT_GT(goal.requires_lines, 12);
        std::ranges::sort(goal.sends);
        std::ranges::sort(goal.receives);
        EXPECT_EQ(goal.sends, goal.receives) << name;
        const auto messages = std::ranges::count(goal.sends, 0, &GoalText::Message::tag);
        EXPECT_EQ(static_cast<std::uint64_t>(messages), answer(whole(q)).play.messages) << name;
    }
}

TEST(Simulate, AHundredThousandRanks) {
    Question q = question(Collective::broadcast, 100000, 12500, 1024, "hierarchical");
    q.network = network_named("ethernet-100");
    const Answer tree = answer(q);
    EXPECT_EQ(tree.played, 100000);
    EXPECT_TRUE(std::ranges::none_of(tree.play.finish_us, [](double us) { return us <= 0 || us == never; }));
    q = question(Collective::barrier, 100000, 12500, 0);
    q.network = network_named("fat-tree");
    const Answer barrier = answer(q);
    EXPECT_EQ(barrier.algorithm, "hierarchical");
    EXPECT_EQ(barrier.played, 32 * 8);
    EXPECT_GT(barrier.play.end_us, std::ceil(std::log2(12500)) * (o_send + latency - 2 + o_receive));
}

}  // namespace
}  // namespace tutti::simulate
