// ByChannel: a list of waiting items for each channel. It keeps the memory of removed items and reuses it for later
// ones, so it allocates nothing while items are removed as often as they are added.
//
// Threads: one at a time.
#pragma once

#include "core/assert.hpp"
#include "core/kept_map.hpp"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <list>
#include <utility>

namespace tutti::transport {

template <class T>
class ByChannel {
 public:
    using List = std::list<T>;  ///< never empty
    using Channel = typename KeptMap<std::uint64_t, List>::iterator;

    bool empty() const noexcept { return lists_.empty(); }
    bool contains(std::uint64_t channel) const { return lists_.contains(channel); }
    Channel find(std::uint64_t channel) { return lists_.find(channel); }
    /// The items that wait on a channel; null: none waits.
    const List* on(std::uint64_t channel) const {
        const auto found = lists_.find(channel);
        TUTTI_ASSERT(found == lists_.end() || !found->second.empty());
        return found == lists_.end() ? nullptr : &found->second;
    }
    Channel end() noexcept { return lists_.end(); }

    /// Appends an item to the channel's list. The item's address does not change while it is in the list.
    T& add(std::uint64_t channel, T item) {
        List& list = lists_[channel];
        if (spare_.empty()) return list.emplace_back(std::move(item));
        list.splice(list.end(), spare_, spare_.begin());
        return list.back() = std::move(item);
    }
    void remove(Channel channel, typename List::iterator item) {
        TUTTI_ASSERT(channel != lists_.end());
        TUTTI_ASSERT(!channel->second.empty());
        drop(channel->second, item);
        if (channel->second.empty()) lists_.erase(channel);
    }
    /// Removes the items of a channel for which `condition` holds. Returns their number.
    template <class Condition>
    std::size_t remove_if(Channel channel, const Condition& condition) {
        TUTTI_ASSERT(channel != lists_.end());
        TUTTI_ASSERT(!channel->second.empty());
        const std::size_t removed = drop_if(channel->second, condition);
        if (channel->second.empty()) lists_.erase(channel);
        return removed;
    }
    template <class Condition>
    void remove_if(const Condition& condition) {
        for (auto entry = lists_.begin(); entry != lists_.end();) {
            drop_if(entry->second, condition);
            entry = entry->second.empty() ? lists_.erase(entry) : std::next(entry);
        }
    }
    template <class See>
    void for_each(const See& see) const {
        for (const auto& [channel, list] : lists_) {
            for (const T& item : list) see(item);
        }
    }
    void clear() noexcept { lists_.clear(); }

 private:
    template <class Condition>
    std::size_t drop_if(List& list, const Condition& condition) {
        std::size_t dropped = 0;
        for (auto item = list.begin(); item != list.end();) {
            const auto next = std::next(item);
            if (condition(*item)) {
                drop(list, item);
                ++dropped;
            }
            item = next;
        }
        return dropped;
    }
    void drop(List& list, typename List::iterator item) {
        TUTTI_ASSERT(!list.empty());
        if (spare_.size() >= KeptMap<std::uint64_t, List>::spare_max) {
            list.erase(item);
            return;
        }
        *item = T();
        TUTTI_ASSERT(spare_.size() < KeptMap<std::uint64_t, List>::spare_max);
        spare_.splice(spare_.begin(), list, item);
    }

    KeptMap<std::uint64_t, List> lists_;
    List spare_;
};

}  // namespace tutti::transport
