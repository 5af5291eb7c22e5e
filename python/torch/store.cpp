#include "store.hpp"

#include "failure.hpp"
#include "signals.hpp"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <c10/util/Exception.h>

#include <tutti/error.hpp>

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <type_traits>

namespace tutti::torch {
namespace {

using Bytes = std::vector<std::uint8_t>;
constexpr std::chrono::microseconds shortest_pause{100};
constexpr Milliseconds longest_pause{10};
constexpr Milliseconds same_timeout{1000};  // what may have passed of it

Bytes bytes_of(std::string_view text) {
    return {text.begin(), text.end()};
}
std::string text_of(const Bytes& bytes) {
    return {bytes.begin(), bytes.end()};
}

// The address of this host that traffic to the store's server leaves by: connecting a datagram socket sends nothing.
std::string address_towards(const std::string& host, int port) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_DGRAM;
    addrinfo* found = nullptr;
    if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return {};
    std::string address;
    for (const addrinfo* one = found; one && address.empty(); one = one->ai_next) {
        const int fd = ::socket(one->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (fd < 0) continue;
        sockaddr_storage own{};
        socklen_t length = sizeof own;
        char text[NI_MAXHOST] = {};
        if (::connect(fd, one->ai_addr, one->ai_addrlen) == 0 &&
            ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &length) == 0 &&
            ::getnameinfo(reinterpret_cast<sockaddr*>(&own), length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) ==
                0) {
            address = text;
        }
        ::close(fd);
    }
    ::freeaddrinfo(found);
    return address;
}

// What a thread that waits for keys tells the one that asked it to.
template <class Result>
struct Waited {
    std::mutex mutex;
    std::condition_variable changed;
    bool over = false;
    std::optional<Result> result;
    std::exception_ptr error;
};

class OverTorch : public JoiningStore {
 public:
    explicit OverTorch(c10::intrusive_ptr<c10d::Store> store)
        : store_(std::move(store)), tcp_(find_tcp(store_)), host_(tcp_ ? address_of(*tcp_) : std::string()) {}

    // A connection of our own: a wait of the program on its does not hold up ours.
    void joined() override {
        const std::lock_guard lock(mutex_);
        joined_ = true;
    }

    void set(std::string_view key, std::string_view value, Milliseconds) override {
        call("set", [&](c10d::Store& store) { store.set(std::string(key), bytes_of(value)); });
    }
    std::string get(std::string_view key, Milliseconds timeout) override { return get_with_bell(key, timeout, -1); }
    bool asks_again() const override { return !tcp_; }
    std::string get_with_bell(std::string_view key, Milliseconds timeout, int bell) override {
        const std::string name(key);
        return when_there<std::string>(
            "get", {name}, timeout, [name](c10d::Store& store) { return text_of(store.get(name)); }, bell);
    }
    std::int64_t add(std::string_view key, std::int64_t amount, Milliseconds) override {
        return call("add", [&](c10d::Store& store) { return store.add(std::string(key), amount); });
    }
    void append(std::string_view key, std::string_view value, Milliseconds) override {
        call("append", [&](c10d::Store& store) { store.append(std::string(key), bytes_of(value)); });
    }
    bool check(std::span<const std::string> keys, Milliseconds) override {
        return call("check", [&](c10d::Store& store) { return store.check({keys.begin(), keys.end()}); });
    }
    std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                            Milliseconds) override {
        const std::string name(key);
        return call("compare_set", [&](c10d::Store& store) {
            // While a rank joins, its keys are under a number that no other process has been given.
            if (expected.empty() && !has_joined()) {
                store.set(name, bytes_of(desired));
                return std::string(desired);
            }
            try {
                return text_of(store.compareSet(name, bytes_of(expected), bytes_of(desired)));
            } catch (const c10::Error& error) {
                if (std::string_view(error.what()).find("ot implemented") == std::string_view::npos) throw;
            }
            // A store of the program's own, without it: each key of ours has one writer, so two steps do.
            if (store.check({name})) {
                std::string current = text_of(store.get(name));
                if (current != expected) return current;
            } else if (!expected.empty()) {
                return std::string(expected);
            }
            store.set(name, bytes_of(desired));
            return std::string(desired);
        });
    }
    bool delete_key(std::string_view key, Milliseconds) override {
        return call("delete_key", [&](c10d::Store& store) { return store.deleteKey(std::string(key)); });
    }
    std::int64_t num_keys(Milliseconds) override {
        return call("num_keys", [&](c10d::Store& store) { return store.getNumKeys(); });
    }
    void wait(std::span<const std::string> keys, Milliseconds timeout) override {
        when_there<bool>("wait", {keys.begin(), keys.end()}, timeout, [](c10d::Store&) { return true; });
    }
    std::vector<std::string> multi_get(std::span<const std::string> keys, Milliseconds timeout) override {
        const std::vector<std::string> names(keys.begin(), keys.end());
        return when_there<std::vector<std::string>>("multi_get", names, timeout, [names](c10d::Store& store) {
            std::vector<std::string> values;
            if (store.hasExtendedApi()) {
                for (const Bytes& value : store.multiGet(names)) values.push_back(text_of(value));
            } else {
                for (const std::string& name : names) values.push_back(text_of(store.get(name)));
            }
            return values;
        });
    }
    std::string describe() const override { return host_.empty() ? "torch.distributed.Store" : "TCPStore"; }
    std::string local_host() const override { return host_; }
    void abort(const std::string& reason) override {
        {
            const std::lock_guard lock(mutex_);
            reason_ = reason;
        }
        aborted_ = true;
        StoreBackend::abort(reason);
    }

 private:
    static const c10d::TCPStore* find_tcp(c10::intrusive_ptr<c10d::Store> store) {
        while (const auto* prefixed = dynamic_cast<c10d::PrefixStore*>(store.get())) {
            store = const_cast<c10d::PrefixStore*>(prefixed)->getUnderlyingStore();
        }
        return dynamic_cast<const c10d::TCPStore*>(store.get());
    }
    static std::string address_of(const c10d::TCPStore& store) {
        return address_towards(store.getHost(), store.getPort());
    }
    bool has_joined() const {
        const std::lock_guard lock(mutex_);
        return joined_;
    }
    // The program's connection while this rank joins, as the program waits for that; then our own.
    c10::intrusive_ptr<c10d::Store> connection() {
        const std::lock_guard lock(mutex_);
        if (joined_ && !own_) {
            try {
                own_ = store_->clone();
            } catch (const std::exception&) {
                own_ = store_;  // a store of the program's own without it
            }
        }
        return own_ ? own_ : store_;
    }
    void raise_abort() const {
        if (!aborted_) return;
        const std::lock_guard lock(mutex_);
        throw Aborted("Store.wait: " + reason_);
    }
    void end_wait_if_asked() const {
        raise_abort();
        if (!check_signals()) return;
        throw Aborted("Store.wait: interrupted by a signal", {.operation = "Store.wait"}, ErrorCode::interrupted);
    }
    // What `read` says of the keys when they have come. While this rank joins over TCP both happen on the server's
    // word.
    template <class Result, class Function>
    Result when_there(const char* operation, const std::vector<std::string>& names, Milliseconds timeout, Function read,
                      int bell = -1) {
        const auto end = std::chrono::steady_clock::now() + timeout;
        std::optional<Result> result;
        if (tcp_ && !has_joined()) {
            result = read_on_server<Result>(operation, names, end, read);
        } else if ((bell < 0 && call("wait", [&](c10d::Store& store) { return store.check(names); })) ||
                   ask_again(names, end, bell)) {
            result = call(operation, read);
        }
        if (result) return std::move(*result);
        throw DistStoreError("Store.wait: key \"" + names.front() + "\" of " + describe() + " did not come in " +
                                 std::to_string(timeout.count()) + " ms",
                             {.operation = "Store.wait"}, ErrorCode::timeout);
    }
    // Asks again and again, more seldom the longer it takes: the store's own wait cannot be ended by abort(), holds up
    // the connection's other users, and PyTorch logs each one that runs out of time.
    bool ask_again(const std::vector<std::string>& names, std::chrono::steady_clock::time_point end, int bell) {
        const auto began = std::chrono::steady_clock::now();
        for (;;) {
            end_wait_if_asked();
            const auto now = std::chrono::steady_clock::now();
            if (now >= end) return false;
            const std::chrono::nanoseconds pause =
                bell < 0 ? std::clamp<std::chrono::nanoseconds>((now - began) / 8, shortest_pause, longest_pause)
                         : longest_pause;
            const timespec length{0, pause.count()};
            pollfd entry{bell, POLLIN, 0};
            if (::ppoll(&entry, 1, &length, nullptr) > 0) bell = -1;
            if (call("wait", [&](c10d::Store& store) { return store.check(names); })) return true;
        }
    }
    // While many ranks join, each asking again and again would keep the server busy. So the server's own wait, on a
    // thread: where this one is interrupted, that one stays behind until the time is over.
    template <class Result, class Function>
    std::optional<Result> read_on_server(const char* operation, const std::vector<std::string>& names,
                                         std::chrono::steady_clock::time_point end, Function read) {
        raise_abort();
        const auto waited = std::make_shared<Waited<Result>>();
        std::thread([waited, names, end, read, store = connection()] {
            std::optional<Result> result;
            std::exception_ptr error;
            try {
                const auto left = std::chrono::ceil<Milliseconds>(end - std::chrono::steady_clock::now());
                // Where the program has given the store the group's timeout, reading waits as long by itself.
                const bool reading_waits = !std::is_same_v<Result, bool> && store->getTimeout() >= left &&
                                           store->getTimeout() <= left + same_timeout;
                if (!reading_waits) store->wait(names, std::max(left, Milliseconds(1)));
                result = read(*store);
            } catch (...) {
                error = std::current_exception();
            }
            const std::lock_guard lock(waited->mutex);
            waited->over = true;
            waited->result = std::move(result);
            waited->error = error;
            waited->changed.notify_one();
        }).detach();
        std::unique_lock lock(waited->mutex);
        while (!waited->changed.wait_for(lock, longest_pause, [&] { return waited->over; })) end_wait_if_asked();
        if (waited->error && std::chrono::steady_clock::now() < end) {
            call(operation, [&](c10d::Store&) { std::rethrow_exception(waited->error); });
        }
        return std::move(waited->result);
    }
    template <class Function>
    auto call(const char* operation, Function function) -> std::invoke_result_t<Function, c10d::Store&> {
        raise_abort();
        try {
            return function(*connection());
        } catch (const DistError&) {
            throw;
        } catch (const c10::Error& error) {
            throw DistStoreError(std::string("Store.") + operation + ": " + error.what_without_backtrace(),
                                 {.operation = operation});
        } catch (const std::exception& error) {
            throw DistStoreError(std::string("Store.") + operation + ": " + error.what(), {.operation = operation});
        }
    }

    const c10::intrusive_ptr<c10d::Store> store_;
    const c10d::TCPStore* const tcp_;  // what store_ is in the end, or null
    const std::string host_;
    std::atomic<bool> aborted_{false};
    mutable std::mutex mutex_;
    std::string reason_;
    bool joined_ = false;
    c10::intrusive_ptr<c10d::Store> own_;
};

}  // namespace

Store store_over(const c10::intrusive_ptr<c10d::Store>& store, Milliseconds timeout) {
    if (const auto* ours = dynamic_cast<const TorchStore*>(store.get())) return ours->store();
    return Store(std::make_shared<OverTorch>(store), timeout);
}

TorchStore::TorchStore(tutti::Store store) : c10d::Store(store.timeout()), store_(std::move(store)) {}

c10::intrusive_ptr<c10d::Store> TorchStore::clone() {
    return c10::make_intrusive<TorchStore>(store_);  // tutti's stores are thread-safe, and no wait holds up another
}
void TorchStore::set(const std::string& key, const Bytes& value) {
    translating([&] { store_.set(key, text_of(value)); });
}
Bytes TorchStore::compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) {
    return translating([&] { return bytes_of(store_.compare_set(key, text_of(expected), text_of(desired))); });
}
Bytes TorchStore::get(const std::string& key) {
    return translating([&] { return bytes_of(store_.get(key)); });
}
std::int64_t TorchStore::add(const std::string& key, std::int64_t value) {
    return translating([&] { return store_.add(key, value); });
}
bool TorchStore::deleteKey(const std::string& key) {
    return translating([&] { return store_.delete_key(key); });
}
bool TorchStore::check(const std::vector<std::string>& keys) {
    return translating([&] { return store_.check(keys); });
}
std::int64_t TorchStore::getNumKeys() {
    return translating([&] { return store_.num_keys(); });
}
void TorchStore::wait(const std::vector<std::string>& keys) {
    translating([&] { store_.wait(keys); });
}
void TorchStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) {
    translating([&] { store_.wait(keys, timeout); });
}
void TorchStore::setTimeout(const std::chrono::milliseconds& timeout) {
    c10d::Store::setTimeout(timeout);
    translating([&] { store_.set_timeout(timeout); });
}
void TorchStore::append(const std::string& key, const Bytes& value) {
    translating([&] { store_.append(key, text_of(value)); });
}
std::vector<Bytes> TorchStore::multiGet(const std::vector<std::string>& keys) {
    return translating([&] {
        std::vector<Bytes> values;
        for (const std::string& value : store_.multi_get(keys)) values.push_back(bytes_of(value));
        return values;
    });
}
void TorchStore::multiSet(const std::vector<std::string>& keys, const std::vector<Bytes>& values) {
    translating([&] {
        std::vector<std::string> texts;
        for (const Bytes& value : values) texts.push_back(text_of(value));
        store_.multi_set(keys, texts);
    });
}
bool TorchStore::hasExtendedApi() const {
    return store_.has_extended_api();
}

// A pusher takes a number and writes under it. Who pops waits for the number after the last one that was taken, and
// then takes it by compare_set: nothing is lost when a wait times out.
void TorchStore::queuePush(const std::string& key, const Bytes& value) {
    translating([&] {
        const std::int64_t number = store_.add(key + "/queue/pushed", 1);
        store_.set(key + "/queue/" + std::to_string(number), text_of(value));
    });
}
Bytes TorchStore::queuePop(const std::string& key, bool block) {
    return translating([&]() -> Bytes {
        const std::string popped = key + "/queue/popped";
        for (;;) {
            const std::string last = store_.check({popped}) ? store_.get(popped) : std::string();
            const std::string next = std::to_string(last.empty() ? 1 : std::stoll(last) + 1);
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
    return translating([&] {
        const std::string popped = key + "/queue/popped";
        const std::int64_t taken = store_.check({popped}) ? std::stoll(store_.get(popped)) : 0;
        return std::max<std::int64_t>(0, store_.add(key + "/queue/pushed", 0) - taken);
    });
}

}  // namespace tutti::torch
