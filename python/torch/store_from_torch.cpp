// A torch Store as one of tutti's.
#include "signals.hpp"
#include "store.hpp"
#include "store_line.hpp"

#include <tutti/error.hpp>
#include <tutti/interrupt.hpp>

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <type_traits>

namespace tutti::torch {
namespace {

using Clock = std::chrono::steady_clock;

/// A wait asks again after an eighth of its time, within these limits; where the store is a server many ranks may wait.
constexpr std::chrono::nanoseconds shortest_pause{100'000}, longest_pause{10'000'000},
    longest_pause_of_server{100'000'000};
/// A wait for the same key that begins so soon after another one goes on in the other's pace.
constexpr Milliseconds same_wait{50};
/// Between looks for signals and abort().
constexpr std::chrono::nanoseconds between_looks{10'000'000};
/// Of one request, also where a wait has no time left.
constexpr Milliseconds least_patience{100};

std::vector<std::string> all_of(c10d::Store& store, const std::vector<std::string>& names) {
    std::vector<std::string> values;
    if (store.hasExtendedApi()) {
        for (const Bytes& value : store.multiGet(names)) values.push_back(text_of(value));
    } else {
        for (const std::string& name : names) values.push_back(text_of(store.get(name)));
    }
    return values;
}

// For a store of the program's own without compare_set: each key of ours has few writers, so two steps are enough.
std::string compare_set_in(c10d::Store& store, const std::string& name, const std::string& expected,
                           const std::string& desired) {
    try {
        return text_of(store.compareSet(name, bytes_of(expected), bytes_of(desired)));
    } catch (const c10::Error& error) {
        if (std::string_view(error.what()).find("ot implemented") == std::string_view::npos) throw;
    }
    if (store.check({name})) {
        std::string current = text_of(store.get(name));
        if (current != expected) return current;
    } else if (!expected.empty()) {
        return expected;
    }
    store.set(name, bytes_of(desired));
    return desired;
}

class StoreFromTorch : public StoreBackend {
 public:
    explicit StoreFromTorch(const c10::intrusive_ptr<c10d::Store>& store) : line_(std::make_shared<StoreLine>(store)) {
        if (const auto* tcp = line_->tcp()) host_ = address_towards(tcp->getHost(), tcp->getPort());
        if (host_.starts_with("127.") || host_ == "::1") host_ = "0.0.0.0";  // the server may serve other hosts too
    }

    void leave_connection_to_program() { line_->leave_connection_to_program(); }

    void set(std::string_view key, std::string_view value, Milliseconds timeout) override {
        call("set", timeout, [name = std::string(key), bytes = bytes_of(value)](c10d::Store& store) {
            store.set(name, bytes);
            return true;
        });
    }
    std::string get(std::string_view key, Milliseconds timeout) override { return get_with_bell(key, timeout, -1); }
    bool asks_again() const override { return !line_->tcp(); }
    std::string get_with_bell(std::string_view key, Milliseconds timeout, int bell) override {
        const std::string name(key);
        return when_there<std::string>(
            "get", {name}, timeout, [name](c10d::Store& store) { return text_of(store.get(name)); }, bell);
    }
    std::int64_t add(std::string_view key, std::int64_t amount, Milliseconds timeout) override {
        return call("add", timeout,
                    [name = std::string(key), amount](c10d::Store& store) { return store.add(name, amount); });
    }
    void append(std::string_view key, std::string_view value, Milliseconds timeout) override {
        call("append", timeout, [name = std::string(key), bytes = bytes_of(value)](c10d::Store& store) {
            store.append(name, bytes);
            return true;
        });
    }
    bool check(std::span<const std::string> keys, Milliseconds timeout) override {
        return are_there({keys.begin(), keys.end()}, timeout);
    }
    std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                            Milliseconds timeout) override {
        return call("compare_set", timeout,
                    [name = std::string(key), before = std::string(expected), after = std::string(desired)](
                        c10d::Store& store) { return compare_set_in(store, name, before, after); });
    }
    bool delete_key(std::string_view key, Milliseconds timeout) override {
        return call("delete_key", timeout,
                    [name = std::string(key)](c10d::Store& store) { return store.deleteKey(name); });
    }
    std::int64_t num_keys(Milliseconds timeout) override {
        return call("num_keys", timeout, [](c10d::Store& store) { return store.getNumKeys(); });
    }
    void wait(std::span<const std::string> keys, Milliseconds timeout) override {
        when_there<bool>("wait", {keys.begin(), keys.end()}, timeout, [](c10d::Store&) { return true; });
    }
    std::vector<std::string> multi_get(std::span<const std::string> keys, Milliseconds timeout) override {
        const std::vector<std::string> names(keys.begin(), keys.end());
        return when_there<std::vector<std::string>>("multi_get", names, timeout,
                                                    [names](c10d::Store& store) { return all_of(store, names); });
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
    template <class Request>
    auto call(const char* operation, Milliseconds timeout, Request request)
        -> std::invoke_result_t<Request, c10d::Store&> {
        raise_abort();
        return line_->ask(operation, timeout, std::move(request));
    }
    bool are_there(const std::vector<std::string>& names, Milliseconds timeout) {
        return call("check", timeout, [names](c10d::Store& store) { return store.check(names); });
    }
    void raise_abort() const {
        if (!aborted_) return;
        const std::lock_guard lock(mutex_);
        throw Aborted("Store.wait: " + reason_);
    }

    // Returns the result of `read` when the keys have come.
    template <class Result, class Function>
    Result when_there(const char* operation, const std::vector<std::string>& names, Milliseconds timeout, Function read,
                      int bell = -1) {
        const auto end = Clock::now() + timeout;
        if (!wait_for(names, end, bell)) {
            throw DistStoreError("Store.wait: key \"" + names.front() + "\" of " + describe() + " did not come in " +
                                     std::to_string(timeout.count()) + " ms",
                                 {.operation = "Store.wait"}, ErrorCode::timeout);
        }
        return call(operation, std::max(std::chrono::ceil<Milliseconds>(end - Clock::now()), least_patience), read);
    }
    /// When a wait asks.
    struct Pace {
        std::string key;
        Clock::time_point began, next, ended;
        bool goes_on = false;
    };
    // Polls, more seldom the longer it takes: abort() cannot end the store's own wait, which holds up the connection's
    // other users, and PyTorch logs each one that times out.
    bool wait_for(const std::vector<std::string>& names, Clock::time_point end, int bell) {
        Pace pace = pace_of(names.front());
        for (;;) {
            raise_abort();
            still_waiting();
            raise_signal("wait");
            const auto now = Clock::now();
            if (now >= pace.next) {
                if (are_there(names, std::max(least_patience, std::chrono::ceil<Milliseconds>(end - now)))) return true;
                pace.next = now + pause_after(now - pace.began, bell >= 0);
                if (!pace.goes_on && now < end) pace.next = std::min(pace.next, end);
            }
            if (now >= end) {
                keep(std::move(pace));
                return false;
            }
            const std::chrono::nanoseconds left = std::min(pace.next, end) - now;
            const timespec length{0, std::clamp(left, shortest_pause, between_looks).count()};
            pollfd entry{bell, POLLIN, 0};
            if (::ppoll(&entry, 1, &length, nullptr) > 0) {
                bell = -1;
                pace.next = now;
            }
        }
    }
    std::chrono::nanoseconds pause_after(std::chrono::nanoseconds waited, bool has_bell) const {
        if (has_bell) return longest_pause;
        return std::clamp(waited / 8, shortest_pause, line_->tcp() ? longest_pause_of_server : longest_pause);
    }
    // A rank that waits in slices does not begin anew with each of them.
    Pace pace_of(const std::string& key) {
        const auto now = Clock::now();
        const std::lock_guard lock(mutex_);
        if (last_.key != key || now - last_.ended > same_wait) return {key, now, now, {}, false};
        Pace pace = last_;
        pace.goes_on = true;
        return pace;
    }
    void keep(Pace pace) {
        pace.ended = Clock::now();
        const std::lock_guard lock(mutex_);
        last_ = std::move(pace);
    }

    const std::shared_ptr<StoreLine> line_;
    std::string host_;
    std::atomic<bool> aborted_{false};
    mutable std::mutex mutex_;
    std::string reason_;
    Pace last_;
};

}  // namespace

std::shared_ptr<StoreBackend> backend_of(const c10::intrusive_ptr<c10d::Store>& store) {
    if (const auto* ours = dynamic_cast<const TorchStore*>(store.get())) return ours->store().backend();
    return std::make_shared<StoreFromTorch>(store);
}

void leave_connection_to_program(StoreBackend& backend) {
    if (auto* borrowed = dynamic_cast<StoreFromTorch*>(&backend)) borrowed->leave_connection_to_program();
}

}  // namespace tutti::torch
