// SpareMemory: memory for messages that arrive before their receives are posted. It keeps returned blocks, up to a
// bound, so that a program that repeats a pattern allocates only once.
//
// Threads: one at a time.
#pragma once

#include "core/assert.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace tutti::transport {

class SpareMemory {
 public:
    /// The most bytes that it keeps. It keeps no block longer than the longest eager message.
    static constexpr std::size_t bytes_max = std::size_t{4} << 20;
    static constexpr std::size_t least_block = 256, longest_block = std::size_t{256} << 10;

    class Block {
     public:
        Block() = default;
        std::byte* get() const noexcept { return bytes_.get(); }

     private:
        friend class SpareMemory;
        std::unique_ptr<std::byte[]> bytes_{};
        std::size_t size_ = 0;  // a power of two, at least least_block
    };

    /// A block of at least `bytes` bytes.
    Block take(std::size_t bytes) {
        TUTTI_ASSERT(bytes <= SIZE_MAX / 2);
        Block block;
        block.size_ = std::bit_ceil(std::max(bytes, least_block));
        TUTTI_ASSERT(block.size_ >= bytes && block.size_ >= least_block);
        if (block.size_ <= longest_block) {
            auto& spare = spare_of(block.size_);
            if (!spare.empty()) {
                block.bytes_ = std::move(spare.back());
                spare.pop_back();
                TUTTI_ASSERT(spare_bytes_ >= block.size_);
                spare_bytes_ -= block.size_;
                return block;
            }
        }
        block.bytes_ = std::make_unique_for_overwrite<std::byte[]>(block.size_);
        return block;
    }
    void give_back(Block block) {
        TUTTI_ASSERT(!block.bytes_ || std::has_single_bit(block.size_));
        if (!block.bytes_ || block.size_ > longest_block || spare_bytes_ + block.size_ > bytes_max) return;
        spare_bytes_ += block.size_;
        TUTTI_ASSERT(spare_bytes_ <= bytes_max);
        spare_of(block.size_).push_back(std::move(block.bytes_));
    }
    std::size_t spare_bytes() const noexcept { return spare_bytes_; }

 private:
    using Blocks = std::vector<std::unique_ptr<std::byte[]>>;
    Blocks& spare_of(std::size_t size) {
        TUTTI_ASSERT(std::has_single_bit(size));
        TUTTI_ASSERT(size >= least_block && size <= longest_block);
        return spare_[static_cast<std::size_t>(std::countr_zero(size)) - first_];
    }

    static constexpr std::size_t first_ = std::countr_zero(least_block);
    std::array<Blocks, std::countr_zero(longest_block) - first_ + 1> spare_;  // by the logarithm of the block size
    std::size_t spare_bytes_ = 0;
};

}  // namespace tutti::transport
