// Patience: logs long waits. A thread that begins to wait makes a Patience with the purpose of the wait; when the wait
// has lasted 5 s, 15 s, 45 s, …, the log gets one line about it.
//
//     const Patience patience([&] { return fmt::format("{} to answer", name); });
//     while (…) check_wait(deadline, abort, "connect");  // or patience::look(), where something else ends the wait
//
// Of nested Patience objects only the outermost writes to the log: it knows the purpose of the wait best.
//
// Threads: a Patience object belongs to the thread that made it.
#pragma once

#include "core/deadline.hpp"

#include <chrono>
#include <concepts>
#include <string>
#include <utility>

namespace tutti {

namespace patience {

/// Logs the thread's wait if a line is due. Every wait calls it at least every 100 ms; check_wait() does so.
void look() noexcept;

inline constexpr std::chrono::seconds first{5};

class Wait {
 public:
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

 protected:
    Wait() noexcept;
    virtual ~Wait();

 private:
    friend void look() noexcept;
    virtual std::string words() const = 0;
    void look_at(Instant now);

    Instant began_{};  // time of the first look(): a short wait reads no clock
    Clock::duration due_ = first;
};

}  // namespace patience

/// `What` returns the words that complete "still waiting after 5 s for …". The waiting thread calls it during the wait,
/// so it must not wait, nor take a lock that the thread may hold.
template <std::invocable What>
class Patience final : private patience::Wait {
 public:
    explicit Patience(What what) : what_(std::move(what)) {}

 private:
    std::string words() const override { return what_(); }
    What what_;
};

}  // namespace tutti
