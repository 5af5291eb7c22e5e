#include "store.hpp"

#include "failure.hpp"
#include "signals.hpp"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <c10/util/Exception.h>

#include <tutti/error.hpp>

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

namespace tutti::torch {
namespace {

using Bytes = std::vector<std::uint8_t>;
constexpr std::chrono::microseconds shortest_pause{50};
constexpr Milliseconds longest_pause{10};

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

class OverTorch : public StoreBackend {
 public:
    explicit OverTorch(c10::intrusive_ptr<c10d::Store> store)
        : store_(own_connection(store)), host_(find_host(store)) {}

    void set(std::string_view key, std::string_view value, Milliseconds) override {
        call("set", [&] { store_->set(std::string(key), bytes_of(value)); });
    }
    std::string get(std::string_view key, Milliseconds timeout) override {
        const std::string name(key);
        wait({&name, 1}, timeout);
        return call("get", [&] { return text_of(store_->get(name)); });
    }
    std::int64_t add(std::string_view key, std::int64_t amount, Milliseconds) override {
        return call("add", [&] { return store_->add(std::string(key), amount); });
    }
    void append(std::string_view key, std::string_view value, Milliseconds) override {
        call("append", [&] { store_->append(std::string(key), bytes_of(value)); });
    }
    bool check(std::span<const std::string> keys, Milliseconds) override {
        return call("check", [&] { return store_->check({keys.begin(), keys.end()}); });
    }
    std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                            Milliseconds) override {
        const std::string name(key);
        return call("compare_set", [&] {
            try {
                return text_of(store_->compareSet(name, bytes_of(expected), bytes_of(desired)));
            } catch (const c10::Error& error) {
                if (std::string_view(error.what()).find("ot implemented") == std::string_view::npos) throw;
            }
            // A store of the program's own, without it: each key of ours has one writer, so two steps do.
            if (store_->check({name})) {
                std::string current = text_of(store_->get(name));
                if (current != expected) return current;
            } else if (!expected.empty()) {
                return std::string(expected);
            }
            store_->set(name, bytes_of(desired));
            return std::string(desired);
        });
    }
    bool delete_key(std::string_view key, Milliseconds) override {
        return call("delete_key", [&] { return store_->deleteKey(std::string(key)); });
    }
    std::int64_t num_keys(Milliseconds) override {
        return call("num_keys", [&] { return store_->getNumKeys(); });
    }
    // Asks again and again, more seldom the longer it takes: the store's own wait cannot be ended by abort(), holds up
    // the connection's other users, and PyTorch logs each one that runs out of time.
    void wait(std::span<const std::string> keys, Milliseconds timeout) override {
        const std::vector<std::string> names(keys.begin(), keys.end());
        const auto began = std::chrono::steady_clock::now();
        for (;;) {
            if (call("wait", [&] { return store_->check(names); })) return;
            if (check_signals()) {
                throw Aborted("Store.wait: interrupted by a signal", {.operation = "Store.wait"},
                              ErrorCode::interrupted);
            }
            const auto waited = std::chrono::steady_clock::now() - began;
            if (waited >= timeout) {
                throw DistStoreError("Store.wait: key \"" + names.front() + "\" of " + describe() +
                                         " did not come in " + std::to_string(timeout.count()) + " ms",
                                     {.operation = "Store.wait"}, ErrorCode::timeout);
            }
            std::this_thread::sleep_for(
                std::clamp<std::chrono::nanoseconds>(waited / 8, shortest_pause, longest_pause));
        }
    }
    std::vector<std::string> multi_get(std::span<const std::string> keys, Milliseconds timeout) override {
        if (!store_->hasExtendedApi()) return StoreBackend::multi_get(keys, timeout);
        wait(keys, timeout);
        return call("multi_get", [&] {
            std::vector<std::string> values;
            for (const Bytes& value : store_->multiGet({keys.begin(), keys.end()})) values.push_back(text_of(value));
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
    static c10::intrusive_ptr<c10d::Store> own_connection(const c10::intrusive_ptr<c10d::Store>& store) {
        try {
            return store->clone();
        } catch (const std::exception&) {
            return store;  // a store of the program's own without it
        }
    }
    static std::string find_host(c10::intrusive_ptr<c10d::Store> store) {
        while (const auto* prefixed = dynamic_cast<c10d::PrefixStore*>(store.get())) {
            store = const_cast<c10d::PrefixStore*>(prefixed)->getUnderlyingStore();
        }
        const auto* tcp = dynamic_cast<const c10d::TCPStore*>(store.get());
        return tcp ? address_towards(tcp->getHost(), tcp->getPort()) : std::string();
    }
    void raise_abort() const {
        if (!aborted_) return;
        const std::lock_guard lock(mutex_);
        throw Aborted("Store.wait: " + reason_);
    }
    template <class Function>
    auto call(const char* operation, Function function) -> decltype(function()) {
        raise_abort();
        try {
            return function();
        } catch (const DistError&) {
            throw;
        } catch (const c10::Error& error) {
            throw DistStoreError(std::string("Store.") + operation + ": " + error.what_without_backtrace(),
                                 {.operation = operation});
        } catch (const std::exception& error) {
            throw DistStoreError(std::string("Store.") + operation + ": " + error.what(), {.operation = operation});
        }
    }

    c10::intrusive_ptr<c10d::Store> store_;
    std::string host_;
    std::atomic<bool> aborted_{false};
    mutable std::mutex mutex_;
    std::string reason_;
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
