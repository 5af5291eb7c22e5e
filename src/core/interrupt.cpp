#include "core/interrupt.hpp"

#include "core/assert.hpp"
#include "core/patience.hpp"

#include <tutti/error.hpp>
#include <tutti/interrupt.hpp>

#include <atomic>
#include <csignal>

namespace tutti {
namespace {

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);
struct sigaction previous_action;
std::atomic<bool (*)() noexcept> interrupt_check{nullptr};

void on_sigint(int signal_number) {
    TUTTI_ASSERT(signal_number == SIGINT);
    // A second Ctrl-C before the first was noticed gets the previous behaviour.
    if (interrupted.exchange(true, std::memory_order_relaxed)) {
        sigaction(signal_number, &previous_action, nullptr);
        raise(signal_number);
    }
}

}  // namespace

void AbortFlag::raise(std::string reason) {
    const std::lock_guard lock(mutex_);
    if (raised_.load(std::memory_order_relaxed)) return;
    reason_ = std::move(reason);
    raised_.store(true, std::memory_order_release);
}

std::string AbortFlag::reason() const {
    const std::lock_guard lock(mutex_);
    return reason_;
}

bool interrupt_requested() noexcept {
    if (interrupted.load(std::memory_order_relaxed)) return true;
    const auto check = interrupt_check.load(std::memory_order_acquire);
    return check != nullptr && check();
}
void request_interrupt() noexcept {
    interrupted.store(true, std::memory_order_relaxed);
}
void clear_interrupt() noexcept {
    interrupted.store(false, std::memory_order_relaxed);
}

void check_wait(const Deadline& deadline, const AbortFlag* abort, const char* operation) {
    TUTTI_ASSERT(operation != nullptr);
    if (abort != nullptr && abort->raised()) {
        throw Aborted(std::string(operation) + " was aborted: " + abort->reason(), {.operation = operation});
    }
    if (interrupt_requested()) {
        clear_interrupt();
        throw Aborted(std::string(operation) + " was interrupted by a signal", {.operation = operation},
                      ErrorCode::interrupted);
    }
    if (deadline.expired()) {
        throw Timeout(std::string(operation) + " timed out", {.operation = operation});
    }
    patience::look();
}

InterruptHandler::InterruptHandler() {
    struct sigaction action {};
    action.sa_handler = on_sigint;
    sigemptyset(&action.sa_mask);
    action.sa_flags = 0;  // no SA_RESTART: blocking system calls return
    sigaction(SIGINT, &action, &previous_action);
}

InterruptHandler::~InterruptHandler() {
    sigaction(SIGINT, &previous_action, nullptr);
}

void interrupt() noexcept {
    request_interrupt();
}

void set_interrupt_check(bool (*check)() noexcept) noexcept {
    interrupt_check.store(check, std::memory_order_release);
}

}  // namespace tutti
