// Table: the keys and values of a store in memory, and what the operations mean. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace tutti::store {

/// Every store has this key: it counts the users, and num_keys counts it.
inline constexpr std::string_view coordination_key = "init/";

class Table {
 public:
    void set(std::string_view key, std::string_view value) { entries_[std::string(key)] = {std::string(value), false}; }
    /// Throws DistStoreError if the value is no counter, or the sum overflows.
    std::int64_t add(std::string_view key, std::int64_t amount);
    void append(std::string_view key, std::string_view value);
    std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired);
    bool erase(std::string_view key) { return entries_.erase(std::string(key)) > 0; }
    bool contains(std::string_view key) const { return entries_.contains(std::string(key)); }
    /// Null when absent.
    const std::string* find(std::string_view key) const;
    std::int64_t size() const { return static_cast<std::int64_t>(entries_.size()); }
    /// 0 when absent.
    std::int64_t counter(std::string_view key) const;
    void clear() { entries_.clear(); }
    void set_counter(std::string_view key, std::int64_t value) {
        entries_[std::string(key)] = {std::to_string(value), true};
    }

 private:
    struct Entry {
        std::string value;
        bool is_counter = false;
    };
    std::unordered_map<std::string, Entry> entries_;
};

}  // namespace tutti::store
