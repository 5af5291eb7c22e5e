// Two ranks in one thread that reach each other's buffers, and the state that an abandoned operation leaves.
#include "engine/execution.hpp"
#include "schedule/builder.hpp"
#include "support/copies_by_address.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace tutti::engine {
namespace {

using schedule::Buffer;
using schedule::Builder;
using schedule::Chunk;

constexpr std::uint64_t count = 20000, half = count / 2;

class InPlace : public ::testing::Test {
 protected:
    std::shared_ptr<transport::Arena> arena = transport::Arena::create_private({.ranks = 2});
    transport::PeerMemory memory{::getpid()};
    std::array<RankContext, 2> contexts;
    std::array<std::vector<float>, 2> buffers{std::vector<float>(count, 1), std::vector<float>(count, 2)};
    std::array<std::optional<Execution>, 2> executions;

    void SetUp() override {
        for (int rank = 0; rank < 2; ++rank) {
            RankContext& context = contexts.at(static_cast<std::size_t>(rank));
            context.arena = arena.get();
            context.local_rank = rank;
            context.local_of = {0, 1};
            context.memory = [this](int) { return &memory; };
        }
    }
    // A broadcast of rank 0's: it writes the first half, rank 1 reads the second. Where that cannot be, rank 1 reads
    // all of it from the staging area.
    Execution& begin(std::size_t rank) {
        const Chunk first{Buffer::output, 0, half}, second{Buffer::output, half, half}, all{Buffer::output, 0, count};
        Builder b("both");
        b.meet(std::vector{all}, false);
        if (rank == 1)
            b.get(0, second, second);
        else
            b.put(1, first, first);
        auto schedule = std::move(b).finish();
        Builder staged("staged");
        if (rank == 1)
            staged.read(0, 0, 0, all);
        else
            staged.publish(0, std::vector{all});
        staged.release(1);
        staged.use_rounds(1);
        schedule.otherwise = std::make_shared<schedule::Schedule>(std::move(staged).finish());
        const Operands operands{.output = output(rank), .dtype = DType::float32, .channel = 1};
        return executions.at(rank).emplace(std::make_shared<schedule::Schedule>(std::move(schedule)), operands,
                                           contexts.at(rank));
    }
    // A sum in rank 1: rank 0 puts its first half over rank 1's and signals; rank 1 waits, copies the half behind it,
    // and signals; rank 0 waits for that and gets the copy.
    Execution& begin_in_order(std::size_t rank) {
        const Chunk first{Buffer::output, 0, half}, second{Buffer::output, half, half};
        Builder b("in_order");
        b.meet(std::vector{Chunk{Buffer::output, 0, count}}, false);
        if (rank == 0) {
            b.put(1, first, first);
            b.signal();
            b.wait(1, 1);
            b.get(1, second, second);
        } else {
            b.wait(0, 1);
            b.copy(second, first);
            b.signal();
        }
        return executions.at(rank).emplace(std::make_shared<schedule::Schedule>(std::move(b).finish()),
                                           Operands{.output = output(rank), .dtype = DType::float32, .channel = 1},
                                           contexts.at(rank));
    }
    std::byte* output(std::size_t rank) { return reinterpret_cast<std::byte*>(buffers.at(rank).data()); }
    static void progress(Execution& execution) {
        for (int turn = 0; turn < 20; ++turn) execution.progress();
    }
    void run_both() {
        Execution &root = begin(0), &other = begin(1);
        for (int turn = 0; turn < 20; ++turn) {
            root.progress();
            other.progress();
        }
        ASSERT_TRUE(root.done()) << root.where();
        ASSERT_TRUE(other.done()) << other.where();
        EXPECT_EQ(buffers[1], buffers[0]);
    }
    // Whether the values of rank 0 have been in the staging area.
    bool staged() const {
        for (std::uint64_t slot = 0; slot < arena->layout().slots; ++slot) {
            const auto* at = reinterpret_cast<const float*>(arena->slot(0, slot));
            if (std::count(at, at + half, 1.0F) == half) return true;
        }
        return false;
    }
};

TEST_F(InPlace, both_sides_copy_and_nothing_is_staged) {
    if (!test::copies_by_address()) GTEST_SKIP() << test::no_copies;
    run_both();
    EXPECT_EQ(buffers[1], std::vector<float>(count, 1));
    EXPECT_FALSE(staged());
}

TEST_F(InPlace, all_stage_where_one_rank_cannot_be_reached) {
    for (const std::size_t without : {0U, 1U}) {
        contexts.at(without).memory = {};     // the kernel does not let others copy from and to its memory
        for (int use = 0; use < 10; ++use) {  // more publications than there are slots
            std::ranges::fill(buffers[0], 1.0F);
            std::ranges::fill(buffers[1], 2.0F);
            run_both();
        }
        EXPECT_TRUE(staged());
        contexts.at(without).memory = [this](int) { return &memory; };
        std::ranges::fill(buffers[1], 2.0F);
        run_both();  // and the next one is in place again
    }
}

TEST_F(InPlace, a_rank_goes_on_when_it_knows_where_all_buffers_lie) {
    if (!test::copies_by_address()) GTEST_SKIP() << test::no_copies;
    Execution& root = begin(0);
    progress(root);
    EXPECT_EQ(buffers[1], std::vector<float>(count, 2));
    EXPECT_EQ(root.waits_for(), std::vector<int>{1});
    Execution& other = begin(1);
    other.progress();
    EXPECT_EQ(std::count(buffers[1].begin() + half, buffers[1].end(), 1.0F), half) << "it has read its half";
    progress(root);
    progress(other);
    progress(root);
    EXPECT_TRUE(root.done() && other.done());
}

TEST_F(InPlace, a_rank_waits_for_the_signal_of_another_one_and_names_it) {
    if (!test::copies_by_address()) GTEST_SKIP() << test::no_copies;
    for (int use = 0; use < 20; ++use) {  // more rounds than there are slots
        std::ranges::fill(buffers[0], 1.0F);
        std::ranges::fill(buffers[1], 2.0F);
        Execution &first = begin_in_order(0), &second = begin_in_order(1);
        first.progress();  // it has met nobody yet
        progress(second);
        EXPECT_EQ(second.waits_for(), std::vector<int>{0});
        EXPECT_EQ(second.where(), "in_order, step 2 of 6 (waits for signal 1 of rank 0)");
        EXPECT_EQ(buffers[1], std::vector<float>(count, 2)) << "nothing is copied before the signal";
        progress(first);
        EXPECT_EQ(std::count(buffers[1].begin(), buffers[1].begin() + half, 1.0F), half) << "it has put its half";
        EXPECT_EQ(first.waits_for(), std::vector<int>{1});
        EXPECT_EQ(first.where(), "in_order, step 4 of 7 (waits for signal 1 of rank 1)");
        EXPECT_EQ(buffers[0], std::vector<float>(count, 1));
        std::fill_n(buffers[1].begin(), half, 3.0F);  // as if it had put that
        progress(second);
        progress(first);
        progress(second);
        ASSERT_TRUE(first.done() && second.done());
        EXPECT_EQ(std::count(buffers[0].begin() + half, buffers[0].end(), 3.0F), half) << "it has got the copy";
    }
}

TEST_F(InPlace, a_signal_of_a_rank_that_gave_up_does_not_come) {
    progress(begin_in_order(1));
    Execution& first = begin_in_order(0);
    first.progress();
    executions[1].reset();
    progress(first);
    EXPECT_FALSE(first.done());
    EXPECT_EQ(first.where().substr(0, 8), "in_order");
}

TEST_F(InPlace, all_fall_back_where_a_call_has_no_input_of_its_own) {
    const Chunk own{Buffer::input, 0, count}, all{Buffer::output, 0, count};
    std::array<std::vector<float>, 2> inputs{std::vector<float>(count, 5), std::vector<float>(count, 6)};
    for (const std::size_t without : {0U, 1U, 2U}) {
        for (const std::size_t rank : {0U, 1U}) {
            Builder b("others_input");
            b.meet(std::vector{own}, false);
            b.get(static_cast<int>(1 - rank), all, own);
            schedule::Schedule schedule = std::move(b).finish();
            Builder staged("staged");
            staged.publish(0, {});
            staged.read(static_cast<int>(1 - rank), 0, 0, {});
            staged.release(1);
            staged.use_rounds(1);
            schedule.otherwise = std::make_shared<schedule::Schedule>(std::move(staged).finish());
            const Operands operands{
                .input = rank == without ? nullptr : reinterpret_cast<std::byte*>(inputs.at(rank).data()),
                .output = output(rank),
                .dtype = DType::float32,
                .channel = 1};
            buffers.at(rank).assign(count, 0);
            executions.at(rank).emplace(std::make_shared<schedule::Schedule>(std::move(schedule)), operands,
                                        contexts.at(rank));
        }
        for (int turn = 0; turn < 20; ++turn) {
            executions[0]->progress();
            executions[1]->progress();
        }
        ASSERT_TRUE(executions[0]->done() && executions[1]->done());
        const bool in_place = without == 2 && test::copies_by_address();
        EXPECT_EQ(buffers[0], std::vector<float>(count, in_place ? 6 : 0));
        EXPECT_EQ(buffers[1], std::vector<float>(count, in_place ? 5 : 0));
    }
}

TEST_F(InPlace, a_root_keeps_its_buffer_until_it_has_been_read) {
    if (!test::copies_by_address()) GTEST_SKIP() << test::no_copies;
    Execution &other = begin(1), &root = begin(0);
    other.progress();
    progress(root);
    EXPECT_EQ(std::count(buffers[1].begin(), buffers[1].begin() + half, 1.0F), half) << "it has written its half";
    EXPECT_FALSE(root.done()) << "rank 1 has not said that it is through";
    progress(other);
    progress(root);
    EXPECT_TRUE(root.done());
}

TEST_F(InPlace, a_late_writer_leaves_a_buffer_alone_that_was_given_up) {
    progress(begin(1));  // it has said where its buffer lies
    executions[1].reset();
    Execution& root = begin(0);
    progress(root);
    EXPECT_FALSE(root.done());
    EXPECT_EQ(buffers[1], std::vector<float>(count, 2));
}

TEST_F(InPlace, a_late_reader_takes_nothing_of_a_buffer_that_was_given_up) {
    progress(begin(0));
    executions[0].reset();
    Execution& other = begin(1);
    progress(other);
    EXPECT_FALSE(other.done());
}

TEST_F(InPlace, a_reader_that_has_met_its_peer_does_not_believe_what_it_reads_after_that_gave_up) {
    if (!test::copies_by_address()) GTEST_SKIP() << test::no_copies;
    Execution &root = begin(0), &other = begin(1);
    root.progress();
    bool reads = false;
    contexts[1].memory = [&](int) {  // in the middle of its reading
        if (std::exchange(reads, true)) return &memory;
        executions[0].reset();
        return &memory;
    };
    progress(other);
    EXPECT_TRUE(reads);
    EXPECT_FALSE(other.done());
    (void)root;
}

TEST_F(InPlace, a_buffer_is_given_up_when_nobody_writes_there_any_more) {
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

TEST_F(InPlace, memory_that_the_kernel_does_not_copy_is_known) {
    if (!test::copies_by_address()) GTEST_SKIP() << test::no_copies;
    EXPECT_TRUE(transport::PeerMemory::reachable(reinterpret_cast<std::byte*>(buffers[0].data()), count));
    EXPECT_FALSE(transport::PeerMemory::reachable(reinterpret_cast<std::byte*>(4096), 100));  // nothing is there
}

}  // namespace
}  // namespace tutti::engine
