// Outcome: the end of a call that goes on in threads of the transport, and its error. OutcomeCall: the call, as tutti
// sees it.
//
// Threads: any.
#pragma once

#include "common/bell.hpp"

#include <tutti/transport.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace tutti::backends::gloo {

/// The threads of a call's pieces and its owner share it.
class Outcome {
 public:
    explicit Outcome(int pieces = 1) : open_(pieces) {}
    /// A piece is over; null: it has succeeded.
    void over(const std::exception_ptr& error);
    bool is_over() const noexcept { return open_.load(std::memory_order_acquire) == 0; }
    /// Of a call that is over: throws its error, if it has one.
    void check() const;
    /// For a bounded time, until it is over.
    void wait();
    int fd() const noexcept { return bell_.fd(); }

 private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::atomic<int> open_;
    std::exception_ptr error_;  // once all pieces are over nobody writes it
    Bell bell_;
};

/// A thread leaves Gloo soon after its connections have been closed. It may stay in a wait for a message of which a
/// part has been written, since Gloo does not end that; it touches no buffer there.
inline constexpr std::chrono::seconds leaving_max{1};

class OutcomeCall final : public transport::LibraryCall {
 public:
    /// `break_off` closes the connections that the call uses.
    OutcomeCall(std::shared_ptr<Outcome> outcome, std::function<void()> break_off)
        : outcome_(std::move(outcome)), break_off_(std::move(break_off)) {}
    ~OutcomeCall() override;
    OutcomeCall(const OutcomeCall&) = delete;
    OutcomeCall& operator=(const OutcomeCall&) = delete;

    bool done() override;
    void pollables(std::vector<transport::Pollable>& into) const override { into.push_back({outcome_->fd(), false}); }

 private:
    const std::shared_ptr<Outcome> outcome_;
    const std::function<void()> break_off_;
};

}  // namespace tutti::backends::gloo
