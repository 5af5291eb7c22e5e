// The stores in which a rank joins: a torch Store as one of tutti's, and one of tutti's that a program uses as a torch
// Store.
#include "signals.hpp"
#include "store.hpp"
#include "store_line.hpp"

#include <tutti/error.hpp>

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <type_traits>

namespace tutti::torch {
namespace {

constexpr std::chrono::microseconds first_pause{100};
constexpr Milliseconds last_pause{10};
constexpr Milliseconds slice{100};
constexpr Milliseconds same_timeout{1000};  // the part of the timeout that may have passed
constexpr Milliseconds grace{1000};         // for an answer to a rank at the end of its time
// The value of a key that a rank waited for in vain.
constexpr std::string_view in_vain = "\x01in vain";

bool is_in_vain(const std::string& value) {
    return value == in_vain;
}
bool is_in_vain(const std::vector<std::string>& values) {
    return std::ranges::find(values, in_vain) != values.end();
}
bool is_in_vain(bool) {
    return false;
}

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

class OverTorch : public JoiningStore {
 public:
    explicit OverTorch(const c10::intrusive_ptr<c10d::Store>& store)
        : OverTorch(store, std::make_shared<StoreLine>(store), false) {}
    OverTorch(c10::intrusive_ptr<c10d::Store> store, std::shared_ptr<StoreLine> line, bool joined)
        : store_(std::move(store)), line_(std::move(line)), joined_(joined) {
        if (const auto* tcp = line_->tcp()) host_ = address_towards(tcp->getHost(), tcp->getPort());
        if (host_.starts_with("127.") || host_ == "::1") host_ = "0.0.0.0";  // the server may serve other hosts too
    }

    void watch(JoiningWatch* watch) override { watch_ = watch; }
    void joined() override {
        watch_ = nullptr;
        joined_ = true;
    }
    std::shared_ptr<StoreBackend> beside() override { return std::make_shared<OverTorch>(store_, line_, true); }

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
    // Uses the program's connection while this rank joins, as the program waits for that; then our own.
    template <class Request>
    auto call(const char* operation, Milliseconds timeout, Request request)
        -> std::invoke_result_t<Request, c10d::Store&> {
        raise_abort();
        if (joined_) return line_->ask(operation, timeout, std::move(request));
        return asking(operation, [&] { return request(*store_); });
    }
    bool are_there(const std::vector<std::string>& names, Milliseconds timeout) {
        return call("check", timeout, [names](c10d::Store& store) { return store.check(names); });
    }
    void raise_abort() const {
        if (!aborted_) return;
        const std::lock_guard lock(mutex_);
        throw Aborted("Store.wait: " + reason_);
    }
    void end_wait_if_asked() const {
        raise_abort();
        still_waiting();
        if (!check_signals()) return;
        throw Aborted("Store.wait: interrupted by a signal", {.operation = "Store.wait"}, ErrorCode::interrupted);
    }
    // Throws if further waiting makes no sense, unless the keys have come all the same.
    void look(const std::vector<std::string>& names) {
        end_wait_if_asked();
        JoiningWatch* watch = watch_;
        if (!watch) return;
        try {
            watch->look();
        } catch (const DistBackendError&) {
            if (!are_there_after_all(names)) throw;
        }
    }
    bool gives_up_in_vain() const {
        JoiningWatch* watch = watch_;
        return !watch || !watch->give_up();
    }

    // Returns the result of `read` when the keys have come. While this rank joins over TCP the server's own wait does
    // both; only rank 0, which waits for the others' cards, polls.
    template <class Result, class Function>
    Result when_there(const char* operation, const std::vector<std::string>& names, Milliseconds timeout, Function read,
                      int bell = -1) {
        if (const JoiningWatch* watch = watch_) timeout = std::min(timeout, watch->left() + grace);
        const auto end = std::chrono::steady_clock::now() + timeout;
        std::optional<Result> result;
        if (line_->tcp() && !joined_ && operation != std::string_view("multi_get")) {
            result = read_on_server<Result>(operation, names, end, read);
        } else if ((bell < 0 && are_there(names, timeout)) || ask_again(names, end, bell)) {
            result = call(operation, timeout, read);
        }
        if (!result && !gives_up_in_vain()) result = line_->ask(operation, grace, read);
        if (result && is_in_vain(*result)) {
            for (const auto patience_end = std::chrono::steady_clock::now() + grace;
                 std::chrono::steady_clock::now() < patience_end;) {
                end_wait_if_asked();
                if (JoiningWatch* watch = watch_) watch->look();
                std::this_thread::sleep_for(last_pause);
            }
            throw Aborted(std::string("Store.") + operation + ": a rank that waited here has given up");
        }
        if (result) return std::move(*result);
        throw DistStoreError("Store.wait: key \"" + names.front() + "\" of " + describe() + " did not come in " +
                                 std::to_string(timeout.count()) + " ms",
                             {.operation = "Store.wait"}, ErrorCode::timeout);
    }
    // Polls, more seldom the longer it takes: abort() cannot end the store's own wait, which holds up the connection's
    // other users, and PyTorch logs each one that times out.
    bool ask_again(const std::vector<std::string>& names, std::chrono::steady_clock::time_point end, int bell) {
        const auto began = std::chrono::steady_clock::now();
        for (;;) {
            look(names);
            const auto now = std::chrono::steady_clock::now();
            if (now >= end) return false;
            const std::chrono::nanoseconds pause =
                bell < 0 && !(line_->tcp() && joined_)
                    ? std::clamp<std::chrono::nanoseconds>((now - began) / 8, first_pause, last_pause)
                    : last_pause;
            const timespec length{0, pause.count()};
            pollfd entry{bell, POLLIN, 0};
            if (::ppoll(&entry, 1, &length, nullptr) > 0) bell = -1;
            if (are_there(names, std::max(slice, std::chrono::ceil<Milliseconds>(end - now)))) return true;
        }
    }
    // Polls of many joining ranks would keep the server busy. So this uses the server's own wait, on a thread.
    template <class Result, class Function>
    std::optional<Result> read_on_server(const char* operation, const std::vector<std::string>& names,
                                         std::chrono::steady_clock::time_point end, Function read) {
        raise_abort();
        const auto asked = std::make_shared<Asked<Result>>();
        const auto request = [asked, names, end, read, store = store_] {
            asked->answer([&] {
                const auto left = std::chrono::ceil<Milliseconds>(end - std::chrono::steady_clock::now());
                // If the program has given the store the group's timeout, reading waits as long by itself.
                const bool reading_waits = !std::is_same_v<Result, bool> && store->getTimeout() >= left &&
                                           store->getTimeout() <= left + same_timeout;
                if (!reading_waits) store->wait(names, std::max(left, Milliseconds(1)));
                return read(*store);
            });
        };
        asking(operation, [&] { std::thread(request).detach(); });  // the system may have no thread left
        std::unique_lock lock(asked->mutex);
        while (!asked->changed.wait_for(lock, last_pause, [&] { return asked->over; })) {
            lock.unlock();
            try {
                look(names);
            } catch (...) {
                release(names);
                throw;
            }
            lock.lock();
        }
        if (asked->error && std::chrono::steady_clock::now() < end)
            asking(operation, [&] { std::rethrow_exception(asked->error); });
        return std::move(asked->result);
    }
    bool are_there_after_all(const std::vector<std::string>& names) noexcept {
        try {
            return line_->ask("check", slice, [names](c10d::Store& store) { return store.check(names); });
        } catch (const DistError&) {
            return false;
        }
    }
    // The thread that waits on the program's connection would hold it until its timeout, so this sets the keys that it
    // waits for.
    void release(const std::vector<std::string>& names) noexcept {
        try {
            line_->tell("compare_set", [names](c10d::Store& store) {
                for (const std::string& name : names) compare_set_in(store, name, "", std::string(in_vain));
            });
        } catch (const DistError&) {  // NOLINT(bugprone-empty-catch): it stays behind
        }
    }

    const c10::intrusive_ptr<c10d::Store> store_;
    const std::shared_ptr<StoreLine> line_;
    std::string host_;
    std::atomic<JoiningWatch*> watch_{nullptr};
    std::atomic<bool> joined_{false};
    std::atomic<bool> aborted_{false};
    mutable std::mutex mutex_;
    std::string reason_;
};

// Waits in slices while a rank joins.
class OverOurs : public JoiningStore {
 public:
    explicit OverOurs(std::shared_ptr<StoreBackend> inner) : inner_(std::move(inner)) {}

    void watch(JoiningWatch* watch) override { watch_ = watch; }
    void joined() override { watch_ = nullptr; }
    std::shared_ptr<StoreBackend> beside() override { return inner_; }

    void set(std::string_view key, std::string_view value, Milliseconds timeout) override {
        inner_->set(key, value, timeout);
    }
    std::string get(std::string_view key, Milliseconds timeout) override { return get_with_bell(key, timeout, -1); }
    bool asks_again() const override { return inner_->asks_again(); }
    std::string get_with_bell(std::string_view key, Milliseconds timeout, int bell) override {
        return in_slices(timeout, [&](Milliseconds part) { return inner_->get_with_bell(key, part, bell); });
    }
    std::int64_t add(std::string_view key, std::int64_t amount, Milliseconds timeout) override {
        return inner_->add(key, amount, timeout);
    }
    void append(std::string_view key, std::string_view value, Milliseconds timeout) override {
        inner_->append(key, value, timeout);
    }
    bool check(std::span<const std::string> keys, Milliseconds timeout) override {
        return inner_->check(keys, timeout);
    }
    std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                            Milliseconds timeout) override {
        return inner_->compare_set(key, expected, desired, timeout);
    }
    bool delete_key(std::string_view key, Milliseconds timeout) override { return inner_->delete_key(key, timeout); }
    std::int64_t num_keys(Milliseconds timeout) override { return inner_->num_keys(timeout); }
    void wait(std::span<const std::string> keys, Milliseconds timeout) override {
        in_slices(timeout, [&](Milliseconds part) {
            inner_->wait(keys, part);
            return true;
        });
    }
    std::vector<std::string> multi_get(std::span<const std::string> keys, Milliseconds timeout) override {
        return in_slices(timeout, [&](Milliseconds part) { return inner_->multi_get(keys, part); });
    }
    void multi_set(std::span<const std::string> keys, std::span<const std::string> values,
                   Milliseconds timeout) override {
        inner_->multi_set(keys, values, timeout);
    }
    std::string describe() const override { return inner_->describe(); }
    std::string local_host() const override { return inner_->local_host(); }
    bool set_will(std::string_view key, std::string_view value, Milliseconds timeout) override {
        return inner_->set_will(key, value, timeout);
    }
    void abort(const std::string& reason) override { inner_->abort(reason); }

 private:
    template <class Wait>
    auto in_slices(Milliseconds timeout, Wait wait) -> std::invoke_result_t<Wait, Milliseconds> {
        JoiningWatch* watch = watch_;
        if (!watch) return wait(timeout);
        const auto end = std::chrono::steady_clock::now() + std::min(timeout, watch->left() + grace);
        for (;;) {
            const auto left =
                std::max(Milliseconds(0), std::chrono::ceil<Milliseconds>(end - std::chrono::steady_clock::now()));
            try {
                return wait(std::min(left, slice));
            } catch (const DistStoreError& error) {
                if (error.code() != ErrorCode::timeout) throw;
                if (left <= slice) {
                    if (!watch->give_up()) throw;
                    return wait(grace);
                }
            }
            try {
                watch->look();
            } catch (const DistBackendError&) {
                try {
                    return wait(Milliseconds(0));
                } catch (const DistStoreError&) {  // NOLINT(bugprone-empty-catch): then the watch decides
                }
                throw;
            }
        }
    }

    const std::shared_ptr<StoreBackend> inner_;
    std::atomic<JoiningWatch*> watch_{nullptr};
};

}  // namespace

std::shared_ptr<JoiningStore> store_to_join_in(const c10::intrusive_ptr<c10d::Store>& store) {
    if (const auto* ours = dynamic_cast<const TorchStore*>(store.get()))
        return std::make_shared<OverOurs>(ours->store().backend());
    return std::make_shared<OverTorch>(store);
}

}  // namespace tutti::torch
