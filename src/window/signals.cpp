#include "window/signals.hpp"

#include "core/assert.hpp"
#include "core/patience.hpp"
#include "core/rethrow_about.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <mutex>
#include <string>

namespace tutti::window {
namespace {

using detail::Driver;

// Between two looks at what else may end the wait.
constexpr std::chrono::milliseconds slice{100};

std::exception_ptr failure_of(Group& group) {
    const std::lock_guard lock(group.world().flight().mutex());
    return group.world().flight().failure();
}

// All others have said goodbye, and all that they sent has come.
bool is_alone(Group& group) {
    if (group.size() == 1) return false;  // another thread may raise it
    const std::lock_guard lock(group.world().flight().mutex());
    for (int rank = 0; rank < group.size(); ++rank) {
        if (rank != group.rank() && !group.world().verdicts().gone(group.ranks().global(rank))) return false;
    }
    return true;
}

class Wait {
 public:
    Wait(Group& group, const Memory& memory, Wanted wanted)
        : group_(group), memory_(memory), wanted_(wanted), began_(Clock::now()) {
        TUTTI_ASSERT(wanted.signal >= 0 && wanted.signal < memory.signal_count());
    }

    bool is_over() const noexcept { return value() >= wanted_.at_least; }
    std::string subject() const {
        return fmt::format("wait_signal in group \"{}\" ({} ranks), rank {}: signal {} is {}, expected at least {}",
                           group_.name(), group_.size(), group_.rank(), wanted_.signal, value(), wanted_.at_least);
    }
    ErrorContext context() const {
        return {.operation = "wait_signal",
                .group = group_.name(),
                .rank = group_.rank(),
                .elapsed = Clock::now() - began_};
    }

 private:
    std::uint64_t value() const noexcept { return memory_.value_of(group_.rank(), wanted_.signal); }

    Group& group_;
    const Memory& memory_;
    const Wanted wanted_;
    const Instant began_;
};

}  // namespace

void wait_for(Group& group, const Memory& memory, Wanted wanted, const Deadline& deadline) {
    const Wait wait(group, memory, wanted);
    Driver& driver = group.world().driver();
    // A signal that comes within a moment costs neither the lock nor a turn of the world's messages.
    for (Waiting::Looks looks(driver.waiting()); !wait.is_over() && looks.again();) {
    }
    const Patience patience([&] { return wait.subject(); });
    bool was_alone = false;
    while (!wait.is_over()) {
        if (const auto failure = failure_of(group)) rethrow_about(failure, wait.subject(), wait.context());
        memory.check_overflow("Window.wait_signal", wanted.signal);
        // A signal of a rank that has left may have come since the look before.
        if (was_alone) {
            throw PeerLost(fmt::format("{}: all other ranks have left the group", wait.subject()), wait.context());
        }
        if (deadline.expired())
            throw Timeout(fmt::format("{}: nothing more came in time", wait.subject()), wait.context());
        const Deadline next = Deadline::at(std::min(deadline.when(), Deadline::after(slice).when()));
        const auto waited = driver.wait([&] { return wait.is_over() || failure_of(group); }, next, next);
        if (wait.is_over()) return;
        if (waited == Driver::Waited::interrupted) {
            throw Aborted(fmt::format("{}: interrupted by a signal", wait.subject()), wait.context(),
                          ErrorCode::interrupted);
        }
        was_alone = is_alone(group);
        patience::look();
    }
}

void take_what_has_come(Group& group) {
    if (!group.world().driver().lacks_thread()) return;
    detail::OperationsInFlight& flight = group.world().flight();
    const detail::OperationsInFlight::Guard guard(flight);
    flight.progress();
}

// Copies of memory leave nothing in flight whose waits would take the news of a death.
void check_sound(Group& group, const char* name) {
    TUTTI_ASSERT(name != nullptr);
    if (group.world().flight().looks_sound()) [[likely]]
        return;
    if (group.world().verdicts().health().has_news()) {
        detail::OperationsInFlight& flight = group.world().flight();
        const detail::OperationsInFlight::Guard guard(flight);
        flight.progress();
    }
    if (const auto failure = failure_of(group)) group.inquiry().refuse(name, failure);
}

}  // namespace tutti::window
