// Store, the handle; HashStore and PrefixStore.
#include <tutti/error.hpp>
#include <tutti/store.hpp>

#include "core/interrupt.hpp"
#include "store/table.hpp"
#include "store/wait_error.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>

namespace tutti {

struct Store::State {
    std::atomic<Milliseconds> timeout;
};

StoreBackend::~StoreBackend() = default;

std::vector<std::string> StoreBackend::multi_get(std::span<const std::string> keys, Milliseconds timeout) {
    const Deadline deadline = Deadline::after(timeout);
    std::vector<std::string> values;
    for (const std::string& key : keys) {
        values.push_back(get(key, std::chrono::ceil<Milliseconds>(deadline.remaining())));
    }
    return values;
}

void StoreBackend::multi_set(std::span<const std::string> keys, std::span<const std::string> values,
                             Milliseconds timeout) {
    for (std::size_t i = 0; i < keys.size(); ++i) set(keys[i], values[i], timeout);
}

Store::Store(std::shared_ptr<StoreBackend> backend, Milliseconds timeout)
    : backend_(std::move(backend)), state_(std::make_shared<State>()) {
    set_timeout(timeout);
}
Store::~Store() = default;

StoreBackend& Store::checked() const {
    if (!backend_) throw InvalidArgument("Store: an empty handle; make a TCPStore, FileStore or HashStore first");
    return *backend_;
}

void Store::set(std::string_view key, std::string_view value) {
    checked().set(key, value, timeout());
}
std::string Store::get(std::string_view key) {
    return checked().get(key, timeout());
}
std::string Store::get(std::string_view key, Milliseconds timeout) {
    return checked().get(key, timeout);
}
std::int64_t Store::add(std::string_view key, std::int64_t amount) {
    return checked().add(key, amount, timeout());
}
void Store::append(std::string_view key, std::string_view value) {
    checked().append(key, value, timeout());
}
bool Store::check(const std::vector<std::string>& keys) {
    return checked().check(keys, timeout());
}
std::string Store::compare_set(std::string_view key, std::string_view expected, std::string_view desired) {
    return checked().compare_set(key, expected, desired, timeout());
}
bool Store::delete_key(std::string_view key) {
    return checked().delete_key(key, timeout());
}
std::int64_t Store::num_keys() {
    return checked().num_keys(timeout());
}
std::vector<std::string> Store::multi_get(const std::vector<std::string>& keys) {
    return checked().multi_get(keys, timeout());
}
void Store::multi_set(const std::vector<std::string>& keys, const std::vector<std::string>& values) {
    if (keys.size() != values.size()) {
        throw InvalidArgument(
            fmt::format("multi_set: {} keys and {} values: expected equally many", keys.size(), values.size()));
    }
    checked().multi_set(keys, values, timeout());
}
void Store::wait(const std::vector<std::string>& keys) {
    checked().wait(keys, timeout());
}
void Store::wait(const std::vector<std::string>& keys, Milliseconds timeout) {
    checked().wait(keys, timeout);
}
bool Store::has_extended_api() const noexcept {
    return backend_ != nullptr;
}
void Store::set_timeout(Milliseconds timeout) {
    if (timeout < Milliseconds::zero()) {
        throw InvalidArgument(fmt::format("Store timeout {} ms: expected zero or more", timeout.count()));
    }
    checked();
    state_->timeout = timeout;
}
Milliseconds Store::timeout() const {
    checked();
    return state_->timeout;
}
std::string Store::describe() const {
    return checked().describe();
}

namespace {

class HashBackend final : public StoreBackend {
 public:
    void set(std::string_view key, std::string_view value, Milliseconds) override {
        change([&] {
            table_.set(key, value);
            return 0;
        });
    }
    std::string get(std::string_view key, Milliseconds timeout) override {
        const std::string name(key);
        std::unique_lock lock(mutex_);
        wait_for({&name, 1}, timeout, lock, "get");
        return *table_.find(key);
    }
    std::int64_t add(std::string_view key, std::int64_t amount, Milliseconds) override {
        return change([&] { return table_.add(key, amount); });
    }
    void append(std::string_view key, std::string_view value, Milliseconds) override {
        change([&] {
            table_.append(key, value);
            return 0;
        });
    }
    bool check(std::span<const std::string> keys, Milliseconds) override {
        const std::lock_guard lock(mutex_);
        return all_there(keys);
    }
    std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                            Milliseconds) override {
        return change([&] { return table_.compare_set(key, expected, desired); });
    }
    bool delete_key(std::string_view key, Milliseconds) override {
        return change([&] { return table_.erase(key); });
    }
    std::int64_t num_keys(Milliseconds) override {
        const std::lock_guard lock(mutex_);
        return table_.size();
    }
    void wait(std::span<const std::string> keys, Milliseconds timeout) override {
        std::unique_lock lock(mutex_);
        wait_for(keys, timeout, lock, "wait");
    }
    std::string describe() const override { return "HashStore"; }

 private:
    bool all_there(std::span<const std::string> keys) const {
        return std::ranges::all_of(keys, [&](const std::string& key) { return table_.contains(key); });
    }
    void wait_for(std::span<const std::string> keys, Milliseconds timeout, std::unique_lock<std::mutex>& lock,
                  const char* operation) {
        const Deadline deadline = Deadline::after(timeout);
        while (!all_there(keys)) {
            if (deadline.expired()) throw store::timeout_error(operation, keys, describe(), timeout);
            if (interrupt_requested()) check_wait(deadline, nullptr, operation);
            changed_.wait_until(lock, std::min(deadline.when(), Clock::now() + wait_slice));
        }
    }
    template <class F>
    std::invoke_result_t<F> change(F f) {
        const std::lock_guard lock(mutex_);
        auto result = f();
        changed_.notify_all();
        return result;
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    store::Table table_;
};

class PrefixBackend final : public StoreBackend {
 public:
    PrefixBackend(std::string prefix, std::shared_ptr<StoreBackend> below)
        : prefix_(std::move(prefix) + "/"), below_(std::move(below)) {}
    void set(std::string_view key, std::string_view value, Milliseconds t) override {
        below_->set(full(key), value, t);
    }
    std::string get(std::string_view key, Milliseconds t) override { return below_->get(full(key), t); }
    std::int64_t add(std::string_view key, std::int64_t amount, Milliseconds t) override {
        return below_->add(full(key), amount, t);
    }
    void append(std::string_view key, std::string_view value, Milliseconds t) override {
        below_->append(full(key), value, t);
    }
    bool check(std::span<const std::string> keys, Milliseconds t) override { return below_->check(full(keys), t); }
    std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                            Milliseconds t) override {
        return below_->compare_set(full(key), expected, desired, t);
    }
    bool delete_key(std::string_view key, Milliseconds t) override { return below_->delete_key(full(key), t); }
    std::int64_t num_keys(Milliseconds t) override { return below_->num_keys(t); }
    void wait(std::span<const std::string> keys, Milliseconds t) override { below_->wait(full(keys), t); }
    std::vector<std::string> multi_get(std::span<const std::string> keys, Milliseconds t) override {
        return below_->multi_get(full(keys), t);
    }
    void multi_set(std::span<const std::string> keys, std::span<const std::string> values, Milliseconds t) override {
        below_->multi_set(full(keys), values, t);
    }
    std::string describe() const override {
        return fmt::format("PrefixStore(\"{}\", {})", prefix_, below_->describe());
    }

 private:
    std::string full(std::string_view key) const { return prefix_ + std::string(key); }
    std::vector<std::string> full(std::span<const std::string> keys) const {
        std::vector<std::string> result;
        for (const std::string& key : keys) result.push_back(full(key));
        return result;
    }
    std::string prefix_;
    std::shared_ptr<StoreBackend> below_;
};

}  // namespace

HashStore::HashStore(Milliseconds timeout) : Store(std::make_shared<HashBackend>(), timeout) {}

PrefixStore::PrefixStore(const std::string& prefix, const Store& store) : underlying_(store) {
    if (!store) throw InvalidArgument("PrefixStore: store is empty");
    backend_ = std::make_shared<PrefixBackend>(prefix, store.backend());
    state_ = std::make_shared<State>();
    set_timeout(store.timeout());
}

}  // namespace tutti
