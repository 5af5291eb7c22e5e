// KeyMap: the content of every store, and the semantics of its operations. No locks, no waiting.
//
// Threads: none of its own; the owner serialises calls. Values are shared, so that a large value can be sent while a
// later set replaces it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace tutti::store {

using Value = std::shared_ptr<const std::string>;

class KeyMap {
 public:
    void set(std::string_view key, std::string_view value);
    /// Sets the key to a counter of this value, stored as add() stores it.
    void set_counter(std::string_view key, std::int64_t value);
    /// The counter's value plus `amount`. DistStoreError if the key is no counter or the sum overflows.
    std::int64_t sum(std::string_view key, std::int64_t amount) const;
    std::int64_t add(std::string_view key, std::int64_t amount);
    void append(std::string_view key, std::string_view value);
    /// The result of compare_set, and whether it is to write `desired`.
    struct Comparison {
        bool write;
        std::string result;
    };
    Comparison compare(std::string_view key, std::string_view expected, std::string_view desired) const;
    std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired);
    bool erase(std::string_view key);
    /// Null when absent.
    Value find(std::string_view key) const;
    bool contains(std::string_view key) const { return entries_.find(key) != entries_.end(); }
    std::size_t size() const noexcept { return entries_.size(); }
    void clear() { entries_.clear(); }
    /// Calls visit(key, value, counter's value if it is one).
    template <class Visit>
    void for_each(Visit&& visit) const {
        for (const auto& [key, entry] : entries_) visit(key, *entry.value, entry.counter);
    }

 private:
    struct Entry {
        std::shared_ptr<std::string> value;
        std::optional<std::int64_t> counter;
    };
    struct Hash {
        using is_transparent = void;
        std::size_t operator()(std::string_view text) const noexcept { return std::hash<std::string_view>{}(text); }
    };
    struct Equal {
        using is_transparent = void;
        bool operator()(std::string_view a, std::string_view b) const noexcept { return a == b; }
    };
    Entry& at(std::string_view key);
    /// Overwrites the value in place if nobody else holds it.
    static void write(Entry& entry, std::string_view value);
    std::unordered_map<std::string, Entry, Hash, Equal> entries_;
};

}  // namespace tutti::store
