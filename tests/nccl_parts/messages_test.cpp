// Messages on the fake device and library, and on host memory: matching, order, failures.
#include "nccl_parts/parts.hpp"
#include "support/message_of.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>

namespace tutti::test {
namespace {

class Messages : public ::testing::TestWithParam<Where> {
 protected:
    PartsWorld world() const { return {.where = GetParam()}; }
};

INSTANTIATE_TEST_SUITE_P(Memory, Messages, ::testing::Values(Where::device, Where::host),
                         [](const auto& where) { return where.param == Where::device ? "device" : "host"; });

// Shorter sends are over when they have been copied.
constexpr std::size_t long_count = 40000;

std::vector<int> numbers(std::size_t count, int first) {
    std::vector<int> values(count);
    std::iota(values.begin(), values.end(), first);
    return values;
}

TEST_P(Messages, go_round_in_a_ring_whoever_posts_first) {
    for (const bool receives_first : {true, false}) {
        on_ranks(
            3,
            [&](const Rank& me) {
                const int next = (me.rank() + 1) % 3, before = (me.rank() + 2) % 3;
                std::vector<int> mine = numbers(100000, me.rank()), got(mine.size(), -1);
                Work sent, received;
                if (receives_first) received = irecv(me.on(got), {.src = before, .group = me.group});
                sent = isend(me.on(mine), next, {.group = me.group});
                if (!receives_first) received = irecv(me.on(got), {.src = before, .group = me.group});
                received.wait();
                sent.wait();
                me.wait_for({});
                EXPECT_EQ(got, numbers(mine.size(), before));
                EXPECT_EQ(received.source_rank(), before);
            },
            world());
    }
}

TEST_P(Messages, of_other_tags_wait_for_their_receives_in_any_order) {
    on_ranks(
        2,
        [](const Rank& me) {
            constexpr int many = 20;
            std::vector<std::vector<int>> x;
            std::vector<Work> works;
            for (int i = 0; i < many; ++i) x.push_back(numbers(10, me.rank() == 0 ? 100 * i : -1));
            for (int i = 0; i < many; ++i) {
                if (me.rank() == 0)
                    works.push_back(isend(me.on(x[static_cast<std::size_t>(i)]), 1, {.tag = i, .group = me.group}));
                else
                    works.push_back(irecv(me.on(x[static_cast<std::size_t>(many - 1 - i)]),
                                          {.src = 0, .tag = many - 1 - i, .group = me.group}));
            }
            wait_all(works);
            me.wait_for({});
            for (int i = 0; i < many; ++i) EXPECT_EQ(x[static_cast<std::size_t>(i)], numbers(10, 100 * i));
        },
        world());
}

TEST_P(Messages, of_one_tag_arrive_in_the_order_of_their_sends) {
    on_ranks(
        2,
        [](const Rank& me) {
            constexpr std::size_t many = 200;
            std::vector<std::vector<int>> x;
            std::vector<Work> works;
            for (std::size_t i = 0; i < many; ++i)
                x.push_back(numbers(1 + i % 5, me.rank() == 0 ? static_cast<int>(i) : -1));
            for (auto& values : x) {
                if (me.rank() == 0)
                    works.push_back(isend(me.on(values), 1, {.group = me.group}));
                else
                    works.push_back(irecv(me.on(values), {.src = 0, .group = me.group}));
            }
            wait_all(works);
            me.wait_for({});
            for (std::size_t i = 0; i < many; ++i) EXPECT_EQ(x[i], numbers(1 + i % 5, static_cast<int>(i)));
        },
        world());
}

TEST_P(Messages, from_any_rank_say_whose_they_are) {
    on_ranks(
        4,
        [](const Rank& me) {
            if (me.rank() != 0) {
                std::vector<int> mine(50, me.rank());
                for (int i = 0; i < 3; ++i) isend(me.on(mine), 0, {.tag = 5, .group = me.group}).wait();
                me.wait_for({});
                return;
            }
            std::vector<int> counts(4);
            for (int i = 0; i < 9; ++i) {
                std::vector<int> got(50, -1);
                const int source = recv(me.on(got), {.tag = 5, .group = me.group});
                me.wait_for({});
                EXPECT_EQ(got, std::vector<int>(50, source));
                ++counts[static_cast<std::size_t>(source)];
            }
            EXPECT_EQ(counts, (std::vector<int>{0, 3, 3, 3}));
        },
        world());
}

TEST_P(Messages, cross_between_all_ranks_at_once_in_any_order) {
    on_ranks(
        4,
        [](const Rank& me) {
            constexpr int tags = 6;
            std::vector<std::vector<int>> out, in;
            std::vector<std::pair<int, int>> order;  // peer and tag
            for (int peer = 0; peer < 4; ++peer) {
                for (int tag = 0; tag < tags; ++tag) {
                    order.emplace_back(peer, tag);
                    out.push_back(numbers(static_cast<std::size_t>(tag * 700), 1000 * me.rank() + peer));
                    in.emplace_back(static_cast<std::size_t>(tag * 700), -1);
                }
            }
            std::vector<int> turns(2 * order.size());
            std::iota(turns.begin(), turns.end(), 0);
            std::shuffle(turns.begin(), turns.end(), std::mt19937(static_cast<unsigned>(me.rank())));
            std::vector<Work> works;
            for (const int turn : turns) {
                const auto at = static_cast<std::size_t>(turn / 2);
                const auto [peer, tag] = order[at];
                works.push_back(turn % 2 == 0 ? isend(me.on(out[at]), peer, {.tag = tag, .group = me.group})
                                              : irecv(me.on(in[at]), {.src = peer, .tag = tag, .group = me.group}));
            }
            wait_all(works);
            me.wait_for({});
            for (std::size_t at = 0; at < order.size(); ++at)
                EXPECT_EQ(in[at], numbers(in[at].size(), 1000 * order[at].first + me.rank()));
        },
        world());
}

TEST_P(Messages, to_oneself_are_copied) {
    on_ranks(
        2,
        [](const Rank& me) {
            std::vector<int> mine = numbers(1000, me.rank()), got(1000, -1), none, nothing;
            Work received = irecv(me.on(got), {.tag = 3, .group = me.group});
            Work sent = isend(me.on(mine), me.rank(), {.tag = 3, .group = me.group});
            received.wait();
            sent.wait();
            Work empty = isend(me.on(none), me.rank(), {.group = me.group});
            recv(me.on(nothing), {.src = me.rank(), .group = me.group});
            empty.wait();
            me.wait_for({});
            EXPECT_EQ(got, mine);
            EXPECT_EQ(received.source_rank(), me.rank());
        },
        world());
}

TEST_P(Messages, without_elements_arrive_without_a_communicator) {
    const int made = FakeLibrary::communicators_made;
    on_ranks(
        2,
        [](const Rank& me) {
            std::vector<double> none;
            if (me.rank() == 0)
                send(me.on(none), 1, {.group = me.group});
            else
                EXPECT_EQ(recv(me.on(none), {.group = me.group}), 0);
        },
        world());
    EXPECT_EQ(FakeLibrary::communicators_made, made);
}

TEST_P(Messages, share_one_communicator_for_each_direction_of_a_pair) {
    const int made = FakeLibrary::communicators_made;
    on_ranks(
        2,
        [](const Rank& me) {
            std::vector<int> x(10, me.rank()), y(10);
            for (int i = 0; i < 5; ++i) {
                Work sent = isend(me.on(x), 1 - me.rank(), {.tag = i, .group = me.group});
                recv(me.on(y), {.src = 1 - me.rank(), .tag = i, .group = me.group});
                sent.wait();
            }
            me.wait_for({});
            EXPECT_EQ(y, std::vector<int>(10, 1 - me.rank()));
        },
        world());
    EXPECT_EQ(FakeLibrary::communicators_made - made, 4) << "two halves of two";
}

TEST_P(Messages, of_another_count_or_type_fail_on_both_sides_and_the_group_goes_on) {
    on_ranks(
        2,
        [](const Rank& me) {
            std::vector<float> four(long_count, 1.0F);
            std::vector<double> five(5, 2.0);
            if (me.rank() == 0) {
                const std::string text =
                    message_of<CollectiveMismatch>([&] { send(me.on(four), 1, {.tag = 7, .group = me.group}); });
                EXPECT_TRUE(has(text, "sends 40000 float32")) << text;
                EXPECT_TRUE(has(text, "rank 1 expects 5 float64")) << text;
                EXPECT_TRUE(has(text, "tag 7")) << text;
                send(me.on(four), 1, {.group = me.group});
            } else {
                const std::string text =
                    message_of<CollectiveMismatch>([&] { recv(me.on(five), {.tag = 7, .group = me.group}); });
                EXPECT_TRUE(has(text, "expects 5 float64")) << text;
                EXPECT_TRUE(has(text, "rank 0 sends 40000 float32")) << text;
                four.assign(long_count, -1.0F);
                recv(me.on(four), {.src = 0, .group = me.group});
            }
            me.wait_for({});
            EXPECT_EQ(four, std::vector<float>(long_count, 1.0F));
            EXPECT_EQ(five, std::vector<double>(5, 2.0));
        },
        world());
}

TEST_P(Messages, that_are_short_are_over_when_they_have_been_copied) {
    on_ranks(
        2,
        [](const Rank& me) {
            // Both send first.
            std::vector<int> x(10, me.rank()), y(10, -1);
            send(me.on(x), 1 - me.rank(), {.group = me.group});
            me.wait_for({});
            x.assign(10, -1);
            recv(me.on(y), {.src = 1 - me.rank(), .group = me.group});
            me.wait_for({});
            EXPECT_EQ(y, std::vector<int>(10, 1 - me.rank()));
        },
        world());
}

TEST_P(Messages, that_were_short_and_are_not_what_is_expected_end_the_group_on_both_sides) {
    on_ranks(
        2,
        [](const Rank& me) {
            std::vector<float> four(4, 1.0F);
            std::vector<double> five(5, 2.0);
            if (me.rank() == 0) {
                send(me.on(four), 1, {.group = me.group});
                const std::string text = message_of<DistBackendError>([&] { recv(me.on(four), {.group = me.group}); });
                EXPECT_TRUE(has(text, "send of 4 float32 to rank 1")) << text;
                EXPECT_TRUE(has(text, "rank 1 expects 5 float64")) << text;
            } else {
                const std::string text =
                    message_of<CollectiveMismatch>([&] { recv(me.on(five), {.src = 0, .group = me.group}); });
                EXPECT_TRUE(has(text, "rank 0 sends 4 float32")) << text;
                EXPECT_FALSE(message_of<DistBackendError>([&] { recv(me.on(five), {.group = me.group}); }).empty());
            }
            EXPECT_EQ(five, std::vector<double>(5, 2.0));
        },
        world());
}

TEST_P(Messages, that_nobody_receives_or_sends_end_at_their_time_limit) {
    on_ranks(
        2,
        [](const Rank& me) {
            std::vector<int> x(long_count);
            const auto begun = std::chrono::steady_clock::now();
            const std::string text = message_of<DistBackendError>([&] {
                if (me.rank() == 0)
                    recv(me.on(x), {.src = 1, .tag = 9, .group = me.group, .timeout = 300ms});
                else
                    send(me.on(x), 0, {.tag = 8, .group = me.group, .timeout = 300ms});
            });
            EXPECT_TRUE(has(text, "timed out")) << text;
            EXPECT_LT(std::chrono::steady_clock::now() - begun, 10s);
        },
        world());
}

TEST_P(Messages, end_with_abort_whatever_they_wait_for) {
    on_ranks(
        2,
        [](const Rank& me) {
            std::vector<int> x(long_count, 5), y(10, 6), z(10, 7);
            if (me.rank() == 0) {
                Work one = isend(me.on(x), 1, {.tag = 1, .group = me.group});
                Work two = irecv(me.on(y), {.src = 1, .tag = 2, .group = me.group});
                Work three = irecv(me.on(z), {.tag = 3, .group = me.group});
                std::this_thread::sleep_for(50ms);
                ProcessGroup(me.group).abort("enough");
                for (Work* work : {&one, &two, &three})
                    EXPECT_TRUE(has(message_of<Aborted>([&] { work->wait(); }), "enough"));
                EXPECT_EQ(y, std::vector<int>(10, 6));
            } else {
                EXPECT_FALSE(
                    message_of<DistError>([&] { recv(me.on(x), {.src = 0, .tag = 4, .group = me.group}); }).empty());
            }
        },
        world());
}

TEST_P(Messages, tell_both_sides_what_the_library_says_of_a_call) {
    on_ranks(
        2,
        [](const Rank& me) {
            std::vector<int> x(long_count, me.rank());
            if (me.rank() == 0) FakeLibrary::failing_sends = 1;
            const std::string text = message_of<DistBackendError>([&] {
                if (me.rank() == 0)
                    send(me.on(x), 1, {.group = me.group});
                else
                    recv(me.on(x), {.src = 0, .group = me.group});
                barrier({.group = me.group});
            });
            // Where the receive is in its stream already, the library may tell first that the other side has gone.
            const bool is_symptom = me.rank() == 1 && has(text, "recv of 40000 int32 from rank 0") && has(text, "(6)");
            const bool is_cause = has(text,
                                      "rank 0 of group \"world\" (2 ranks): send of 40000 int32 to rank 1 with tag 0: "
                                      "ncclSend: unhandled cuda error (1)");
            EXPECT_TRUE(is_cause || is_symptom) << text;
            EXPECT_TRUE(has(text, "no library")) << "the file: " << text;
        },
        world());
    FakeLibrary::failing_sends = 0;
}

// ---- On a device

TEST(MessagesOnADevice, wait_for_the_callers_stream_on_both_sides) {
    on_ranks(2, [](const Rank& me) {
        const Stream stream = me.stream();
        Flag go;
        std::vector<int> x(long_count, -1);
        FakeDriver::get()->push(stream.handle, [&] {
            go.wait(20s);
            x.assign(long_count, me.rank() == 0 ? 3 : -2);
        });
        Work work = me.rank() == 0 ? isend(me.on(x), 1, {.group = me.group, .stream = stream})
                                   : irecv(me.on(x), {.src = 0, .group = me.group, .stream = stream});
        work.wait();  // in the stream, and no longer
        EXPECT_EQ(x, std::vector<int>(long_count, -1));
        go.set();
        me.wait_for({});
        EXPECT_EQ(x, std::vector<int>(long_count, 3));
    });
}

TEST(MessagesOnADevice, end_when_their_communicator_reports_an_error) {
    on_ranks(2, [](const Rank& me) {
        std::vector<int> x(long_count, me.rank());
        if (me.rank() == 1) FakeLibrary::lost_receives = 1;
        Work work =
            me.rank() == 0 ? isend(me.on(x), 1, {.group = me.group}) : irecv(me.on(x), {.src = 0, .group = me.group});
        const auto begun = std::chrono::steady_clock::now();
        EXPECT_FALSE(message_of<DistBackendError>([&] { work.wait(20s); }).empty());
        EXPECT_LT(std::chrono::steady_clock::now() - begun, 10s);
    });
    FakeLibrary::lost_receives = 0;
}

TEST(MessagesOnADevice, end_when_their_communicator_is_not_made_in_time) {
    FakeLibrary::never_connects = true;
    on_ranks(2,
             [](const Rank& me) {
                 std::vector<int> x(long_count, me.rank());
                 const std::string text = message_of<DistBackendError>([&] {
                     if (me.rank() == 0)
                         send(me.on(x), 1, {.group = me.group});
                     else
                         recv(me.on(x), {.src = 0, .group = me.group});
                 });
                 EXPECT_FALSE(text.empty());
             },
             {.timeout = 500ms});
    FakeLibrary::never_connects = false;
}

}  // namespace
}  // namespace tutti::test
