#include "store.hpp"

#include "failure.hpp"

#include <c10/util/Exception.h>

#include <tutti/error.hpp>

#include <algorithm>
#include <charconv>

namespace tutti::torch {
namespace {

// The number of values taken from a queue, from the text under `key`; 0: none yet.
std::int64_t number_taken(const std::string& key, const std::string& text) {
    std::int64_t number = 0;
    if (text.empty()) return number;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size() || number < 0) {
        throw DistStoreError("the store's key " + key + " holds \"" + text.substr(0, 40) +
                             "\": expected how many of the queue's values have been taken");
    }
    return number;
}

}  // namespace
TorchStore::TorchStore(tutti::Store store) : c10d::Store(store.timeout()), store_(std::move(store)) {}

c10::intrusive_ptr<c10d::Store> TorchStore::clone() {
    return c10::make_intrusive<TorchStore>(store_);  // tutti's stores are thread-safe, and no wait holds up another
}
void TorchStore::set(const std::string& key, const Bytes& value) {
    translating_of_store([&] { store_.set(key, text_of(value)); });
}
Bytes TorchStore::compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) {
    return translating_of_store([&] { return bytes_of(store_.compare_set(key, text_of(expected), text_of(desired))); });
}
Bytes TorchStore::get(const std::string& key) {
    return translating_of_store([&] { return bytes_of(store_.get(key)); });
}
std::int64_t TorchStore::add(const std::string& key, std::int64_t value) {
    return translating_of_store([&] { return store_.add(key, value); });
}
bool TorchStore::deleteKey(const std::string& key) {
    return translating_of_store([&] { return store_.delete_key(key); });
}
bool TorchStore::check(const std::vector<std::string>& keys) {
    return translating_of_store([&] { return store_.check(keys); });
}
std::int64_t TorchStore::getNumKeys() {
    return translating_of_store([&] { return store_.num_keys(); });
}
void TorchStore::wait(const std::vector<std::string>& keys) {
    translating_of_store([&] { store_.wait(keys); });
}
void TorchStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) {
    translating_of_store([&] { store_.wait(keys, timeout); });
}
void TorchStore::setTimeout(const std::chrono::milliseconds& timeout) {
    c10d::Store::setTimeout(timeout);
    translating_of_store([&] { store_.set_timeout(timeout); });
}
void TorchStore::append(const std::string& key, const Bytes& value) {
    translating_of_store([&] { store_.append(key, text_of(value)); });
}
std::vector<Bytes> TorchStore::multiGet(const std::vector<std::string>& keys) {
    return translating_of_store([&] {
        std::vector<Bytes> values;
        for (const std::string& value : store_.multi_get(keys)) values.push_back(bytes_of(value));
        return values;
    });
}
void TorchStore::multiSet(const std::vector<std::string>& keys, const std::vector<Bytes>& values) {
    translating_of_store([&] {
        std::vector<std::string> texts;
        for (const Bytes& value : values) texts.push_back(text_of(value));
        store_.multi_set(keys, texts);
    });
}
bool TorchStore::hasExtendedApi() const {
    return store_.has_extended_api();
}

// A pusher takes a number and writes under it. A popper waits for the number after the last taken one, and then takes
// it by compare_set, so that a wait that times out loses nothing.
void TorchStore::queuePush(const std::string& key, const Bytes& value) {
    translating_of_store([&] {
        const std::int64_t number = store_.add(key + "/queue/pushed", 1);
        store_.set(key + "/queue/" + std::to_string(number), text_of(value));
    });
}
Bytes TorchStore::queuePop(const std::string& key, bool block) {
    return translating_of_store([&]() -> Bytes {
        const std::string popped = key + "/queue/popped";
        for (;;) {
            const std::string last = store_.check({popped}) ? store_.get(popped) : std::string();
            const std::string next = std::to_string(number_taken(popped, last) + 1);
            const std::string slot = key + "/queue/" + next;
            if (!block && !store_.check({slot})) {
                C10_THROW_ERROR(DistQueueEmptyError, "Store.queue_pop: queue \"" + key + "\" is empty");
            }
            store_.wait({slot});
            if (store_.compare_set(popped, last, next) != next) continue;  // another one has taken it
            Bytes value = bytes_of(store_.get(slot));
            store_.delete_key(slot);
            return value;
        }
    });
}
std::int64_t TorchStore::queueLen(const std::string& key) {
    return translating_of_store([&] {
        const std::string popped = key + "/queue/popped";
        const std::int64_t taken = store_.check({popped}) ? number_taken(popped, store_.get(popped)) : 0;
        return std::max<std::int64_t>(0, store_.add(key + "/queue/pushed", 0) - taken);
    });
}

}  // namespace tutti::torch
