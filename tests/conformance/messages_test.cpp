// Point to point on real ranks.
#include "conformance/world.hpp"
#include "support/covers.hpp"

#include <optional>
#include <random>
#include <thread>
#include <utility>

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

class Messages : public ::testing::TestWithParam<How> {};

#ifdef TUTTI_THREADS_ONLY
INSTANTIATE_TEST_SUITE_P(Ranks, Messages, ::testing::Values(How::threads, How::tcp_threads),
                         [](const auto& instance) { return to_string(instance.param); });
#else
INSTANTIATE_TEST_SUITE_P(Ranks, Messages, ::testing::Values(How::threads, How::shm_processes, How::tcp_processes),
                         [](const auto& instance) { return to_string(instance.param); });
#endif

TEST_P(Messages, find_their_receive_by_tag_and_source) {
    covers("S6-001", "S6-002", "S6-003", "S6-004", "S6-005", "S6-006", "S6-007", "S6-008", "S7-015", "A-37");
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        const int me = g.rank();
        for (const std::size_t count : {0, 1, 1000, 100'000}) {
            std::vector<int> first(count, 1), second(count, 2), got(count);
            if (me == 0) {
                Work a = isend(first, 1, {.tag = 1, .group = g});
                Work b = isend(second, 1, {.tag = 2, .group = g});
                a.wait();
                b.wait();
            } else if (me == 1) {  // in the other order
                EXPECT_EQ(recv(got, {.src = 0, .tag = 2, .group = g}), 0);
                EXPECT_EQ(got, second);
                Work work = irecv(got, {.tag = 1, .group = g, .group_src = 0});
                work.wait();
                EXPECT_EQ(work.source_rank(), 0);
                EXPECT_EQ(got, first);
            }
        }
        int from_any = -1;
        if (me != 0) {
            send(view(&me, {1}, int32), 0, {.tag = 7, .group = g});
        } else {
            int seen = 0;
            for (int i = 0; i < 2; ++i) {
                const int source = recv(view(&from_any, {1}), {.tag = 7, .group = g});
                EXPECT_EQ(from_any, source);
                seen += source;
            }
            EXPECT_EQ(seen, 3);
        }
        std::vector<float> self{1, 2}, copy_of(2);
        Work out = isend(self, me, {.group = g});
        Work in = irecv(copy_of, {.src = me, .group = g});
        wait_all({out, in});
        EXPECT_EQ(copy_of, self);
        EXPECT_THROW(send(self, me, {.group = g}), InvalidArgument);
        EXPECT_THROW((void)recv(copy_of, {.src = 0, .group = g, .group_src = 0}), InvalidArgument);
        EXPECT_THROW((void)isend(self, 3, {.group = g}), InvalidArgument);
        barrier({.group = g});
    });
}

// The library's own messages are not among those of any tag.
TEST_P(Messages, of_any_tag_are_not_taken_for_the_library_s_own) {
    covers("S6-004", "S16-005");
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        for (const int tag : {0, 1, 0x7ffffff0, 0x7ffffff1, 0x7ffffffe, 0x7fffffff}) {
            std::vector<std::uint8_t> word(1, 77);  // as the barrier's own
            if (g.rank() == 1) {
                Work work = isend(word, 0, {.tag = tag, .group = g});
                std::this_thread::sleep_for(100ms);
                monitored_barrier({.group = g});
                work.wait();
                recv(word, {.src = 0, .tag = tag, .group = g});
                EXPECT_EQ(word[0], 78) << tag;
            } else {
                const auto start = std::chrono::steady_clock::now();
                monitored_barrier({.group = g});
                EXPECT_GE(std::chrono::steady_clock::now() - start, 20ms) << tag;  // it may have come late
                recv(word, {.src = 1, .tag = tag, .group = g});
                EXPECT_EQ(word[0], 77) << tag;
                word[0] = 78;
                send(word, 1, {.tag = tag, .group = g});
            }
            barrier({.group = g});
        }
    });
}

// More than a peer keeps without a receive: the later ones wait at their sender.
TEST_P(Messages, beyond_the_credit_of_a_peer_are_neither_lost_nor_mixed_up) {
    covers("S6-003", "S6-004");
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        constexpr int count = watched ? 200 : 1500, tags = 3;
        const auto value = [](int i, std::size_t k) { return i * 7 + static_cast<int>(k); };
        const auto length = [](int i) { return i % 50 == 0 ? std::size_t{40'000} : std::size_t{700}; };
        if (g.rank() == 0) {
            std::vector<std::vector<int>> data;
            std::vector<Work> works;
            for (int i = 0; i < count; ++i) {
                std::vector<int>& message = data.emplace_back(length(i));
                for (std::size_t k = 0; k < message.size(); ++k) message[k] = value(i, k);
                works.push_back(isend(message, 1, {.tag = i % tags, .group = g}));
            }
            wait_all(works);
            return;
        }
        std::this_thread::sleep_for(20ms);  // nothing is posted meanwhile
        for (int tag = tags - 1; tag >= 0; --tag) {
            for (int i = tag; i < count; i += tags) {
                std::vector<int> got(length(i));
                recv(got, {.src = 0, .tag = tag, .group = g});
                for (std::size_t k = 0; k < got.size(); k += 97) ASSERT_EQ(got[k], value(i, k)) << i;
            }
        }
    });
}

// All ways in which a message can travel, after each other: in one piece with its header, through the ring, announced.
TEST_P(Messages, of_all_lengths_keep_their_order_in_both_directions) {
    covers("S6-003", "S6-004");
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        constexpr int count = watched ? 300 : 2000, tags = 2;
        static constexpr std::size_t lengths[] = {0, 1, 2, 6, 7, 22, 23, 100, 1000, 4095, 4096, 9000, 70'000};
        const int me = g.rank(), other = 1 - me;
        const auto length = [](int i) { return lengths[static_cast<std::size_t>(i * i + i / 7) % std::size(lengths)]; };
        const auto value = [](int rank, int i, std::size_t k) {
            return rank * 1'000'000 + i * 31 + static_cast<int>(k % 1009);
        };
        std::mt19937 random(static_cast<unsigned>(me));
        std::vector<std::vector<int>> sent;
        std::vector<Work> works;
        int received[tags] = {0, 1};  // the next of each tag
        const auto receive = [&](int tag) {
            const int i = std::exchange(received[tag], received[tag] + tags);
            std::vector<int> got(length(i), -1);
            if (i % 3 == 0)
                irecv(got, {.src = other, .tag = tag, .group = g}).wait();
            else
                ASSERT_EQ(recv(got, {.src = i % 5 == 0 ? std::nullopt : std::optional(other), .tag = tag, .group = g}),
                          other);
            for (std::size_t k = 0; k < got.size(); k += 61) ASSERT_EQ(got[k], value(other, i, k)) << i;
            if (!got.empty()) {
                ASSERT_EQ(got.back(), value(other, i, got.size() - 1)) << i;
            }
        };
        for (int i = 0; i < count; ++i) {
            std::vector<int>& message = sent.emplace_back(length(i));
            for (std::size_t k = 0; k < message.size(); ++k) message[k] = value(me, i, k);
            if (length(i) <= 4000 && i % 2 == 0)
                send(message, other, {.tag = i % tags, .group = g});
            else
                works.push_back(isend(message, other, {.tag = i % tags, .group = g}));
            // Somewhat behind, so that messages wait here; the tags not in the order in which they were sent.
            for (;;) {
                const int last = received[0] < received[1] ? 0 : 1;
                const bool late = i - received[last] > 60;
                if (received[last] > i || (!late && random() % 3 != 0)) break;
                const int tag = late ? last : static_cast<int>(random() % tags);
                if (received[tag] <= i) receive(tag);
            }
        }
        for (int tag = tags - 1; tag >= 0; --tag) {
            while (received[tag] < count) receive(tag);
        }
        wait_all(works);
    });
}

TEST_P(Messages, that_do_not_fit_their_receive_show_both_sides) {
    run_ranks(2, GetParam(),
              [](const ProcessGroup& g) {
                  std::vector<int> four(4);
                  std::vector<float> five(5);
                  if (g.rank() == 0) {
                      send(four, 1, {.group = g});
                      EXPECT_THROW(recv(four, {.src = 1, .group = g}), CollectiveMismatch);
                      return;
                  }
                  try {
                      recv(five, {.src = 0, .group = g});
                      ADD_FAILURE();
                  } catch (const CollectiveMismatch& error) {
                      const std::string text = error.what();
                      EXPECT_NE(text.find("a message of int32 × 4"), std::string::npos) << text;
                      EXPECT_NE(text.find("a message of float32 × 5"), std::string::npos) << text;
                  }
                  EXPECT_THROW(send(four, 0, {.group = g}), CollectiveMismatch) << "the group is unusable";
                  std::this_thread::sleep_for(300ms);  // the other has yet to hear of it
              },
              {.leave = false});
}

TEST_P(Messages, of_senders_that_have_left_arrive) {
    covers("S6-004");
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        int value = 10 * g.rank();
        if (g.rank() != 0) {
            send(std::span(&value, 1), 0, {.group = g});
            return;  // leaves
        }
        std::this_thread::sleep_for(200ms);
        int seen = 0;
        for (int i = 0; i < 2; ++i) {
            const int source = recv(std::span(&value, 1), {.group = g});
            EXPECT_EQ(value, 10 * source);
            seen += source;
        }
        EXPECT_EQ(seen, 3);
    });
}

TEST_P(Messages, travel_in_batches_round_a_ring) {
    covers("E-204", "S6-009", "S6-010", "S6-012", "S6-013", "S6-014", "S6-015", "S6-016", "A-32");
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        const auto me = static_cast<float>(g.rank());
        const int next = (g.rank() + 1) % 2;
        const std::vector<float> out{2 * me, 2 * me + 1};
        std::vector<float> in(2);
        wait_all(batch_isend_irecv({isend_op(out, next, {.group = g}), irecv_op(in, next, {.group = g})}));
        EXPECT_EQ(in, (std::vector<float>{2 - 2 * me, 3 - 2 * me}));
        EXPECT_THROW((void)batch_isend_irecv({}), InvalidArgument);
    });
}

TEST_P(Messages, pass_a_monitored_barrier_when_all_come) {
    covers("S8-034");
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        monitored_barrier({.group = g});
        barrier({.group = g});
    });
}

}  // namespace
}  // namespace tutti::test
