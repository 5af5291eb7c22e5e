// Two ranks in one thread that copy from each other's ordinary memory, and what an operation leaves that is given up.
#include "engine/execution.hpp"
#include "schedule/builder.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace tutti::engine {
namespace {

using schedule::Buffer;
using schedule::Builder;
using schedule::Chunk;
using schedule::Offer;

constexpr std::uint64_t count = 20000, half = count / 2;

class ByAddress : public ::testing::Test {
 protected:
    std::shared_ptr<transport::Arena> arena = transport::Arena::create_private({.ranks = 2});
    transport::PeerMemory memory{::getpid()};
    std::array<transport::CopyChoices, 2> choices_of;
    std::array<Ground, 2> grounds;
    std::array<std::vector<float>, 2> buffers{std::vector<float>(count, 1), std::vector<float>(count, 2)};
    std::array<std::optional<Execution>, 2> executions;

    void SetUp() override {
        for (int rank = 0; rank < 2; ++rank) {
            Ground& ground = grounds.at(static_cast<std::size_t>(rank));
            ground.arena = arena.get();
            ground.local_rank = rank;
            ground.local_of = {0, 1};
            ground.memory = [this](int) { return &memory; };
        }
    }
    // Each rank finds out for itself which way is quicker.
    void each_chooses() {
        for (const std::size_t rank : {0U, 1U}) grounds.at(rank).copy_choices = &choices_of.at(rank);
    }
    // A broadcast of rank 0's: it writes the first half, rank 1 reads the second.
    Execution& begin(std::size_t rank, bool either_way = false) {
        const Chunk first{Buffer::output, 0, half}, second{Buffer::output, half, half};
        Builder b("both");
        b.begin_fours();
        if (either_way) b.either_way(Collective::broadcast, count, 0);
        if (rank == 1) {
            b.publish(1, std::vector{first}, Offer::room);
            b.read(0, 0, 0, second);
            b.read_undelivered(0, 2, 0, first);
        } else {
            b.publish(0, std::vector{second});
            b.write(1, 1, 0, first);
            b.publish_undelivered(2, std::vector{first});
        }
        return run(rank, b, 4);
    }
    // An all_gather in place, of halves: all publish their own as the first of them finds quicker.
    Execution& begin_gather(std::size_t rank) {
        const int peer = 1 - static_cast<int>(rank);
        Builder b("gather");
        b.either_way(Collective::all_gather, half, schedule::everyone);
        b.publish(0, std::vector{Chunk{Buffer::output, rank * half, half}});
        b.read(peer, 0, 0, {Buffer::output, (1 - rank) * half, half});
        return run(rank, b, 1);
    }
    // An all_gather in place whose halves are published in two pieces, the first of which has so many elements.
    Execution& begin_gather_of_pieces(std::size_t rank, std::uint64_t piece = half / 2) {
        const int peer = 1 - static_cast<int>(rank);
        const auto of = [&](std::size_t r, std::uint64_t t) {
            return Chunk{Buffer::output, r * half + t * piece, t == 0 ? piece : half - piece};
        };
        Builder b("pieces");
        for (const std::uint32_t t : {0U, 1U}) b.publish(t, std::vector{of(rank, t)});
        for (const std::uint32_t t : {0U, 1U}) {
            b.read(peer, t, 0, of(1 - rank, t));
            b.release(t + 1);
        }
        return run(rank, b, 2);
    }
    // An all_reduce: rank r combines half r of both buffers where they lie, and writes the result to both.
    Execution& begin_sum(std::size_t rank, bool either_way = false) {
        const int peer = 1 - static_cast<int>(rank);
        const Chunk own{Buffer::output, rank * half, half}, other{Buffer::output, (1 - rank) * half, half};
        Builder b("sum");
        if (either_way) b.either_way(Collective::all_reduce, count, schedule::everyone);
        b.publish(0, std::vector{other}, Offer::result);
        b.read_combine_deliver(
            0, own, std::vector<schedule::Operand>{{.chunk = own}, {.peer = peer, .chunk = {.count = half}}}, true);
        b.publish_undelivered(1, std::vector{own});
        b.read_undelivered(peer, 1, 0, other);
        return run(rank, b, 2);
    }
    Execution& run(std::size_t rank, Builder& b, std::uint32_t rounds) {
        b.release(rounds);
        b.use_rounds(rounds);
        b.name_by_address();
        const Operands operands{.output = reinterpret_cast<std::byte*>(buffers.at(rank).data()),
                                .dtype = DType::float32};
        return executions.at(rank).emplace(std::make_shared<schedule::Schedule>(std::move(b).finish()), operands,
                                           grounds.at(rank));
    }
    // A reduce_scatter, but for the place of the result, of halves in so many pieces of the same size.
    Execution& begin_sum_of_pieces(std::size_t rank, std::uint32_t pieces, bool either_way = false) {
        const std::uint64_t piece = half / pieces;
        const auto of = [&](std::size_t r, std::uint64_t t) {
            return Chunk{Buffer::output, r * half + t * piece, piece};
        };
        Builder b("pieces");
        if (either_way) b.either_way(Collective::reduce_scatter, half, schedule::everyone);
        b.publish(0, std::vector{of(1 - rank, 0)});
        for (std::uint32_t t = 0; t < pieces; ++t) {
            if (t + 1 < pieces) b.publish(t + 1, std::vector{of(1 - rank, t + 1)});
            const schedule::Operand own{.chunk = of(rank, t)}, other{1 - static_cast<int>(rank), {.count = piece}};
            b.read_combine(t, of(rank, t), std::vector{own, other}, true);
            b.release(t + 1);
        }
        return run(rank, b, pieces);
    }
    // Rank 0 combines its half with rank 1's values, or reads those, in four pieces. With the first one rank 1
    // publishes something else, so the row that is told at once begins with the second.
    Execution& begin_row_behind_another_round(std::size_t rank, bool combines) {
        constexpr std::uint64_t piece = half / 4;
        Builder b("row behind another round");
        for (std::uint32_t t = 0; t < 4; ++t) {
            const Chunk at{Buffer::output, t * piece, piece};
            if (rank == 1) {
                std::vector<Chunk> published{at};
                if (t == 0) published.push_back({Buffer::output, half, 8});
                b.publish(t, published);
                continue;
            }
            const schedule::Operand own{.chunk = at}, other{1, {.count = piece}};
            if (combines)
                b.read_combine(t, at, std::vector{own, other}, true);
            else
                b.read(1, t, 0, at);
            b.release(t + 1);
        }
        return run(rank, b, 4);
    }
    // What rank 0 publishes in rounds 0 and 1 is told at once; then comes round 3, and round 2 after it.
    Execution& begin_rounds_out_of_order(std::size_t rank) {
        constexpr std::uint64_t quarter = count / 4;
        const auto of = [](std::uint32_t round) { return Chunk{Buffer::output, round * quarter, quarter}; };
        Builder b("out of order");
        for (const std::uint32_t round : {0U, 1U, 3U, 2U}) {
            if (rank == 0)
                b.publish(round, std::vector{of(round)});
            else
                b.read(0, round, 0, of(round));
        }
        return run(rank, b, 4);
    }
    // All of rank 1's calls of the kernel, and what happens with the second.
    int calls = 0;
    std::function<void()> at_second_call = [] {};
    void count_calls() {
        grounds[1].memory = [this](int) {
            if (++calls == 2) at_second_call();
            return &memory;
        };
    }
    static void progress(Execution& execution) {
        for (int turn = 0; turn < 20; ++turn) execution.progress();
    }
};

TEST_F(ByAddress, both_sides_copy_and_nothing_is_staged) {
    Execution &root = begin(0), &other = begin(1);
    for (int turn = 0; turn < 20; ++turn) {
        root.progress();
        other.progress();
    }
    EXPECT_TRUE(root.done() && other.done());
    EXPECT_EQ(buffers[1], std::vector<float>(count, 1));
    for (const int rank : {0, 1}) {
        const auto* slot = reinterpret_cast<const float*>(arena->slot(rank, rank == 0 ? 0 : 1));
        EXPECT_EQ(std::count(slot, slot + half, 1.0F), 0) << "rank " << rank;
    }
}

TEST_F(ByAddress, a_row_of_rounds_is_known_whatever_is_done_together_with_the_round_before_it) {
    for (const bool combines : {true, false}) {
        Execution& reader = begin_row_behind_another_round(0, combines);
        Execution& publisher = begin_row_behind_another_round(1, combines);
        progress(publisher);  // all of its rounds are there when the reader begins
        progress(reader);
        progress(publisher);
        ASSERT_TRUE(reader.done()) << combines << ": " << reader.where();
        ASSERT_TRUE(publisher.done()) << combines << ": " << publisher.where();
        EXPECT_EQ(std::count(buffers[0].begin(), buffers[0].begin() + half, combines ? 3.0F : 2.0F), half);
    }
}

TEST_F(ByAddress, whichever_way_the_root_takes_everybody_has_its_values) {
    transport::CopyChoices choices;
    for (Ground& ground : grounds) ground.copy_choices = &choices;
    int staged = 0;
    constexpr int uses = 3 * static_cast<int>(transport::CopyChoice::uses_of_trial);
    for (int use = 1; use <= uses; ++use) {
        const std::uint64_t first_publication = grounds[0].first_publication;
        std::ranges::fill(buffers[0], static_cast<float>(use));
        Execution &root = begin(0, true), &other = begin(1, true);
        for (int turn = 0; turn < 20; ++turn) {
            root.progress();
            other.progress();
        }
        ASSERT_TRUE(root.done() && other.done()) << use;
        ASSERT_EQ(buffers[1], buffers[0]) << use;
        const auto* slot = reinterpret_cast<const float*>(arena->slot(0, first_publication));
        staged += std::count(slot, slot + half, static_cast<float>(use)) == half ? 1 : 0;
    }
    // A trial of each, at least.
    EXPECT_GE(staged, static_cast<int>(transport::CopyChoice::uses_of_trial));
    EXPECT_LE(staged, uses - static_cast<int>(transport::CopyChoice::uses_of_trial));
    EXPECT_GT(arena->control(1).reading_ns[0].load(), 0);
    EXPECT_GT(arena->control(1).reading_ns[1].load(), 0);
}

TEST_F(ByAddress, all_take_the_way_of_the_first_and_have_all_values) {
    each_chooses();
    std::array<int, 2> staged{};
    constexpr int uses = 4 * static_cast<int>(transport::CopyChoice::uses_of_trial);
    for (int use = 1; use <= uses; ++use) {
        const std::uint64_t first_publication = grounds[0].first_publication;
        for (const int rank : {0, 1}) {
            const auto own = buffers.at(static_cast<std::size_t>(rank)).begin() + rank * static_cast<long>(half);
            std::fill_n(own, half, static_cast<float>(2 * use + rank));
        }
        // Where rank 1 begins before rank 0 has said what it takes, they differ when that changes.
        const bool late = use % 3 == 0;
        if (late) begin_gather(1);
        Execution& first = begin_gather(0);
        Execution& second = late ? *executions[1] : begin_gather(1);
        for (int turn = 0; turn < 20; ++turn) {
            first.progress();
            second.progress();
        }
        ASSERT_TRUE(first.done() && second.done()) << use;
        ASSERT_EQ(buffers[1], buffers[0]) << use;
        for (const int rank : {0, 1}) {
            const auto* slot = reinterpret_cast<const float*>(arena->slot(rank, first_publication));
            const auto value = static_cast<float>(2 * use + rank);
            staged.at(static_cast<std::size_t>(rank)) += std::count(slot, slot + half, value) == half ? 1 : 0;
        }
    }
    for (const int rank : {0, 1}) {
        EXPECT_GE(staged.at(static_cast<std::size_t>(rank)),
                  static_cast<int>(transport::CopyChoice::uses_of_trial) - 1);
        EXPECT_LE(staged.at(static_cast<std::size_t>(rank)),
                  uses - static_cast<int>(transport::CopyChoice::uses_of_trial) + 1);
    }
    EXPECT_GE(staged[0], static_cast<int>(transport::CopyChoice::uses_of_trial));
    EXPECT_LE(std::abs(staged[0] - staged[1]), 2);
    for (const int rank : {0, 1}) EXPECT_EQ(arena->control(rank).reading_ns[0].load(), 0);  // for roots only
}

TEST_F(ByAddress, sums_are_right_whichever_way_each_takes) {
    using Way = transport::CopyChoice::Way;
    each_chooses();
    auto& told = arena->control(0).way_of_everyone[static_cast<std::size_t>(Collective::all_reduce)]
                                                  [transport::CopyChoice::size_class(count * sizeof(float))];
    std::array<int, 4> met{};
    for (int use = 0; use < 6 * static_cast<int>(transport::CopyChoice::uses_of_trial); ++use) {
        for (const std::size_t rank : {0U, 1U}) std::ranges::fill(buffers.at(rank), static_cast<float>(use + 1));
        Execution& first = begin_sum(0, true);
        const Way way = told;
        if (use % 2 == 1) told = way == Way::kernel ? Way::staging : Way::kernel;  // as if rank 1 had not seen it
        met.at(static_cast<std::size_t>(way) * 2 + static_cast<std::size_t>(told.load())) += 1;
        Execution& second = begin_sum(1, true);
        for (int turn = 0; turn < 20; ++turn) {
            second.progress();
            first.progress();
        }
        ASSERT_TRUE(first.done() && second.done()) << use;
        for (const std::size_t rank : {0U, 1U})
            ASSERT_EQ(buffers.at(rank), std::vector<float>(count, static_cast<float>(2 * use + 2))) << use;
    }
    for (const int times : met) EXPECT_GT(times, 0);
}

TEST_F(ByAddress, pieces_that_are_published_already_are_read_with_one_call) {
    count_calls();
    Execution& first = begin_gather_of_pieces(0, half / 4);
    progress(first);
    Execution& second = begin_gather_of_pieces(1, half / 4);
    progress(second);
    progress(first);
    progress(second);
    EXPECT_TRUE(first.done() && second.done());
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(buffers[1], buffers[0]);
    EXPECT_EQ(std::accumulate(buffers[1].begin(), buffers[1].end(), 0.0), 1.5 * count);
}

TEST_F(ByAddress, a_piece_that_comes_later_is_read_by_itself) {
    // The second has more elements than the first, so it is not told with that.
    Execution& first = begin_gather_of_pieces(0, half / 4);
    progress(first);
    // As if the second had not come yet.
    auto& stamp = arena->control(0).stamps[1];
    const std::uint64_t published = stamp.exchange(0);
    Execution& second = begin_gather_of_pieces(1, half / 4);
    progress(second);
    EXPECT_EQ(buffers[1][0], 1);
    EXPECT_EQ(buffers[1][half / 4], 2);
    stamp = published;
    progress(second);
    progress(first);
    progress(second);
    EXPECT_TRUE(first.done() && second.done());
    EXPECT_EQ(buffers[1], buffers[0]);
}

TEST_F(ByAddress, pieces_of_one_size_are_told_at_once) {
    count_calls();
    Execution& first = begin_gather_of_pieces(0);
    progress(first);
    EXPECT_NE(arena->control(0).stamps[0], 0U);
    EXPECT_EQ(arena->control(0).stamps[1], 0U);
    Execution& second = begin_gather_of_pieces(1);
    progress(second);
    EXPECT_EQ(calls, 1);
    progress(first);
    progress(second);
    EXPECT_TRUE(first.done() && second.done());
    EXPECT_EQ(buffers[1], buffers[0]);
    EXPECT_EQ(std::accumulate(buffers[1].begin(), buffers[1].end(), 0.0), 1.5 * count);
}

TEST_F(ByAddress, pieces_that_are_told_at_once_are_combined_with_one_call) {
    count_calls();
    for (std::uint64_t i = 0; i < count; ++i) buffers[0][i] = static_cast<float>(i % 1000);
    constexpr std::uint32_t pieces = 20;  // more than there are slots
    Execution &first = begin_sum_of_pieces(0, pieces), &second = begin_sum_of_pieces(1, pieces);
    for (int turn = 0; turn < 100; ++turn) {
        first.progress();
        second.progress();
    }
    EXPECT_TRUE(first.done() && second.done());
    EXPECT_EQ(calls, 1);
    for (std::uint64_t i = 0; i < half; ++i) {
        ASSERT_EQ(buffers[0][i], static_cast<float>(i % 1000 + 2)) << i;
        ASSERT_EQ(buffers[1][half + i], static_cast<float>((half + i) % 1000 + 2)) << i;
    }
}

TEST_F(ByAddress, what_is_told_at_once_and_what_is_copied_meet) {
    const auto choices = std::make_unique<transport::CopyChoices>();
    for (Ground& ground : grounds) ground.copy_choices = choices.get();
    constexpr std::uint32_t pieces = 20;
    std::array<int, 4> met{};  // by whether rank 0, and rank 1, told at once
    for (int use = 0; use < 60; ++use) {
        const std::uint64_t base = grounds[0].first_publication;
        std::ranges::fill(buffers[0], 1.0F);
        std::ranges::fill(buffers[1], 2.0F);
        // Rank 0 chooses for both; rank 1, which begins before, follows with the next use.
        Execution &second = begin_sum_of_pieces(1, pieces, true), &first = begin_sum_of_pieces(0, pieces, true);
        for (int turn = 0; turn < 100; ++turn) {
            first.progress();
            second.progress();
        }
        ASSERT_TRUE(first.done() && second.done()) << use;
        ASSERT_EQ(std::count(buffers[0].begin(), buffers[0].begin() + half, 3.0F), half) << use;
        ASSERT_EQ(std::count(buffers[1].begin() + half, buffers[1].end(), 3.0F), half) << use;
        const auto told = [&](int rank) {
            return arena->control(rank).stamps[base % arena->layout().slots] ==
                   ((base + 1) | transport::published_in_place);
        };
        ++met.at((told(0) ? 2U : 0U) + (told(1) ? 1U : 0U));
    }
    for (const int times : met) EXPECT_GT(times, 0);
}

TEST_F(ByAddress, what_is_told_at_once_leaves_other_rounds_to_be_published) {
    Execution &first = begin_rounds_out_of_order(0), &second = begin_rounds_out_of_order(1);
    for (int turn = 0; turn < 20; ++turn) {
        first.progress();
        second.progress();
    }
    EXPECT_TRUE(first.done() && second.done());
    EXPECT_EQ(buffers[1], buffers[0]);
}

TEST_F(ByAddress, what_is_told_at_once_stands_when_its_slot_has_the_next_publication) {
    // Eight pieces that fill all slots, of which the reader exchanges neighbours, so that it reads one after the other;
    // then a longer one, which comes into the first slot.
    constexpr std::uint32_t pieces = 8;
    constexpr std::uint64_t piece = count / 16;
    const auto begin_nine = [this](std::size_t rank) -> Execution& {
        Builder b("nine");
        for (std::uint32_t t = 0; t <= pieces; ++t) {
            const std::uint64_t length = t < pieces ? piece : count - pieces * piece;
            if (rank == 0)
                b.publish(t, std::vector{Chunk{Buffer::output, t * piece, length}});
            else
                b.read(0, t, 0, {Buffer::output, (t < pieces ? t ^ 1U : t) * piece, length});
            b.release(t + 1);
        }
        return run(rank, b, pieces + 1);
    };
    ASSERT_EQ(arena->layout().slots, pieces);
    for (std::uint64_t i = 0; i < count; ++i) buffers[0][i] = static_cast<float>(i / piece);
    progress(begin_nine(0));
    count_calls();
    at_second_call = [this] { progress(*executions[0]); };
    Execution& second = begin_nine(1);
    progress(second);
    progress(*executions[0]);
    EXPECT_TRUE(second.done() && executions[0]->done());
    for (std::uint64_t i = 0; i < count; ++i)
        ASSERT_EQ(buffers[1][i],
                  i < pieces * piece ? buffers[0][i / piece % 2 == 0 ? i + piece : i - piece] : buffers[0][i])
            << i;
}

TEST_F(ByAddress, what_was_told_and_then_given_up_is_not_read) {
    // Two pieces, of which the reader swaps the places, so that it reads them one after the other.
    const auto begin_swapped = [this](std::size_t rank) -> Execution& {
        Builder b("swapped");
        for (const std::uint32_t t : {0U, 1U}) {
            if (rank == 0)
                b.publish(t, std::vector{Chunk{Buffer::output, t * half, half}});
            else
                b.read(0, t, 0, {Buffer::output, (1 - t) * half, half});
        }
        return run(rank, b, 2);
    };
    progress(begin_swapped(0));
    count_calls();
    at_second_call = [this] { executions[0].reset(); };
    Execution& second = begin_swapped(1);
    progress(second);
    EXPECT_GE(calls, 2);
    EXPECT_FALSE(second.done());
}

TEST_F(ByAddress, who_comes_late_writes_nothing_into_a_buffer_that_was_given_up) {
    progress(begin(1));  // it has offered its buffer
    executions[1].reset();
    Execution& root = begin(0);
    progress(root);
    EXPECT_FALSE(root.done());
    EXPECT_EQ(buffers[1], std::vector<float>(count, 2));
}

TEST_F(ByAddress, who_comes_late_reads_nothing_of_a_buffer_that_was_given_up) {
    progress(begin(0));
    executions[0].reset();
    Execution& other = begin(1);
    progress(other);
    EXPECT_FALSE(other.done());
}

TEST_F(ByAddress, a_buffer_is_given_up_when_nobody_writes_there_any_more) {
    progress(begin(1));
    auto& writing_to = arena->control(0).writing_to;
    writing_to = 2;  // rank 0 is at it
    std::atomic<bool> given_up{false};
    std::thread giving_up([&] {
        executions[1].reset();
        given_up = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_FALSE(given_up);
    writing_to = 0;
    giving_up.join();
}

TEST_F(ByAddress, who_combines_reads_and_writes_the_buffers_of_all) {
    Execution &first = begin_sum(0), &second = begin_sum(1);
    progress(first);
    EXPECT_FALSE(first.done());
    for (int turn = 0; turn < 2; ++turn) {
        progress(second);
        progress(first);
    }
    EXPECT_TRUE(first.done() && second.done());
    for (const int rank : {0, 1}) {
        EXPECT_EQ(buffers.at(static_cast<std::size_t>(rank)), std::vector<float>(count, 3)) << "rank " << rank;
        const auto* slot = reinterpret_cast<const float*>(arena->slot(rank, 0));
        EXPECT_EQ(std::count(slot, slot + half, static_cast<float>(rank + 1)), 0) << "rank " << rank;
    }
}

TEST_F(ByAddress, who_combines_late_leaves_a_buffer_alone_that_was_given_up) {
    progress(begin_sum(1));
    executions[1].reset();
    Execution& late = begin_sum(0);
    progress(late);
    EXPECT_FALSE(late.done());
    EXPECT_EQ(buffers[1], std::vector<float>(count, 2));
}

TEST_F(ByAddress, memory_that_the_kernel_does_not_copy_is_staged) {
    EXPECT_TRUE(transport::PeerMemory::reachable(reinterpret_cast<std::byte*>(buffers[0].data()), count));
    EXPECT_FALSE(transport::PeerMemory::reachable(reinterpret_cast<std::byte*>(4096), 100));  // nothing is there
}

}  // namespace
}  // namespace tutti::engine
