#include "store/key_map.hpp"

#include "core/assert.hpp"
#include "store/messages.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <array>
#include <charconv>

namespace tutti::store {

KeyMap::Entry& KeyMap::at(std::string_view key) {
    const auto found = entries_.find(key);
    return found != entries_.end() ? found->second : entries_[std::string(key)];
}

void KeyMap::write(Entry& entry, std::string_view value) {
    // Gives back the memory that a much larger value left.
    const bool in_place =
        entry.value && entry.value.use_count() == 1 && entry.value->capacity() / 4 <= value.size() + 64;
    if (in_place) {
        entry.value->assign(value);
    } else {
        entry.value = std::make_shared<std::string>(value);
    }
    TUTTI_ASSERT(entry.value->size() == value.size());
}

void KeyMap::set(std::string_view key, std::string_view value) {
    Entry& entry = at(key);
    write(entry, value);
    entry.counter.reset();
    TUTTI_ASSERT(entry.value != nullptr);
}

void KeyMap::set_counter(std::string_view key, std::int64_t value) {
    Entry& entry = at(key);
    std::array<char, 24> text;
    const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
    TUTTI_ASSERT(end > text.data() && end < text.data() + text.size());
    write(entry, {text.data(), static_cast<std::size_t>(end - text.data())});
    entry.counter = value;
}

std::int64_t KeyMap::sum(std::string_view key, std::int64_t amount) const {
    const auto found = entries_.find(key);
    if (found == entries_.end()) return amount;
    const auto& counter = found->second.counter;
    if (!counter) {
        throw DistStoreError(
            fmt::format("key {} is not a counter: its value was written by set, append or compare_set", show_key(key)),
            {.operation = "Store.add"});
    }
    TUTTI_ASSERT(found->second.value != nullptr && !found->second.value->empty());
    std::int64_t result = 0;
    if (__builtin_add_overflow(*counter, amount, &result)) {
        throw DistStoreError(fmt::format("counter {} holds {}: adding {} overflows", show_key(key), *counter, amount),
                             {.operation = "Store.add"});
    }
    return result;
}

std::int64_t KeyMap::add(std::string_view key, std::int64_t amount) {
    const std::int64_t result = sum(key, amount);
    set_counter(key, result);
    TUTTI_ASSERT(contains(key));
    return result;
}

void KeyMap::append(std::string_view key, std::string_view value) {
    Entry& entry = at(key);
    entry.counter.reset();
    if (!entry.value) {
        entry.value = std::make_shared<std::string>(value);
    } else if (entry.value.use_count() == 1) {
        entry.value->append(value);
    } else {  // on its way to somebody: leave that copy alone
        TUTTI_ASSERT(entry.value.use_count() > 1);
        auto copy = std::make_shared<std::string>(*entry.value);
        copy->append(value);
        entry.value = std::move(copy);
    }
}

KeyMap::Comparison KeyMap::compare(std::string_view key, std::string_view expected, std::string_view desired) const {
    const Value value = find(key);
    if (value == nullptr) {
        if (expected.empty()) return {true, std::string(desired)};
        return {false, std::string(expected)};
    }
    if (*value == expected) return {true, std::string(desired)};
    return {false, *value};
}

std::string KeyMap::compare_set(std::string_view key, std::string_view expected, std::string_view desired) {
    Comparison comparison = compare(key, expected, desired);
    if (comparison.write) set(key, desired);
    return std::move(comparison.result);
}

bool KeyMap::erase(std::string_view key) {
    const auto found = entries_.find(key);
    if (found == entries_.end()) return false;
    entries_.erase(found);
    TUTTI_ASSERT(!contains(key));
    return true;
}

Value KeyMap::find(std::string_view key) const {
    const auto found = entries_.find(key);
    TUTTI_ASSERT(found == entries_.end() || found->second.value != nullptr);
    return found == entries_.end() ? nullptr : found->second.value;
}

}  // namespace tutti::store
