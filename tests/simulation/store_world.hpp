// What worlds of processes around one simulated store have in common: events in their order, and what a store answers.
//
// Threads: one.
#pragma once

#include "core/assert.hpp"
#include "core/deadline.hpp"
#include "rendezvous/store_talk.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tutti::simulation {

template <class Event>
class Events {
 public:
    void add(Instant when, Event event) { events_.emplace(when, std::move(event)); }
    bool empty() const { return events_.empty(); }
    /// Removes the next one; `now` becomes its time, unless it is later.
    Event take(Instant& now) {
        const auto first = events_.begin();
        now = std::max(now, first->first);
        Event event = std::move(first->second);
        events_.erase(first);
        return event;
    }

 private:
    std::multimap<Instant, Event> events_;
};

/// StoreRequest::store of a wait that asks no store.
constexpr int no_store = 2;

inline rendezvous::StoreRequest pause_of(std::chrono::milliseconds time) {
    rendezvous::StoreRequest request = rendezvous::ask::await("nothing", time);
    request.store = no_store;
    return request;
}

using StoreKeys = std::map<std::string, std::string>;

/// The values of all of the keys; empty: one is not there.
inline std::optional<std::vector<std::string>> values_of(const StoreKeys& store, const std::vector<std::string>& keys) {
    std::vector<std::string> values;
    for (const std::string& key : keys) {
        const auto found = store.find(key);
        if (found == store.end()) return std::nullopt;
        values.push_back(found->second);
    }
    return values;
}

/// The answer to a request that neither waits nor leaves a will. Calls `write(key, value)` for what it writes.
template <class Write>
std::vector<std::string> answer_of(StoreKeys& store, const rendezvous::StoreRequest& request, const std::string& key,
                                   Write write) {
    using rendezvous::StoreRequest;
    const auto found = store.find(key);
    const std::string before = found == store.end() ? "" : found->second;
    switch (request.kind) {
        case StoreRequest::read: return found == store.end() ? std::vector<std::string>{} : std::vector{before};
        case StoreRequest::check:
            return values_of(store, request.keys) ? std::vector<std::string>{""} : std::vector<std::string>{};
        case StoreRequest::compare_set:
            if (before != request.expected) return {before.empty() ? request.expected : before};
            write(key, request.value);
            return {request.value};
        case StoreRequest::add: {
            std::string sum = std::to_string((before.empty() ? 0 : std::stoll(before)) + std::stoll(request.value));
            write(key, sum);
            return {std::move(sum)};
        }
        case StoreRequest::write: write(key, request.value); return {};
        case StoreRequest::append: write(key, before + request.value); return {};
        case StoreRequest::remove: store.erase(key); return {};
        default: TUTTI_ASSERT(false); return {};
    }
}

}  // namespace tutti::simulation
