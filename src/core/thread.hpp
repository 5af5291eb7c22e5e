// The library's own threads start here, so that a thread that cannot be created, or that throws, is an error and not
// the end of the process.
//
// Threads: any.
#pragma once

#include "core/assert.hpp"

#include <exception>
#include <functional>
#include <string>
#include <thread>

namespace tutti::thread {

struct Options {
    const char* name;     ///< as the system shows it, at most 15 characters
    std::string purpose;  ///< its use, as an error continues "no thread to be had for "
    /// Called in the thread with the exception that has escaped from its body; must not throw. Always after a line in
    /// the log.
    std::function<void(const std::exception_ptr&)> escaped = {};
};

/// Starts a thread with all signals blocked: they are for the program's threads. Throws DistBackendError that names the
/// purpose and the limits where none can be had; then nothing has happened.
std::thread start(Options options, std::function<void()> body);

/// Joins on its way out, so that a constructor that throws, say, leaves no running thread behind.
class Joined {
 public:
    explicit Joined(std::thread thread) : thread_(std::move(thread)) {}
    ~Joined() { join(); }
    Joined(const Joined&) = delete;
    Joined& operator=(const Joined&) = delete;
    void join() {
        TUTTI_ASSERT(thread_.get_id() != std::this_thread::get_id());
        if (thread_.joinable()) thread_.join();
    }

 private:
    std::thread thread_;
};

/// For tests: while it lives, `started` threads can still be had in this process, and no more.
class Scarcity {
 public:
    explicit Scarcity(int started);
    ~Scarcity();
    Scarcity(const Scarcity&) = delete;
    Scarcity& operator=(const Scarcity&) = delete;
};

}  // namespace tutti::thread
