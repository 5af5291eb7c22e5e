// StoreTalk: a protocol over a store, as a coroutine. It awaits one request after the other, and never accesses a
// store: perform() executes a request in a real store, a simulation in its own, in any order and at any time.
//
//     StoreTalk<std::string> first_of(std::string key) {
//         const StoreAnswer found = co_await ask::read(key);
//         co_return found.is_there() ? found.value() : "";
//     }
//
// Threads: one at a time for each talk.
#pragma once

#include "core/unique_fd.hpp"

#include <tutti/store.hpp>

#include <coroutine>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti::rendezvous {

struct StoreRequest {
    enum Kind {
        read,         ///< the value of the key, if it is there
        write,        ///< sets the key
        check,        ///< the answer's is_there(): whether all keys are there
        compare_set,  ///< as Store::compare_set
        will,         ///< as StoreBackend::set_will; the answer's is_there(): whether the store has wills
        await,        ///< the values of all keys, if all are there within `patience`
        await_one,    ///< as `await`, for one key for which many ranks wait
        add,          ///< as Store::add with the number in `value`; the answer is the sum
        append,       ///< as Store::append
        remove        ///< as Store::delete_key
    };
    Kind kind = read;
    std::vector<std::string> keys{};
    std::string expected{}, value{};
    Milliseconds patience{0};
    int store = 0;  ///< which one, of a talk with several
};

namespace ask {

inline StoreRequest read(std::string key) {
    return {StoreRequest::read, {std::move(key)}};
}
inline StoreRequest check(std::vector<std::string> keys) {
    return {StoreRequest::check, std::move(keys)};
}
inline StoreRequest write(std::string key, std::string value) {
    return {StoreRequest::write, {std::move(key)}, {}, std::move(value)};
}
inline StoreRequest compare_set(std::string key, std::string expected, std::string value) {
    return {StoreRequest::compare_set, {std::move(key)}, std::move(expected), std::move(value)};
}
inline StoreRequest add(std::string key, int amount) {
    return {StoreRequest::add, {std::move(key)}, {}, std::to_string(amount)};
}
inline StoreRequest append(std::string key, std::string value) {
    return {StoreRequest::append, {std::move(key)}, {}, std::move(value)};
}
inline StoreRequest remove(std::string key) {
    return {StoreRequest::remove, {std::move(key)}};
}
inline StoreRequest will(std::string key, std::string value) {
    return {StoreRequest::will, {std::move(key)}, {}, std::move(value)};
}
inline StoreRequest await(std::string key, Milliseconds patience) {
    return {StoreRequest::await_one, {std::move(key)}, {}, {}, patience};
}
inline StoreRequest await(std::vector<std::string> keys, Milliseconds patience) {
    return {StoreRequest::await, std::move(keys), {}, {}, patience};
}

}  // namespace ask

/// The requested values; none: not there.
struct StoreAnswer {
    std::vector<std::string> values;
    bool is_there() const noexcept { return !values.empty(); }
    const std::string& value() const { return values.front(); }
};

/// `limit`: for all requests but await. `bell`: as StoreBackend::get_with_bell. Throws the store's errors.
StoreAnswer perform(const Store& store, const StoreRequest& request, Milliseconds limit, int bell = -1);

/// The current request of a talk (there is at most one), however deeply nested the coroutine is that awaits it.
struct TalkLine {
    StoreRequest request;
    StoreAnswer answer;
    std::exception_ptr error;  ///< instead of an answer
    std::coroutine_handle<> asker;
};

template <class Result>
class StoreTalk {
 public:
    struct promise_type {
        TalkLine* line = nullptr;
        std::coroutine_handle<> caller;
        std::optional<Result> result;
        std::exception_ptr error;

        StoreTalk get_return_object() { return StoreTalk(std::coroutine_handle<promise_type>::from_promise(*this)); }
        std::suspend_always initial_suspend() noexcept { return {}; }
        auto final_suspend() noexcept {
            struct Return {
                bool await_ready() const noexcept { return false; }
                std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> own) const noexcept {
                    const auto caller = own.promise().caller;
                    return caller ? caller : std::noop_coroutine();
                }
                void await_resume() const noexcept {}
            };
            return Return{};
        }
        void return_value(Result value) { result = std::move(value); }
        void unhandled_exception() { error = std::current_exception(); }

        auto await_transform(StoreRequest request) {
            struct Asking {
                TalkLine* line;
                bool await_ready() const noexcept { return false; }
                void await_suspend(std::coroutine_handle<> asker) const noexcept { line->asker = asker; }
                StoreAnswer await_resume() const {
                    if (line->error) std::rethrow_exception(std::exchange(line->error, nullptr));
                    return std::move(line->answer);
                }
            };
            line->request = std::move(request);
            return Asking{line};
        }
        template <class Other>
        auto await_transform(StoreTalk<Other>&& inner) {
            struct Calling {
                StoreTalk<Other> inner;
                bool await_ready() const noexcept { return false; }
                std::coroutine_handle<> await_suspend(std::coroutine_handle<> caller) const noexcept {
                    inner.handle().promise().caller = caller;
                    return inner.handle();
                }
                Other await_resume() { return inner.result(); }
            };
            inner.handle().promise().line = line;
            return Calling{std::move(inner)};
        }
    };

    StoreTalk(StoreTalk&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    StoreTalk& operator=(StoreTalk&&) = delete;
    StoreTalk(const StoreTalk&) = delete;
    StoreTalk& operator=(const StoreTalk&) = delete;
    ~StoreTalk() {
        if (handle_) handle_.destroy();
    }

    /// Runs until the first request, or to the end.
    void start(TalkLine& line) {
        handle_.promise().line = &line;
        handle_.resume();
    }
    /// `line` has the answer, or the error: runs until the next request, or to the end.
    static void go_on(TalkLine& line) { std::exchange(line.asker, nullptr).resume(); }
    bool is_over() const noexcept { return handle_.done(); }
    /// The result, once is_over(). Throws what the talk has thrown.
    Result result() {
        if (handle_.promise().error) std::rethrow_exception(handle_.promise().error);
        return std::move(*handle_.promise().result);
    }
    std::coroutine_handle<promise_type> handle() const noexcept { return handle_; }

 private:
    explicit StoreTalk(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
    std::coroutine_handle<promise_type> handle_;
};

/// Performs a talk in real stores. `limit()`: the time limit for the current request.
template <class Result, class Limit>
Result carry_out(std::span<const Store> stores, StoreTalk<Result> talk, const Limit& limit,
                 const UniqueFd* bell = nullptr) {
    TalkLine line;
    talk.start(line);
    while (!talk.is_over()) {
        try {
            const Store& store = stores[static_cast<std::size_t>(line.request.store)];
            line.answer = perform(store, line.request, limit(), bell == nullptr ? -1 : bell->get());
        } catch (const std::exception&) {
            line.error = std::current_exception();
        }
        talk.go_on(line);
    }
    return talk.result();
}

}  // namespace tutti::rendezvous
