#include "core/biased_mutex.hpp"

#include "core/assert.hpp"
#include "core/membarrier.hpp"

#include <tutti/error.hpp>

#include <sched.h>

#include <utility>

namespace tutti {
namespace {

// Another thread costs the owner its short form, until the owner has been alone again for this many entries.
constexpr int alone_enough = 64;

}  // namespace

BiasedMutex::BiasedMutex() {
    membarrier::request();
}

bool BiasedMutex::can_be_owned() const noexcept {
    return membarrier::has_own();
}

void BiasedMutex::lock() {
    if (users_code_ > 0)
        throw InvalidArgument(
            "tutti was called by a function that an operation runs, and would wait for that operation: expected a "
            "function that only computes");
    inner_.lock();
    taken();
}

bool BiasedMutex::try_lock() {
    if (!inner_.try_lock()) return false;
    taken();
    return true;
}

bool BiasedMutex::enter_inner() {
    if (!try_lock()) return false;
    TUTTI_ASSERT(last_ == this_thread() && alone_ >= 0);
    if (++alone_ < alone_enough || !membarrier::has_own()) return true;
    if (owner_.load(std::memory_order_relaxed) == nullptr) owner_.store(this_thread(), std::memory_order_relaxed);
    if (owner_.load(std::memory_order_relaxed) != this_thread()) return true;
    held_ = true;
    TUTTI_ASSERT(!inside_.load(std::memory_order_relaxed));
    biased_.store(true, std::memory_order_relaxed);
    return true;
}

// Just after inner_ has been taken.
void BiasedMutex::taken() {
    if (std::exchange(last_, this_thread()) != this_thread()) alone_ = 0;
    const bool owns = owner_.load(std::memory_order_relaxed) == this_thread();
    TUTTI_ASSERT(!owns || !held_);
    if (owns) held_ = true;
    if (owns || !biased_.load(std::memory_order_relaxed)) return;
    biased_.store(false, std::memory_order_relaxed);
    // Either the owner sees the cleared flag, or it was inside before and we see that.
    membarrier::fence_own_process();
    while (inside_.load(std::memory_order_acquire)) ::sched_yield();
}

}  // namespace tutti
