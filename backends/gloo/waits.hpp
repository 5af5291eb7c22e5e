// Waits: a thread that waits until Gloo is done with buffers, one after the other: Gloo tells only a thread that waits.
// It begins with the first buffer.
//
// Threads: any; the functions are called under the mutex of the constructor, except where they say so.
#pragma once

#include "gloo/library.hpp"

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace tutti::backends::gloo {

using Buffer = std::unique_ptr<::gloo::transport::UnboundBuffer>;

/// Gloo's wait for something that the connector ends.
inline constexpr std::chrono::milliseconds forever = std::chrono::hours(100);

class Waits {
 public:
    enum class Until { sent, received };
    Waits(std::mutex& mutex, Until until) : mutex_(mutex), until_(until) {}
    /// After stop(); not under the mutex.
    ~Waits();
    Waits(const Waits&) = delete;
    Waits& operator=(const Waits&) = delete;

    struct Wait {
        std::unique_ptr<std::byte[]> memory{};  ///< of the buffer; null: somebody else's
        Buffer buffer{};
        /// Gloo touches the memory no more. `why`: the error; empty: none. Called under the mutex.
        std::function<void(const std::string& why)> over{};
    };
    /// Gloo has begun with the buffer. Throws DistBackendError if the system gives no thread.
    void add(Wait wait);
    /// Waits until all buffers are over, or `enough`; `lock` holds the mutex.
    void drain(std::unique_lock<std::mutex>& lock, std::chrono::steady_clock::time_point limit,
               const std::function<bool()>& enough);
    /// The connection is closed: ends the waits, also those that Gloo has forgotten to end.
    void abort() noexcept;
    /// The same, and ends the thread.
    void stop() noexcept;

 private:
    void work();
    std::string wait_for(const Buffer& buffer) const;

    std::mutex& mutex_;
    const Until until_;
    std::condition_variable changed_;
    std::deque<Wait> waits_;
    bool stops_ = false;
    std::thread thread_;
};

}  // namespace tutti::backends::gloo
