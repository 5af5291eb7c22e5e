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
    std::string purpose;  ///< its use; ends the error "no thread to be had for …"
    /// If an exception escapes from the body, the thread logs it and calls this function with it; must not throw.
    std::function<void(const std::exception_ptr&)> escaped = {};
};

/// Starts a thread with all signals blocked, so that the program's threads handle them; it reads the environment as it
/// is now (core/env.hpp). If no thread can be created, throws DistBackendError that names the purpose and the limits,
/// without other effects.
std::thread start(Options options, std::function<void()> body);

/// Joins the thread in its destructor, so that, say, a constructor that throws leaves no running thread behind.
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

/// For tests: during its lifetime this process can start only `started` more threads.
class Scarcity {
 public:
    explicit Scarcity(int started);
    ~Scarcity();
    Scarcity(const Scarcity&) = delete;
    Scarcity& operator=(const Scarcity&) = delete;
};

}  // namespace tutti::thread
