// KeptMap: an unordered map that reuses the memory of erased entries: as long as insertions and erasures balance, it
// allocates nothing.
//
// Threads: one at a time.
#pragma once

#include "core/assert.hpp"

#include <cstddef>
#include <iterator>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tutti {

template <class Key, class T>
class KeptMap {
    using Map = std::unordered_map<Key, T>;

 public:
    /// The most erased entries whose memory it keeps.
    static constexpr std::size_t spare_max = 4096;
    using iterator = typename Map::iterator;
    using const_iterator = typename Map::const_iterator;

    bool empty() const noexcept { return map_.empty(); }
    std::size_t size() const noexcept { return map_.size(); }
    bool contains(const Key& key) const { return map_.contains(key); }
    iterator find(const Key& key) { return map_.find(key); }
    const_iterator find(const Key& key) const { return map_.find(key); }
    iterator begin() noexcept { return map_.begin(); }
    iterator end() noexcept { return map_.end(); }
    const_iterator begin() const noexcept { return map_.begin(); }
    const_iterator end() const noexcept { return map_.end(); }

    /// The value of a key; inserts T() if it has none.
    T& operator[](const Key& key) {
        if (spare_.empty()) return map_[key];
        if (const auto found = map_.find(key); found != map_.end()) return found->second;
        typename Map::node_type node = std::move(spare_.back());
        spare_.pop_back();
        TUTTI_ASSERT(!node.empty());
        node.key() = key;
        return map_.insert(std::move(node)).position->second;
    }
    /// Returns an iterator to the next entry.
    iterator erase(iterator entry) {
        TUTTI_ASSERT(entry != map_.end());
        const iterator next = std::next(entry);
        typename Map::node_type node = map_.extract(entry);
        node.mapped() = T();
        if (spare_.size() < spare_max) spare_.push_back(std::move(node));
        TUTTI_ASSERT(spare_.size() <= spare_max);
        return next;
    }
    void clear() noexcept { map_.clear(); }

 private:
    Map map_;
    std::vector<typename Map::node_type> spare_;
};

}  // namespace tutti
