#include "store/table.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

namespace tutti::store {

std::int64_t Table::counter(std::string_view key) const {
    const auto found = entries_.find(std::string(key));
    return found != entries_.end() && found->second.is_counter ? std::stoll(found->second.value) : 0;
}

std::int64_t Table::add(std::string_view key, std::int64_t amount) {
    const auto found = entries_.find(std::string(key));
    if (found != entries_.end() && !found->second.is_counter) {
        throw DistStoreError(fmt::format("add: key \"{}\" holds a value that was not made by add", key));
    }
    std::int64_t sum = 0;
    if (__builtin_add_overflow(counter(key), amount, &sum)) {
        throw DistStoreError(fmt::format("add: the counter \"{}\" would overflow", key));
    }
    set_counter(key, sum);
    return sum;
}

void Table::append(std::string_view key, std::string_view value) {
    Entry& entry = entries_[std::string(key)];
    entry.value += value;
    entry.is_counter = false;
}

std::string Table::compare_set(std::string_view key, std::string_view expected, std::string_view desired) {
    const auto found = entries_.find(std::string(key));
    if (found == entries_.end()) {
        if (!expected.empty()) return std::string(expected);
        set(key, desired);
        return std::string(desired);
    }
    if (expected.empty() || found->second.value != expected) return found->second.value;
    found->second = {std::string(desired), false};
    return std::string(desired);
}

const std::string* Table::find(std::string_view key) const {
    const auto found = entries_.find(std::string(key));
    return found == entries_.end() ? nullptr : &found->second.value;
}

}  // namespace tutti::store
