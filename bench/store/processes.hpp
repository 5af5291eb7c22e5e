// Clients as processes: each is forked, connects by itself, and leaves its samples in memory that it shares with the
// benchmark.
//
// Threads: one. Children leave with _exit and die with their parent.
#pragma once

#include "contender.hpp"

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace tutti::bench {

/// One connection to a server. Every call waits for its answer.
class Client {
 public:
    virtual ~Client() = default;
    virtual void set(std::string_view key, std::string_view value) = 0;
    /// The bytes are valid until the next call.
    virtual std::string_view get(std::string_view key) = 0;
    virtual std::int64_t add(std::string_view key, std::int64_t amount) = 0;
    /// Returns when somebody called wake for this key; each key is used once.
    virtual void wait(std::string_view key) = 0;
    virtual void wake(std::string_view key) = 0;
};

/// A forked process; killed at the end of the scope if it still runs.
class Process {
 public:
    Process() = default;
    explicit Process(const std::function<void()>& work);
    ~Process();
    Process(Process&& other) noexcept;
    Process& operator=(Process&& other) noexcept;
    /// Whether it left with status 0.
    bool join();

 private:
    pid_t pid_ = -1;
};

/// A TCP port of loopback that nobody listens on now.
std::uint16_t free_port();

using Connect = std::function<std::unique_ptr<Client>()>;
Figures run_clients(const Task& task, const Connect& connect);

}  // namespace tutti::bench
