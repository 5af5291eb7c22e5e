#include "schedule/dependencies.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace tutti::schedule {
namespace {

using Steps = std::vector<std::uint32_t>;

constexpr Chunk whole{Buffer::input, 0, 4}, head{Buffer::input, 0, 2}, tail{Buffer::input, 2, 2};
constexpr Chunk elsewhere{static_cast<Buffer>(5), 0, 4};

/// What the next step waits for, if it reads and writes these.
Steps next(Dependencies& all, const std::vector<Chunk>& read, const std::vector<Chunk>& written) {
    all.begin();
    for (const Chunk& chunk : read) all.reads(chunk);
    for (const Chunk& chunk : written) all.writes(chunk);
    const auto waits = all.end();
    return {waits.begin(), waits.end()};
}

TEST(Dependencies, a_step_waits_for_writers_of_what_it_touches_and_readers_of_what_it_writes) {
    Dependencies all;
    EXPECT_EQ(next(all, {}, {head}), Steps{});
    EXPECT_EQ(next(all, {}, {tail}), Steps{});
    EXPECT_EQ(next(all, {head}, {}), Steps{0});
    EXPECT_EQ(next(all, {whole}, {}), (Steps{0, 1}));
    EXPECT_EQ(next(all, {}, {head}), (Steps{0, 2, 3})) << "the writer before, and both readers";
    EXPECT_EQ(next(all, {whole}, {}), (Steps{1, 4})) << "of the head, the latest writer alone";
}

TEST(Dependencies, readers_do_not_wait_for_each_other_nor_do_buffers_meet) {
    Dependencies all;
    EXPECT_EQ(next(all, {whole}, {}), Steps{});
    EXPECT_EQ(next(all, {head}, {elsewhere}), Steps{});
    EXPECT_EQ(next(all, {elsewhere}, {}), Steps{1});
    EXPECT_EQ(next(all, {}, {{Buffer::input, 1, 0}}), Steps{}) << "no elements";
}

TEST(Dependencies, a_step_that_reads_what_it_writes_does_not_wait_for_itself) {
    Dependencies all;
    next(all, {}, {whole});
    EXPECT_EQ(next(all, {whole}, {whole}), Steps{0});
    EXPECT_EQ(next(all, {}, {whole}), Steps{1});
}

TEST(Dependencies, further_steps_count_once_and_in_order) {
    Dependencies all;
    for (int i = 0; i < 4; ++i) next(all, {}, {});
    all.begin();
    all.waits_for(3);
    all.waits_for(-1);
    all.waits_for_all(2);
    const auto waits = all.end();
    EXPECT_EQ(Steps(waits.begin(), waits.end()), (Steps{2, 3}));
}

}  // namespace
}  // namespace tutti::schedule
