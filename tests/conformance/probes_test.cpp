// sendrecv, probes and matched receives on real ranks: the classic programs of MPI, with closed forms.
#include "conformance/world.hpp"
#include "support/covers.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

class Probes : public ::testing::TestWithParam<How> {};

#ifdef TUTTI_THREADS_ONLY
INSTANTIATE_TEST_SUITE_P(Ranks, Probes, ::testing::Values(How::threads, How::tcp_threads),
                         [](const auto& instance) { return to_string(instance.param); });
#else
INSTANTIATE_TEST_SUITE_P(Ranks, Probes,
                         ::testing::Values(How::threads, How::shm_processes, How::tcp_processes, How::part),
                         [](const auto& instance) { return to_string(instance.param); });
#endif

// In one piece, in the ring or through a socket, read in place or announced.
constexpr std::size_t probed_lengths[] = {0, 1, 1000, 9000, 40'000, 300'000};

std::vector<int> numbers_of(int rank, std::size_t elements) {
    std::vector<int> list(elements);
    std::iota(list.begin(), list.end(), rank * 1'000'000);
    return list;
}

TEST_P(Probes, ring_shift_by_sendrecv) {
    covers("P2P-001");
    for (const int size : {1, 2, 3}) {
        run_ranks(size, GetParam(), [](const ProcessGroup& g) {
            const int n = g.size(), right = (g.rank() + 1) % n, left = (g.rank() + n - 1) % n;
            for (const std::size_t elements : probed_lengths) {
                // To the right with one tag, to the left with another: the counts of the two sides differ.
                const std::vector<int> to_left = numbers_of(g.rank(), elements + 3);
                std::vector<int> from_left(elements), from_right(elements + 3);
                EXPECT_EQ(sendrecv(numbers_of(g.rank(), elements), {}, from_left, {},
                                   {.send_tag = 4, .recv_tag = 4, .group = g, .group_dst = right, .group_src = left}),
                          get_global_rank(g, left));
                Work work =
                    isendrecv(to_left, get_global_rank(g, left), from_right, get_global_rank(g, right), {.group = g});
                work.wait();
                EXPECT_EQ(work.source_rank(), right);
                EXPECT_EQ(from_left, numbers_of(left, elements));
                EXPECT_EQ(from_right, numbers_of(right, elements + 3));
            }
            // From any rank; and out of a tensor into its own neighbour.
            std::vector<int> line = numbers_of(g.rank(), 5000);
            sendrecv(std::span(line).first(4000), {}, std::span(line).last(4000), std::nullopt,
                     {.group = g, .group_dst = right});
            const std::vector<int> theirs = numbers_of(left, 4000);
            EXPECT_TRUE(std::equal(theirs.begin(), theirs.end(), line.begin() + 1000));
            barrier({.group = g});
        });
    }
}

// A stencil on a line: the ends have nobody beside them.
TEST_P(Probes, halo_of_a_line_with_open_ends) {
    covers("P2P-001");
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        const int me = g.rank(), last = g.size() - 1;
        const std::optional<int> left = me > 0 ? me - 1 : no_rank, right = me < last ? me + 1 : no_rank;
        std::vector<double> cells(1002, me);
        const auto ghost = [&](std::size_t at) { return std::span(cells).subspan(at, 1); };
        const int source = sendrecv(ghost(1000), {}, ghost(0), {}, {.group = g, .group_dst = right, .group_src = left});
        Work work = isendrecv(ghost(1), {}, ghost(1001), {}, {.group = g, .group_dst = left, .group_src = right});
        work.wait();
        EXPECT_EQ(source, me > 0 ? get_global_rank(g, me - 1) : no_rank);
        EXPECT_EQ(cells[0], me > 0 ? me - 1 : me);
        EXPECT_EQ(cells[1001], me < last ? me + 1 : me);
        EXPECT_EQ(sendrecv({}, no_rank, {}, no_rank, {.group = g}), no_rank);
        EXPECT_EQ(sendrecv_replace(cells, no_rank, no_rank, {.group = g}), no_rank);
        isendrecv({}, no_rank, {}, no_rank, {.group = g}).wait();
        barrier({.group = g});
    });
}

TEST_P(Probes, ring_by_sendrecv_replace) {
    covers("P2P-002");
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        const int n = g.size(), right = (g.rank() + 1) % n, left = (g.rank() + n - 1) % n;
        for (const std::size_t elements : {std::size_t{0}, std::size_t{7}, std::size_t{65'536}, std::size_t{400'001}}) {
            std::vector<int> list = numbers_of(g.rank(), elements);
            for (int step = 1; step <= n; ++step) {
                const bool any = step == 2;
                EXPECT_EQ(sendrecv_replace(list, {}, {},
                                           {.send_tag = 5,
                                            .recv_tag = 5,
                                            .group = g,
                                            .group_dst = right,
                                            .group_src = any ? std::nullopt : std::optional(left)}),
                          get_global_rank(g, left));
                ASSERT_EQ(list, numbers_of((g.rank() + n - step) % n, elements)) << step;
            }
        }
        // Every second element of a column; and down a line, whose ends only send or only receive.
        std::vector<int> table = numbers_of(g.rank(), 600);
        const TensorView column(table.data(), Extents{100, 3}, int32, Extents{6, 2});
        sendrecv_replace(column, {}, {}, {.group = g, .group_dst = right, .group_src = left});
        for (std::size_t i = 0; i < table.size(); ++i) {
            const int of = i % 2 == 0 ? left : g.rank();
            ASSERT_EQ(table[i], of * 1'000'000 + static_cast<int>(i)) << i;
        }
        std::vector<int> line = numbers_of(g.rank(), 200'000);
        sendrecv_replace(line, {}, {},
                         {.group = g,
                          .group_dst = g.rank() + 1 < n ? g.rank() + 1 : no_rank,
                          .group_src = g.rank() > 0 ? g.rank() - 1 : no_rank});
        EXPECT_EQ(line, numbers_of(std::max(0, g.rank() - 1), 200'000));
        barrier({.group = g});
    });
}

TEST_P(Probes, receive_of_unknown_length) {
    covers("P2P-003", "P2P-004");
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        const int other = get_global_rank(g, 1 - g.rank());
        if (g.rank() == 0) {
            std::vector<Work> works;
            std::vector<std::vector<int>> sent;
            for (const std::size_t elements : probed_lengths) sent.push_back(numbers_of(7, elements));
            for (std::size_t i = 0; i < sent.size(); ++i)
                works.push_back(isend(sent[i], other, {.tag = static_cast<int>(i) * 3, .group = g}));
            const std::vector<double> wide{1, 2};
            send(wide, other, {.tag = 99, .group = g});
            wait_all(works);
            barrier({.group = g});
            return;
        }
        EXPECT_FALSE(iprobe({.tag = 98, .group = g}));
        for (std::size_t i = 0; i < std::size(probed_lengths); ++i) {
            // Of any tag the first that was sent; twice the same one.
            const MessageInfo next = i % 2 == 0 ? probe({.group = g}) : probe({.src = other, .group = g});
            EXPECT_EQ(next, probe({.tag = static_cast<int>(i) * 3, .group = g}));
            EXPECT_EQ(next, (MessageInfo{.source = other,
                                         .group_source = 0,
                                         .tag = static_cast<int>(i) * 3,
                                         .dtype = int32,
                                         .element_count = static_cast<std::int64_t>(probed_lengths[i]),
                                         .byte_count = probed_lengths[i] * sizeof(int)}));
            std::vector<int> got(static_cast<std::size_t>(next.element_count));
            recv(got, {.src = next.source, .tag = next.tag, .group = g});
            ASSERT_EQ(got, numbers_of(7, probed_lengths[i]));
        }
        std::optional<MessageInfo> wide;
        while (!wide) wide = iprobe({.tag = 99, .group = g, .group_src = 0});
        EXPECT_EQ(wide->dtype, float64);
        std::vector<double> got(static_cast<std::size_t>(wide->element_count));
        recv(got, {.src = other, .tag = 99, .group = g});
        EXPECT_EQ(got, (std::vector<double>{1, 2}));
        EXPECT_FALSE(iprobe({.group = g}));
        barrier({.group = g});
    });
}

// Workers ask with one tag, and answer with another; the master takes whatever comes next.
TEST_P(Probes, master_and_workers_with_any_source_and_tags) {
    covers("P2P-003", "P2P-004");
    constexpr int tasks = 60, result = 1, ready = 2, work = 3, stop = 4;
    run_ranks(4, GetParam(), [](const ProcessGroup& g) {
        if (g.rank() == 0) {
            std::vector<int> squares(tasks, -1);
            int given = 0, stopped = 0;
            while (stopped < g.size() - 1) {
                const MessageInfo next = probe({.group = g});
                std::vector<int> words(static_cast<std::size_t>(next.element_count));
                recv(words, {.src = next.source, .tag = next.tag, .group = g});
                ASSERT_EQ(words.size(), next.tag == ready ? 0U : 2U);
                if (next.tag == result) squares[static_cast<std::size_t>(words[0])] = words[1];
                const bool more = given < tasks;
                const std::vector<int> task(more ? 1 : 0, given);
                send(task, next.source, {.tag = more ? work : stop, .group = g});
                ++(more ? given : stopped);
            }
            for (int i = 0; i < tasks; ++i) EXPECT_EQ(squares[static_cast<std::size_t>(i)], i * i);
        } else {
            const int master = get_global_rank(g, 0);
            send(std::vector<int>{}, master, {.tag = ready, .group = g});
            for (;;) {
                const MessageInfo next = probe({.src = master, .group = g});
                std::vector<int> task(static_cast<std::size_t>(next.element_count));
                recv(task, {.src = master, .tag = next.tag, .group = g});
                if (next.tag == stop) break;
                send(std::vector<int>{task[0], task[0] * task[0]}, master, {.tag = result, .group = g});
            }
        }
        barrier({.group = g});
    });
}

// Threads of one rank receive messages of many probed_lengths with one tag: with a plain probe they would take each
// other's.
TEST_P(Probes, threads_with_matched_probes_get_what_they_have_seen) {
    covers("P2P-005", "P2P-006");
    constexpr int messages = watched ? 60 : 300, threads = 3;
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        const auto length = [](int i) { return i % 40 == 0 ? 80'000 + i : i % 9 == 0 ? 5000 + i : i; };
        if (g.rank() == 0) {
            std::vector<std::vector<int>> sent;
            std::vector<Work> works;
            for (int i = 0; i < messages; ++i) {
                sent.emplace_back(static_cast<std::size_t>(length(i)), i);
                works.push_back(isend(sent.back(), get_global_rank(g, 1), {.tag = 6, .group = g}));
            }
            wait_all(works);
        } else {
            std::array<std::atomic<int>, messages> seen{};
            std::atomic<int> left{messages};
            const auto receive = [&](int thread) {
                while (left.fetch_sub(1) > 0) {
                    MatchedMessage message = matched_probe({.tag = 6, .group = g});
                    const MessageInfo info = message.info();
                    Tensor got = empty(int32, Extents::of(info.element_count));
                    if (thread == 0)
                        got = message.recv();
                    else if (thread == 1)
                        message.recv(got);
                    else
                        message.irecv(got).wait();
                    EXPECT_FALSE(message);
                    const auto list = got.span<int>();
                    const int i = list.empty() ? 0 : list.front();
                    EXPECT_EQ(static_cast<int>(list.size()), list.empty() ? 0 : length(i));
                    EXPECT_TRUE(std::ranges::all_of(list, [i](int value) { return value == i; }));
                    if (!list.empty()) ++seen[static_cast<std::size_t>(i)];
                }
            };
            std::vector<std::thread> workers;
            for (int t = 0; t < threads; ++t) workers.emplace_back(receive, t);
            for (std::thread& worker : workers) worker.join();
            for (int i = 1; i < messages; ++i) {
                if (length(i) > 0) {
                    EXPECT_EQ(seen[static_cast<std::size_t>(i)], 1) << i;
                }
            }
        }
        barrier({.group = g});
    });
}

TEST_P(Probes, a_message_that_is_dropped_returns_to_its_place) {
    covers("P2P-005");
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        for (const std::size_t elements : {std::size_t{3}, std::size_t{100'000}}) {
            const int tag = elements == 3 ? 8 : 10;  // others may be ahead
            if (g.rank() == 0) {
                const std::vector<int> first = numbers_of(1, elements), second = numbers_of(2, elements);
                std::vector<Work> works;
                works.push_back(isend(first, get_global_rank(g, 1), {.tag = tag, .group = g}));
                works.push_back(isend(second, get_global_rank(g, 1), {.tag = tag, .group = g}));
                wait_all(works);
                continue;
            }
            std::vector<int> a(elements), b(elements);
            {
                const MatchedMessage held = matched_probe({.tag = tag, .group = g});
                std::optional<MatchedMessage> next;
                while (!next) next = matched_iprobe({.tag = tag, .group = g});
                EXPECT_FALSE(iprobe({.tag = tag, .group = g})) << "both are held";
            }
            recv(a, {.tag = tag, .group = g});
            EXPECT_EQ(a, numbers_of(1, elements)) << "the first is the first again";
            // One is held while a receive waits, which gets it as soon as it is given back.
            MatchedMessage held = matched_probe({.tag = tag, .group = g});
            Work waiting = irecv(b, {.tag = tag, .group = g});
            EXPECT_FALSE(waiting.is_completed());
            MatchedMessage moved = std::move(held);
            EXPECT_FALSE(held);  // NOLINT(bugprone-use-after-move)
            std::vector<float> wrong(elements);
            EXPECT_THROW(moved.recv(wrong), InvalidArgument);
            EXPECT_TRUE(moved) << "it is still held";
            moved.release();
            EXPECT_THROW(moved.recv(b), InvalidArgument);
            waiting.wait();
            EXPECT_EQ(b, numbers_of(2, elements));
        }
        // To oneself.
        const std::vector<int> mine{1, 2};
        Work work = isend(mine, get_global_rank(g, g.rank()), {.tag = 9, .group = g});
        EXPECT_EQ(probe({.group = g}).group_source, g.rank());
        EXPECT_EQ(matched_probe({.tag = 9, .group = g}).recv().span<int>()[1], 2);
        work.wait();
        barrier({.group = g});
    });
}

TEST_P(Probes, wrong_arguments_are_named) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        std::vector<int> x(3), y(3);
        const auto has_text = [](const auto& call, const char* part) {
            const std::string text = message_of<InvalidArgument>(call);
            EXPECT_NE(text.find(part), std::string::npos) << text;
        };
        has_text([&] { (void)probe({.src = 7, .group = g}); }, "probe: src 7");
        has_text([&] { (void)iprobe({.tag = -1, .group = g}); }, "iprobe: tag -1: expected zero or more, or none");
        has_text([&] { (void)matched_probe({.group = g, .timeout = -1ms}); }, "matched_probe: timeout -1 ms");
        has_text([&] { sendrecv(x, {}, y, {}, {.group = g}); }, "sendrecv: no dst is given");
        has_text([&] { sendrecv(x, 0, y, 9, {.group = g}); }, "sendrecv: src 9");
        has_text([&] { sendrecv(x, 0, y, 0, {.recv_tag = -4, .group = g}); }, "sendrecv: tag -4");
        has_text([&] { sendrecv_replace(x, get_global_rank(g, g.rank()), no_rank, {.group = g}); }, "sends to itself");
        has_text([&] { MatchedMessage().recv(x); }, "MatchedMessage.recv: it holds no message");
        barrier({.group = g});
    });
}

TEST_P(Probes, end_with_who_waits_for_whom) {
    covers("P2P-003");
    run_ranks(2, GetParam(),
              [](const ProcessGroup& g) {
                  if (g.rank() == 0) {
                      std::this_thread::sleep_for(patience(600ms));
                      return;
                  }
                  try {
                      (void)probe({.tag = 5, .group = g, .group_src = 0, .timeout = 200ms});
                      ADD_FAILURE();
                  } catch (const Timeout& error) {
                      const std::string text = error.what();
                      EXPECT_TRUE(has(text, "probe with tag 5 in group")) << text;
                      EXPECT_TRUE(has(text, "has nothing from rank 0")) << text;
                      EXPECT_TRUE(has(text, "it is in receive of any message from rank 0 with tag 5")) << text;
                  }
                  EXPECT_THROW((void)iprobe({.group = g}), Timeout) << "the group is unusable";
              },
              {.leave = false});
}

// What the dead had sent can be probed; then its death ends the wait.
TEST_P(Probes, end_when_the_source_has_left) {
    covers("P2P-003", "P2P-004");
    if (GetParam() == How::part) GTEST_SKIP() << "by design: the part ends with its world";
    run_ranks(2, GetParam(),
              [](const ProcessGroup& g) {
                  if (g.rank() == 0) {
                      const std::vector<int> word{5};
                      send(word, 1, {.tag = 3, .group = g});
                      ProcessGroup(g).destroy();
                      return;
                  }
                  std::this_thread::sleep_for(patience(100ms));
                  EXPECT_EQ(probe({.src = 0, .group = g}).tag, 3);
                  try {
                      const auto deadline = std::chrono::steady_clock::now() + patience(10s);
                      while (std::chrono::steady_clock::now() < deadline)
                          EXPECT_FALSE(iprobe({.src = 0, .tag = 4, .group = g}));
                      ADD_FAILURE();
                  } catch (const PeerLost& error) {
                      EXPECT_EQ(error.context().peer, 0);
                  }
                  EXPECT_EQ(matched_probe({.src = 0, .group = g}).recv().span<int>()[0], 5);
                  EXPECT_THROW((void)probe({.src = 0, .group = g, .timeout = patience(10s)}), PeerLost);
              },
              {.leave = false});
}

}  // namespace
}  // namespace tutti::test
