#include "core/patience.hpp"

#include "core/assert.hpp"
#include "core/log.hpp"

#include <tutti/interrupt.hpp>

#include <exception>

namespace tutti {
namespace patience {
namespace {

thread_local Wait* current = nullptr;

}  // namespace

Wait::Wait() noexcept {
    if (current == nullptr) current = this;
}

Wait::~Wait() {
    TUTTI_ASSERT(current != nullptr);
    if (current == this) current = nullptr;
}

void Wait::look_at(Instant now) {
    if (began_ == Instant{}) began_ = now;
    TUTTI_ASSERT(current == this && now >= began_);
    const Clock::duration waited = now - began_;
    if (waited < due_) return;
    while (due_ <= waited) due_ *= 3;
    TUTTI_ASSERT(due_ > waited);
    TUTTI_WARN("still waiting after {} s for {}", std::chrono::floor<std::chrono::seconds>(waited).count(), words());
}

void look() noexcept {
    if (current == nullptr) return;
    try {
        current->look_at(Clock::now());
    } catch (const std::exception&) {
        // There is no memory for the words.
    }
}

}  // namespace patience

void still_waiting() noexcept {
    patience::look();
}

}  // namespace tutti
