// Store, the handle; the defaults of StoreBackend; PrefixStore.
//
// Threads: any. A handle adds no lock to its backend's: its only state is the default timeout.
#include "core/assert.hpp"
#include "core/deadline.hpp"
#include "core/interrupt.hpp"
#include "store/messages.hpp"

#include <tutti/error.hpp>
#include <tutti/store.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <utility>

namespace tutti {
namespace {

Milliseconds left(const Deadline& deadline) {
    const auto time =
        std::chrono::ceil<Milliseconds>(std::min<Clock::duration>(deadline.remaining(), std::chrono::hours(24)));
    TUTTI_ASSERT(time >= Milliseconds::zero());
    return time;
}

void check_timeout(Milliseconds timeout) {
    if (timeout >= Milliseconds::zero()) return;
    throw InvalidArgument(fmt::format("timeout of {} ms: expected 0 or more", timeout.count()));
}

void check_keys(const std::vector<std::string>& keys) {
    for (const auto& key : keys) store::check_key(key);
}

/// Puts a prefix in front of every key of another store.
class PrefixBackend : public StoreBackend {
 public:
    PrefixBackend(const std::string& prefix, std::shared_ptr<StoreBackend> inner)
        : prefix_(prefix + "/"), inner_(std::move(inner)) {
        TUTTI_ASSERT(inner_ != nullptr && prefix_.ends_with('/'));
    }

    void set(std::string_view key, std::string_view value, Milliseconds timeout) override {
        inner_->set(whole(key), value, timeout);
    }
    std::string get(std::string_view key, Milliseconds timeout) override { return inner_->get(whole(key), timeout); }
    bool asks_again() const override { return inner_->asks_again(); }
    std::string get_with_bell(std::string_view key, Milliseconds timeout, int bell) override {
        return inner_->get_with_bell(whole(key), timeout, bell);
    }
    std::int64_t add(std::string_view key, std::int64_t amount, Milliseconds timeout) override {
        return inner_->add(whole(key), amount, timeout);
    }
    void append(std::string_view key, std::string_view value, Milliseconds timeout) override {
        inner_->append(whole(key), value, timeout);
    }
    bool check(std::span<const std::string> keys, Milliseconds timeout) override {
        return inner_->check(whole(keys), timeout);
    }
    std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                            Milliseconds timeout) override {
        return inner_->compare_set(whole(key), expected, desired, timeout);
    }
    bool delete_key(std::string_view key, Milliseconds timeout) override {
        return inner_->delete_key(whole(key), timeout);
    }
    std::int64_t num_keys(Milliseconds timeout) override { return inner_->num_keys(timeout); }
    void wait(std::span<const std::string> keys, Milliseconds timeout) override { inner_->wait(whole(keys), timeout); }
    std::vector<std::string> multi_get(std::span<const std::string> keys, Milliseconds timeout) override {
        return inner_->multi_get(whole(keys), timeout);
    }
    void multi_set(std::span<const std::string> keys, std::span<const std::string> values,
                   Milliseconds timeout) override {
        TUTTI_ASSERT(keys.size() == values.size());
        inner_->multi_set(whole(keys), values, timeout);
    }
    bool set_will(std::string_view key, std::string_view value, Milliseconds timeout) override {
        return inner_->set_will(whole(key), value, timeout);
    }
    std::string describe() const override { return fmt::format("PrefixStore({}, {})", prefix_, inner_->describe()); }
    std::string local_host() const override { return inner_->local_host(); }
    std::chrono::microseconds round_trip() const override { return inner_->round_trip(); }
    void abort(const std::string& reason) override { inner_->abort(reason); }

 private:
    std::string whole(std::string_view key) const { return prefix_ + std::string(key); }
    std::vector<std::string> whole(std::span<const std::string> keys) const {
        std::vector<std::string> result;
        result.reserve(keys.size());
        for (const auto& key : keys) result.push_back(whole(key));
        return result;
    }

    std::string prefix_;
    std::shared_ptr<StoreBackend> inner_;
};

std::shared_ptr<StoreBackend> checked_backend(const Store& store) {
    if (!store) throw InvalidArgument("PrefixStore: the underlying store is empty");
    return store.backend();
}

}  // namespace

StoreBackend::StoreBackend() : abort_(std::make_unique<AbortFlag>()) {}
StoreBackend::~StoreBackend() = default;

void StoreBackend::abort(const std::string& reason) {
    abort_->raise(reason);
}

bool StoreBackend::set_will(std::string_view, std::string_view, Milliseconds) {
    return false;
}

std::string StoreBackend::get_with_bell(std::string_view key, Milliseconds timeout, int) {
    return get(key, timeout);
}

std::vector<std::string> StoreBackend::multi_get(std::span<const std::string> keys, Milliseconds timeout) {
    const Deadline deadline = Deadline::after(timeout);
    std::vector<std::string> values;
    values.reserve(keys.size());
    for (const auto& key : keys) values.push_back(get(key, left(deadline)));
    return values;
}

void StoreBackend::multi_set(std::span<const std::string> keys, std::span<const std::string> values,
                             Milliseconds timeout) {
    TUTTI_ASSERT(keys.size() == values.size());
    const Deadline deadline = Deadline::after(timeout);
    for (std::size_t i = 0; i < keys.size(); ++i) set(keys[i], values[i], left(deadline));
}

struct Store::State {
    explicit State(Milliseconds start) : timeout(start) {}
    std::atomic<Milliseconds> timeout;
};

Store::Store(std::shared_ptr<StoreBackend> backend, Milliseconds timeout)
    : backend_(std::move(backend)), state_(std::make_shared<State>(timeout)) {
    check_timeout(timeout);
    if (!backend_) throw InvalidArgument("Store: the backend is null");
}

Store::~Store() = default;

StoreBackend& Store::checked() const {
    if (!backend_) throw InvalidArgument("this Store is empty: make a TCPStore, FileStore or HashStore first");
    return *backend_;
}

void Store::set(std::string_view key, std::string_view value) {
    store::check_value(key, value);
    checked().set(key, value, timeout());
}
std::string Store::get(std::string_view key) {
    return get(key, timeout());
}
std::string Store::get(std::string_view key, Milliseconds timeout) {
    store::check_key(key);
    check_timeout(timeout);
    return checked().get(key, timeout);
}
std::int64_t Store::add(std::string_view key, std::int64_t amount) {
    store::check_key(key);
    return checked().add(key, amount, timeout());
}
void Store::append(std::string_view key, std::string_view value) {
    store::check_value(key, value);
    checked().append(key, value, timeout());
}
bool Store::check(const std::vector<std::string>& keys) {
    check_keys(keys);
    return checked().check(keys, timeout());
}
std::string Store::compare_set(std::string_view key, std::string_view expected, std::string_view desired) {
    store::check_value(key, expected);
    store::check_value(key, desired);
    return checked().compare_set(key, expected, desired, timeout());
}
bool Store::delete_key(std::string_view key) {
    store::check_key(key);
    return checked().delete_key(key, timeout());
}
std::int64_t Store::num_keys() {
    return checked().num_keys(timeout());
}
std::vector<std::string> Store::multi_get(const std::vector<std::string>& keys) {
    check_keys(keys);
    return checked().multi_get(keys, timeout());
}
void Store::multi_set(const std::vector<std::string>& keys, const std::vector<std::string>& values) {
    if (keys.size() != values.size()) {
        throw InvalidArgument(fmt::format("multi_set: {} keys and {} values: expected as many values as keys",
                                          keys.size(), values.size()));
    }
    for (std::size_t i = 0; i < keys.size(); ++i) store::check_value(keys[i], values[i]);
    checked().multi_set(keys, values, timeout());
}
void Store::wait(const std::vector<std::string>& keys) {
    wait(keys, timeout());
}
void Store::wait(const std::vector<std::string>& keys, Milliseconds timeout) {
    check_keys(keys);
    check_timeout(timeout);
    checked().wait(keys, timeout);
}
bool Store::has_extended_api() const noexcept {
    return backend_ != nullptr;
}
void Store::set_timeout(Milliseconds timeout) {
    check_timeout(timeout);
    (void)checked();
    TUTTI_ASSERT(state_ != nullptr);
    state_->timeout.store(timeout);
}
Milliseconds Store::timeout() const {
    (void)checked();
    TUTTI_ASSERT(state_ != nullptr && state_->timeout.load() >= Milliseconds::zero());
    return state_->timeout.load();
}
void Store::abort(const std::string& reason) {
    checked().abort(reason);
}
std::string Store::describe() const {
    return backend_ ? backend_->describe() : "(no store)";
}

PrefixStore::PrefixStore(const std::string& prefix, const Store& store)
    : Store(std::make_shared<PrefixBackend>(prefix, checked_backend(store)), store.timeout()), underlying_(store) {}

}  // namespace tutti
