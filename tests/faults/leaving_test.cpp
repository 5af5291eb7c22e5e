// Ranks that leave while something of theirs is under way: what they sent arrives, or its receiver gets an error; never
// what their memory holds later.
#include "faults/job.hpp"
#include "support/covers.hpp"

#include <algorithm>
#include <cstdlib>

namespace tutti::test {
namespace {

constexpr float value_sent = 7, written_later = -5;
constexpr std::size_t lengths[] = {1000, 20'000, 100'000, 3'000'000};  // in all ways in which a message travels

class Leaving : public ::testing::TestWithParam<TransportKind> {};
INSTANTIATE_TEST_SUITE_P(Over, Leaving, ::testing::Values(TransportKind::shm, TransportKind::tcp),
                         [](const auto& instance) { return to_string(instance.param); });

/// Reports how a receive of `count` numbers ends: "right", "wrong", or the error.
void receive(const RankProcess& me, const ProcessGroup& group, std::size_t count) {
    std::vector<float> got(count);
    try {
        recv(got, {.src = 0, .group = group});
        const bool right = std::ranges::all_of(got, [](float x) { return x == value_sent; });
        me.report(right ? "right" : "wrong", right ? 0 : -1);
    } catch (const DistError& error) {
        me.report(error.what(), static_cast<int>(error.code()), error.context().peer);
    }
}

/// Rank 0 sends, leaves as `leave(group, work)` does, and uses its memory again; rank 1 receives a while later.
template <class Leave>
void expect_right(TransportKind transport, Leave leave) {
    for (const std::size_t count : lengths) {
        Job job(2, [&](const RankProcess& me) {
            ProcessGroup world = me.join(transport);
            barrier({.group = world});
            if (me.rank() == 1) {
                std::this_thread::sleep_for(300ms);
                return receive(me, world, count);
            }
            std::vector<float> x(count, value_sent);
            Work work = isend(x, 1, {.group = world});
            leave(world, work);
            std::ranges::fill(x, written_later);
            std::this_thread::sleep_for(300ms);
        });
        const auto report = job.next();
        ASSERT_TRUE(report) << count;
        EXPECT_STREQ(report->text, "right") << count;
        for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(job.wait(rank), 0) << count;
    }
}

TEST_P(Leaving, a_message_arrives_whose_sender_destroys_its_group) {
    covers("S6-003", "S1-016");
    expect_right(GetParam(), [](ProcessGroup& world, Work& work) {
        world.destroy();
        if (!work.is_success()) throw std::runtime_error("the message did not go well");
    });
}

TEST_P(Leaving, a_message_arrives_whose_sender_lets_go_of_its_work_and_destroys_its_group) {
    expect_right(GetParam(), [](ProcessGroup& world, Work& work) {
        work = {};
        world.destroy();
    });
}

TEST_P(Leaving, a_message_arrives_whose_sender_s_program_ends) {
    expect_right(GetParam(), [](ProcessGroup&, Work&) { std::exit(0); });
}

/// Memory that was free, in pieces of all sizes: who uses what it has freed changes them.
class Pieces {
 public:
    Pieces() {
        for (std::size_t words = 8; words <= 1024; words += 4)
            for (int i = 0; i < 8; ++i) all_.emplace_back(words, written);
    }
    bool are_unchanged() const {
        return std::ranges::all_of(all_, [](const auto& piece) {
            return std::ranges::all_of(piece, [](std::uint32_t word) { return word == written; });
        });
    }

 private:
    static constexpr std::uint32_t written = 7;
    std::vector<std::vector<std::uint32_t>> all_;
};

/// Sends when the thread_local objects of its thread have gone.
struct Farewell {
    const std::vector<float>* message;
    ~Farewell() {
        const Pieces pieces;
        for (int i = 0; i < 2; ++i) isend(*message, 1).wait();
        if (!pieces.are_unchanged()) ::_exit(1);
    }
};

TEST_P(Leaving, a_message_arrives_that_the_destructor_of_a_static_object_sends) {
    static std::vector<float> x;  // made before the object that sends it
    x.assign(1000, value_sent);
    Job job(2, [&](const RankProcess& me) {
        set_default_group(me.join(GetParam()));
        if (me.rank() == 0) {
            isend(x, 1).wait();
            static const Farewell farewell{&x};
            std::exit(0);
        }
        for (int i = 0; i < 3; ++i) receive(me, default_group(), x.size());
    });
    for (const Report& report : job.collect(3)) EXPECT_STREQ(report.text, "right");
    for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(job.wait(rank), 0);
}

TEST_P(Leaving, a_message_arrives_that_was_sent_in_a_group_of_some_ranks) {
    for (const std::size_t count : lengths) {
        Job job(2, [&](const RankProcess& me) {
            const ProcessGroup world = me.join(GetParam());
            ProcessGroup part = new_group({0, 1}, {.world = world});
            if (me.rank() == 1) {
                std::this_thread::sleep_for(300ms);
                return receive(me, part, count);
            }
            std::vector<float> x(count, value_sent);
            Work work = isend(x, 1, {.group = part});
            part.destroy();
            std::ranges::fill(x, written_later);
            ProcessGroup(world).destroy();
        });
        const auto report = job.next();
        ASSERT_TRUE(report) << count;
        EXPECT_STREQ(report->text, "right") << count;
    }
}

// The receiver may be copying just then.
TEST_P(Leaving, what_an_abort_takes_back_is_never_received_as_data) {
    constexpr int tries = 8;
    for (int i = 0; i < tries; ++i) {
        Job job(2, [&](const RankProcess& me) {
            ProcessGroup world = me.join(GetParam());
            const std::size_t count = 6'000'000;
            std::vector<float> x(count, value_sent);
            Work work;
            if (me.rank() == 0) work = isend(x, 1, {.group = world});
            try {
                barrier({.group = world});
            } catch (const DistError& error) {  // so soon
                return me.report(error.what(), static_cast<int>(error.code()));
            }
            if (me.rank() == 1) return receive(me, world, count);
            std::this_thread::sleep_for(std::chrono::microseconds(700 * i));
            world.abort("the test ends it");
            std::ranges::fill(x, written_later);
            std::this_thread::sleep_for(100ms);
        });
        const auto report = job.next();
        ASSERT_TRUE(report);
        EXPECT_STRNE(report->text, "wrong") << i;
        if (report->code == 0) continue;
        EXPECT_NE(std::string(report->text).find("the test ends it"), std::string::npos) << report->text;
    }
}

// Its memory is its program's again then.
TEST_P(Leaving, a_sender_waits_for_its_receiver_as_long_as_the_group_s_timeout) {
    Job job(2, [&](const RankProcess& me) {
        constexpr std::size_t count = 100'000;
        std::vector<float> x(count, value_sent);
        ProcessGroup world = me.join(GetParam(), me.rank() == 0 ? 1s : 20s);
        barrier({.group = world});
        if (me.rank() == 0) {
            Work work = isend(x, 1, {.group = world, .timeout = 20s});
            me.report_end_of([&] { world.destroy(); });
            std::ranges::fill(x, written_later);
            Store store = me.store();
            store.set("left", "");
            me.report_end_of([&] { work.wait(); });
            store.wait({"received"}, 20s);
            return;
        }
        Store store = me.store();
        store.wait({"left"}, 20s);
        receive(me, world, count);
        store.set("received", "");
    });
    const auto start = SteadyClock::now();
    const auto left = job.next();
    ASSERT_TRUE(left);
    EXPECT_STREQ(left->text, "done");
    EXPECT_GE(left->at - start, 900ms);
    EXPECT_LT(left->at - start, 6s);
    for (int i = 0; i < 2; ++i) {
        const auto report = job.next();
        ASSERT_TRUE(report);
        const std::string text = report->text;
        if (report->rank == 0) {
            EXPECT_EQ(report->code, static_cast<int>(ErrorCode::aborted)) << text;
        } else {
            EXPECT_EQ(report->code, static_cast<int>(ErrorCode::peer_lost)) << text;
            EXPECT_NE(text.find("rank 0 has left the group"), std::string::npos) << text;
            EXPECT_EQ(report->peer, 0);
        }
    }
}

// Nobody receives then: none of them waits for the others.
TEST_P(Leaving, ranks_that_all_leave_do_not_wait_for_messages_that_none_receives) {
    for (const bool in_part : {false, true}) {
        Job job(3, [&](const RankProcess& me) {
            ProcessGroup world = me.join(GetParam(), 60s);
            ProcessGroup group = in_part ? new_group({0, 1, 2}, {.world = world}) : world;
            std::vector<float> x(1'000'000, value_sent);
            std::vector<Work> works;
            for (int peer = 0; peer < 3; ++peer) works.push_back(isend(x, peer, {.group = group}));
            std::vector<float> y(10);
            works.push_back(irecv(y, {.src = (me.rank() + 1) % 3, .tag = 5, .group = group}));
            me.report_end_of([&] { group.destroy(); });
            if (!in_part) return;
            std::vector<int> sum(1, 1);
            me.report_end_of([&] { all_reduce(sum, {.group = world}); });
        });
        const auto start = SteadyClock::now();
        for (const Report& report : job.collect(in_part ? 6 : 3)) {
            EXPECT_STREQ(report.text, "done") << "rank " << report.rank;
            EXPECT_LT(report.at - start, 10s);
        }
        for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(job.wait(rank), 0) << in_part;
    }
}

TEST_P(Leaving, a_sender_does_not_wait_for_a_rank_that_has_left) {
    Job job(3, [&](const RankProcess& me) {
        ProcessGroup world = me.join(GetParam(), 60s);
        barrier({.group = world});
        std::vector<float> x(1'000'000, value_sent);
        if (me.rank() == 1) return world.destroy();
        if (me.rank() == 0) {
            Work work = isend(x, 1, {.group = world});
            me.report_end_of([&] { world.destroy(); });
            return;
        }
        me.report_end_of([&] { world.destroy(); });
    });
    const auto start = SteadyClock::now();
    for (const Report& report : job.collect(2)) {
        EXPECT_STREQ(report.text, "done") << "rank " << report.rank;
        EXPECT_LT(report.at - start, 10s);
    }
}

// Bytes that the network has not taken yet, and ranks that look for them late.
TEST_P(Leaving, what_a_collective_has_sent_arrives_though_its_sender_leaves_at_once) {
    for (const std::size_t count : {std::size_t{10}, std::size_t{200'000}, std::size_t{3'000'000}}) {
        Job job(3, [&](const RankProcess& me) {
            ProcessGroup world = me.join(GetParam());
            std::vector<float> x(count, me.rank() == 0 ? value_sent : 0);
            std::vector<int> small(4, 1);
            all_reduce(small, {.group = world});
            if (me.rank() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(700 * me.rank()));
            me.report_end_of([&] {
                broadcast(x, {.src = 0, .group = world});
                if (!std::ranges::all_of(x, [](float v) { return v == value_sent; }))
                    throw std::runtime_error("wrong data");
            });
            world.destroy();
        });
        for (const Report& report : job.collect(3))
            EXPECT_STREQ(report.text, "done") << "rank " << report.rank << ", " << count;
    }
}

TEST_P(Leaving, what_a_collective_has_sent_arrives_though_its_sender_leaves_the_group_of_some_ranks) {
    Job job(2, [&](const RankProcess& me) {
        ProcessGroup world = me.join(GetParam());
        ProcessGroup part = new_group({0, 1}, {.world = world});
        std::vector<float> x(200'000, me.rank() == 0 ? value_sent : 0);
        if (me.rank() == 1) {
            Work work = async::broadcast(x, {.src = 0, .group = part});
            me.report_end_of([&] { work.wait(); });
            part.destroy();
        } else {
            broadcast(x, {.src = 0, .group = part});
            part.destroy();
        }
        me.report_end_of([&] { barrier({.group = world}); });
    });
    for (const Report& report : job.collect(3)) EXPECT_STREQ(report.text, "done") << "rank " << report.rank;
}

}  // namespace
}  // namespace tutti::test
