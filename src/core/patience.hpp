// Patience: nothing is waited for in silence. A thread that begins to wait says what for; when that has lasted 5 s, and
// then ever more seldom (15 s, 45 s, …), one line of the log tells it.
//
//     const Patience patience([&] { return fmt::format("{} to answer", name); });
//     while (…) check_wait(deadline, abort, "connect");  // or patience::look(), where something else ends the wait
//
// Of nested ones the outermost speaks: it knows best what the wait is about.
//
// Threads: one belongs to the thread that made it.
#pragma once

#include "core/deadline.hpp"

#include <chrono>
#include <concepts>
#include <string>
#include <utility>

namespace tutti {

namespace patience {

/// What a wait of this thread calls at least every 100 ms; check_wait does.
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

    Instant began_{};  // when it was first looked at: a short wait asks for no time
    Clock::duration due_ = first;
};

}  // namespace patience

/// `What` returns what completes "still waiting after 5 s for …". It is called on this thread in the midst of the wait,
/// so it waits for nothing itself and takes no lock that the wait may hold.
template <std::invocable What>
class Patience final : private patience::Wait {
 public:
    explicit Patience(What what) : what_(std::move(what)) {}

 private:
    std::string words() const override { return what_(); }
    What what_;
};

}  // namespace tutti
