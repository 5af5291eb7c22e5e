// Memory that is used again.
#include "transport/spare_memory.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace tutti::transport {
namespace {

TEST(SpareMemory, gives_the_memory_that_it_got_back) {
    SpareMemory memory;
    SpareMemory::Block block = memory.take(1000);
    const std::byte* const at = block.get();
    memory.give_back(std::move(block));
    EXPECT_EQ(memory.spare_bytes(), 1024U);
    EXPECT_NE(memory.take(1025).get(), at) << "which is too short";
    EXPECT_EQ(memory.take(513).get(), at);
    EXPECT_EQ(memory.spare_bytes(), 0U);
}

TEST(SpareMemory, has_room_for_any_length) {
    SpareMemory memory;
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, SpareMemory::least_block + 1,
                                    SpareMemory::longest_block, SpareMemory::longest_block + 1}) {
        SpareMemory::Block block = memory.take(bytes);
        std::memset(block.get(), 7, bytes);  // the address sanitizer looks
        memory.give_back(std::move(block));
    }
    EXPECT_EQ(memory.spare_bytes(), SpareMemory::least_block + 512 + SpareMemory::longest_block);
}

TEST(SpareMemory, keeps_no_more_than_its_bound) {
    SpareMemory memory;
    std::vector<SpareMemory::Block> blocks;
    for (std::size_t taken = 0; taken <= SpareMemory::bytes_max; taken += SpareMemory::longest_block)
        blocks.push_back(memory.take(SpareMemory::longest_block));
    for (SpareMemory::Block& block : blocks) memory.give_back(std::move(block));
    EXPECT_EQ(memory.spare_bytes(), SpareMemory::bytes_max);
}

}  // namespace
}  // namespace tutti::transport
