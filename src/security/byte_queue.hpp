// ByteQueue: bytes that wait, with room behind them.
//
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace tutti::security {

class ByteQueue {
 public:
    std::span<const std::byte> bytes() const noexcept { return {memory_.get() + begin_, end_ - begin_}; }
    bool empty() const noexcept { return begin_ == end_; }
    /// Room for at least that many; fill some of it in, and tell how many with added().
    std::span<std::byte> room(std::size_t at_least);
    void added(std::size_t count) noexcept { end_ += count; }
    void append(std::span<const std::byte> bytes);
    void remove(std::size_t count) noexcept;

 private:
    std::unique_ptr<std::byte[]> memory_;
    std::size_t size_ = 0, begin_ = 0, end_ = 0;
};

}  // namespace tutti::security
