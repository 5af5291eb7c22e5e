// Where the chunks of a schedule lie.
#include "engine/run_buffers.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>

namespace tutti::engine {
namespace {

using schedule::Buffer;
using schedule::BufferInfo;
using schedule::Chunk;

constexpr auto second_scratch = static_cast<Buffer>(3);

schedule::Schedule with_scratch(std::uint64_t of_the_call, std::uint64_t others) {
    schedule::Schedule schedule;
    schedule.of(Buffer::scratch).count = of_the_call;
    schedule.buffers.push_back(BufferInfo{.dtype = DType::float64, .count = others});
    return schedule;
}

TEST(RunBuffers, put_chunks_where_the_caller_has_them) {
    std::array<std::byte, 64> input{}, output{};
    RunBuffers buffers;
    buffers.place(schedule::Schedule(), {.input = input.data(), .output = output.data(), .dtype = DType::float32});
    EXPECT_EQ(buffers.address({Buffer::input, 3, 2}), input.data() + 12);
    EXPECT_EQ(buffers.address({Buffer::output, 1, 2}), output.data() + 4);
    EXPECT_EQ(buffers.bytes({Buffer::output, 1, 2}), 8U);
}

TEST(RunBuffers, keep_scratch_of_different_types_apart_on_cache_lines_of_their_own) {
    RunBuffers buffers;
    buffers.place(with_scratch(3, 2), {.dtype = DType::float32});
    const std::byte *first = buffers.address({Buffer::scratch, 0, 3}),
                    *second = buffers.address({second_scratch, 0, 2});
    EXPECT_EQ(second - first, 64);
    EXPECT_EQ(buffers.bytes({Buffer::scratch, 0, 3}), 12U) << "of the call's type";
    EXPECT_EQ(buffers.bytes({second_scratch, 0, 2}), 16U);
    EXPECT_EQ(buffers.place_of({second_scratch, 0, 2}).dtype, DType::float64);
}

TEST(RunBuffers, use_the_scratch_of_the_last_run_again_and_get_more_where_it_is_too_small) {
    RunBuffers buffers;
    buffers.place(with_scratch(1000, 10), {.dtype = DType::float32});
    const std::byte* const before = buffers.address({Buffer::scratch, 0, 1});
    buffers.place(with_scratch(500, 10), {.dtype = DType::float32});
    EXPECT_EQ(buffers.address({Buffer::scratch, 0, 1}), before);
    EXPECT_EQ(buffers.address({second_scratch, 0, 1}), before + 2048) << "right behind fewer elements";
    constexpr std::uint64_t many = 100'000;
    buffers.place(with_scratch(many, 10), {.dtype = DType::float64});
    const Chunk last{Buffer::scratch, many - 1, 1};
    *buffers.address(last) = std::byte{1};  // the address sanitizer would see that it is not there
    EXPECT_EQ(buffers.address({second_scratch, 0, 1}) - buffers.address({Buffer::scratch, 0, 1}),
              static_cast<std::ptrdiff_t>(many * 8));
}

}  // namespace
}  // namespace tutti::engine
