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
            b.read_in_place(0, second, second);
        else
            b.write_in_place(1, first, first);
        auto schedule = std::move(b).finish();
        Builder staged("staged");
        if (rank == 1)
            staged.read(0, 0, 0, all);
        else
            staged.publish(0, std::vector{all});
        staged.release(1);
        staged.use_rounds(1);
        schedule.otherwise = std::make_shared<schedule::Schedule>(std::move(staged).finish());
        const Operands operands{.output = output(rank), .dtype = DType::float32};
        return executions.at(rank).emplace(std::make_shared<schedule::Schedule>(std::move(schedule)), operands,
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
