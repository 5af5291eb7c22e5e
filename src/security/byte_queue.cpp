#include "security/byte_queue.hpp"

#include "core/assert.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace tutti::security {

std::span<std::byte> ByteQueue::room(std::size_t at_least) {
    TUTTI_ASSERT(begin_ <= end_ && end_ <= size_);
    if (begin_ == end_) begin_ = end_ = 0;
    if (size_ - end_ < at_least) {
        const std::size_t held = end_ - begin_;
        if (size_ - held >= at_least) {
            std::memmove(memory_.get(), memory_.get() + begin_, held);
        } else {
            const std::size_t larger = std::max(2 * size_, held + at_least);
            auto memory = std::make_unique_for_overwrite<std::byte[]>(larger);
            if (held > 0) std::memcpy(memory.get(), memory_.get() + begin_, held);
            memory_ = std::move(memory);
            size_ = larger;
        }
        begin_ = 0;
        end_ = held;
    }
    TUTTI_ASSERT(size_ - end_ >= at_least);
    return {memory_.get() + end_, size_ - end_};
}

void ByteQueue::append(std::span<const std::byte> bytes) {
    if (bytes.empty()) return;
    std::memcpy(room(bytes.size()).data(), bytes.data(), bytes.size());
    added(bytes.size());
}

// A queue that was large once does not stay so.
void ByteQueue::remove(std::size_t count) noexcept {
    constexpr std::size_t kept_bytes = std::size_t{1} << 20;
    TUTTI_ASSERT(count <= end_ - begin_);
    begin_ += count;
    if (begin_ != end_) return;
    begin_ = end_ = 0;
    if (size_ <= kept_bytes) return;
    memory_.reset();
    size_ = 0;
}

}  // namespace tutti::security
