// StoreLine: requests to a torch Store that keep their time limits.
//
// The client of PyTorch's TCPStore tries for the whole time limit of its store to reach a server that has gone, and
// waits for one that is stopped without an end. So a thread of its own makes each request to a TCPStore: on the
// program's connection while the program waits for a group to join, then on a connection of its own. A caller without
// an answer in time leaves the request to that thread, which stays behind; until it is back the store counts as gone.
//
// Threads: any. Without the GIL.
#pragma once

#include "signals.hpp"

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <tutti/error.hpp>
#include <tutti/store.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

namespace tutti::torch {

/// The answer of a thread that asks a store to the thread that waits for it.
template <class Result>
struct Asked {
    std::mutex mutex;
    std::condition_variable changed;
    bool over = false;
    std::optional<Result> result;
    std::exception_ptr error;

    template <class Function>
    void answer(Function function) {
        std::optional<Result> value;
        std::exception_ptr failure;
        try {
            value = function();
        } catch (...) {
            failure = std::current_exception();
        }
        const std::lock_guard lock(mutex);
        over = true;
        result = std::move(value);
        error = failure;
        changed.notify_one();
    }
};

/// Runs `function`, which asks a store; turns PyTorch's exceptions into DistStoreError, without their C++ frames.
template <class Function>
auto asking(const char* operation, Function function) -> std::invoke_result_t<Function> {
    try {
        return function();
    } catch (const DistError&) {
        throw;
    } catch (const std::exception& error) {
        const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
        std::string what = of_torch ? of_torch->what_without_backtrace() : error.what();
        what.resize(std::min(what.size(), what.find("\nException raised from")));
        throw DistStoreError(std::string("Store.") + operation + ": " + what, {.operation = operation});
    }
}

class StoreLine : public std::enable_shared_from_this<StoreLine> {
 public:
    explicit StoreLine(c10::intrusive_ptr<c10d::Store> program);
    ~StoreLine();
    StoreLine(const StoreLine&) = delete;
    StoreLine& operator=(const StoreLine&) = delete;

    /// The TCPStore that it leads to in the end, or null.
    const c10d::TCPStore* tcp() const noexcept { return tcp_; }
    /// Throws DistStoreError, with code timeout if the patience is over. `request` may outlive the call.
    template <class Request>
    auto ask(const char* operation, Milliseconds patience, Request request)
        -> std::invoke_result_t<Request, c10d::Store&> {
        using Result = std::invoke_result_t<Request, c10d::Store&>;
        if (!tcp_) return asking(operation, [&] { return request(*connection()); });
        const auto end = std::chrono::steady_clock::now() + begin(operation, patience);
        const auto asked = std::make_shared<Asked<Result>>();
        on_thread([line = shared_from_this(), asked, request] {
            asked->answer([&] {
                const Turn turn{*line};
                return request(*line->connection());
            });
        });
        std::unique_lock lock(asked->mutex);
        while (!asked->changed.wait_for(lock, between_looks, [&] { return asked->over; })) {
            if (std::chrono::steady_clock::now() >= end) no_answer(operation);
            raise_signal(operation);
        }
        if (asked->error) asking(operation, [&] { std::rethrow_exception(asked->error); });
        return std::move(*asked->result);
    }
    /// Until then requests go by the program's own connection.
    void leave_connection_to_program() noexcept { is_of_program_ = false; }

 private:
    static constexpr Milliseconds between_looks{10};
    static constexpr Milliseconds first_patience{500};  // makes the connection, too
    struct Turn {
        StoreLine& line;
        ~Turn() { line.end(); }
    };
    /// Waits for its turn; returns the time that the request itself may take.
    Milliseconds begin(const char* operation, Milliseconds patience);
    void end();
    void on_thread(std::function<void()> request);
    [[noreturn]] void no_answer(const char* operation) const;
    c10::intrusive_ptr<c10d::Store> connection();
    bool has_server();
    std::string server() const;

    const c10::intrusive_ptr<c10d::Store> program_;
    const c10d::TCPStore* const tcp_;
    std::mutex turn_mutex_;
    std::condition_variable free_;
    bool busy_ = false;
    std::mutex mutex_;
    int silent_ = -1;  // a connection that ends when the server does
    c10::intrusive_ptr<c10d::Store> own_;
    std::atomic<bool> has_connection_{false}, is_of_program_{true};
};

/// The address of this host that traffic to `host` leaves by; empty: none.
std::string address_towards(const std::string& host, int port);

}  // namespace tutti::torch
