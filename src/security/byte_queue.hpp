// ByteQueue: a FIFO of bytes in one contiguous buffer, with room at its end to receive into.
//
// Threads: one at a time.
#pragma once

#include "core/assert.hpp"

#include <cstddef>
#include <memory>
#include <span>

namespace tutti::security {

class ByteQueue {
 public:
    std::span<const std::byte> bytes() const noexcept { return {memory_.get() + begin_, end_ - begin_}; }
    bool empty() const noexcept { return begin_ == end_; }
    /// Room for at least `at_least` bytes: write some of it, then call added() with the number written.
    std::span<std::byte> room(std::size_t at_least);
    void added(std::size_t count) noexcept {
        TUTTI_ASSERT(count <= size_ - end_);
        end_ += count;
    }
    void append(std::span<const std::byte> bytes);
    void remove(std::size_t count) noexcept;

 private:
    std::unique_ptr<std::byte[]> memory_;
    std::size_t size_ = 0, begin_ = 0, end_ = 0;
};

}  // namespace tutti::security
