// Queue: first in, first out. It keeps its memory: a queue that is filled and emptied again and again allocates
// nothing.
//
// Threads: one at a time.
#pragma once

#include "core/assert.hpp"

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace tutti {

template <class T>
class Queue {
 public:
    bool empty() const noexcept { return first_ == items_.size(); }
    const T& front() const noexcept {
        TUTTI_ASSERT(!empty());
        return items_[first_];
    }
    T& front() noexcept {
        TUTTI_ASSERT(!empty());
        return items_[first_];
    }
    /// All items, from the first to the last.
    std::span<const T> items() const noexcept { return std::span(items_).subspan(first_); }
    void push(T item) {
        // Reuse the memory of popped items if they are more than half: each item then moves once on average.
        if (items_.size() == items_.capacity() && first_ > items_.size() / 2) {
            items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(first_));
            first_ = 0;
        }
        items_.push_back(std::move(item));
    }
    void pop() {
        TUTTI_ASSERT(!empty());
        items_[first_++] = T();
        if (empty()) clear();
    }
    void clear() noexcept {
        items_.clear();
        first_ = 0;
    }
    /// Removes all items and returns them, from the first to the last.
    std::vector<T> take() {
        std::vector<T> all = std::exchange(items_, {});
        all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(std::exchange(first_, 0)));
        TUTTI_ASSERT(empty());
        return all;
    }

 private:
    std::vector<T> items_;  // from first_ on
    std::size_t first_ = 0;
};

}  // namespace tutti
