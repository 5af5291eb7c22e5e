// HashStore: a map, a lock and a bell.
//
// Threads: any. One mutex guards the map; writers wake all waiting threads.
#include "core/assert.hpp"
#include "core/deadline.hpp"
#include "core/interrupt.hpp"
#include "core/patience.hpp"
#include "store/key_map.hpp"
#include "store/messages.hpp"

#include <tutti/error.hpp>
#include <tutti/store.hpp>

#include <algorithm>
#include <condition_variable>
#include <mutex>

namespace tutti {
namespace {

class HashBackend : public StoreBackend {
 public:
    void set(std::string_view key, std::string_view value, Milliseconds) override {
        const std::lock_guard lock(mutex_);
        map_.set(key, value);
        changed_.notify_all();
    }
    std::string get(std::string_view key, Milliseconds timeout) override {
        const std::string wanted(key);
        std::unique_lock lock(mutex_);
        wait_for({&wanted, 1}, timeout, "get", lock);
        TUTTI_ASSERT(map_.contains(key));
        return *map_.find(key);
    }
    std::int64_t add(std::string_view key, std::int64_t amount, Milliseconds) override {
        const std::lock_guard lock(mutex_);
        const std::int64_t result = map_.add(key, amount);
        changed_.notify_all();
        return result;
    }
    void append(std::string_view key, std::string_view value, Milliseconds) override {
        const std::lock_guard lock(mutex_);
        map_.append(key, value);
        changed_.notify_all();
    }
    bool check(std::span<const std::string> keys, Milliseconds) override {
        const std::lock_guard lock(mutex_);
        return all_exist(keys);
    }
    std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                            Milliseconds) override {
        const std::lock_guard lock(mutex_);
        std::string result = map_.compare_set(key, expected, desired);
        changed_.notify_all();
        return result;
    }
    bool delete_key(std::string_view key, Milliseconds) override {
        const std::lock_guard lock(mutex_);
        return map_.erase(key);
    }
    std::int64_t num_keys(Milliseconds) override {
        const std::lock_guard lock(mutex_);
        return static_cast<std::int64_t>(map_.size());
    }
    void wait(std::span<const std::string> keys, Milliseconds timeout) override {
        std::unique_lock lock(mutex_);
        wait_for(keys, timeout, "wait", lock);
    }
    std::vector<std::string> multi_get(std::span<const std::string> keys, Milliseconds timeout) override {
        std::unique_lock lock(mutex_);
        wait_for(keys, timeout, "multi_get", lock);
        std::vector<std::string> values;
        values.reserve(keys.size());
        for (const auto& key : keys) values.push_back(*map_.find(key));
        return values;
    }
    void multi_set(std::span<const std::string> keys, std::span<const std::string> values, Milliseconds) override {
        const std::lock_guard lock(mutex_);
        TUTTI_ASSERT(keys.size() == values.size());
        for (std::size_t i = 0; i < keys.size(); ++i) map_.set(keys[i], values[i]);
        changed_.notify_all();
    }
    /// The store ends with the process.
    bool set_will(std::string_view, std::string_view, Milliseconds) override { return true; }
    std::string describe() const override { return "HashStore"; }

 private:
    bool all_exist(std::span<const std::string> keys) const {
        return std::ranges::all_of(keys, [this](const std::string& key) { return map_.contains(key); });
    }

    void wait_for(std::span<const std::string> keys, Milliseconds timeout, const char* operation,
                  std::unique_lock<std::mutex>& lock) {
        const Instant start = Clock::now();
        TUTTI_ASSERT(lock.owns_lock() && operation != nullptr);
        const Deadline deadline = Deadline::after(timeout, start);
        const Patience patience([&] { return store::what_is_awaited("HashStore", operation, keys); });
        while (!all_exist(keys)) {
            check_wait(Deadline::never(), abort_flag(), operation);
            if (deadline.expired()) store::throw_timeout(describe(), operation, keys, start, timeout);
            changed_.wait_for(lock, std::min<Clock::duration>(deadline.remaining(), wait_slice));
        }
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    store::KeyMap map_;
};

}  // namespace

HashStore::HashStore(Milliseconds timeout) : Store(std::make_shared<HashBackend>(), timeout) {}

}  // namespace tutti
