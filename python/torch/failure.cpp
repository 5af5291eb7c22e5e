#include "failure.hpp"

#include "signals.hpp"

#include <c10/util/Exception.h>

#include <tutti/error.hpp>

#include <string>
#include <utility>

namespace tutti::torch {

namespace {

std::string message_of(const DistError& error, const Place& place) {
    std::string message = error.what();
    if (!place.operation) return message;
    const std::string rank = "rank " + std::to_string(place.rank);
    const bool complete = message.find(place.operation) != std::string::npos && message.find(rank) != std::string::npos;
    return complete ? message : message + " (" + place.operation + " on " + rank + ")";
}

// SUCCESS for null, and for a refused call, which sent nothing.
c10d::ErrorType type_of(const std::exception_ptr& error) noexcept {
    if (!error) return c10d::ErrorType::SUCCESS;
    try {
        std::rethrow_exception(error);
    } catch (const InvalidArgument&) {
        return c10d::ErrorType::SUCCESS;
    } catch (const Timeout&) {
        return c10d::ErrorType::TIMEOUT;
    } catch (...) {
        return c10d::ErrorType::COMM_ERROR;
    }
}

}  // namespace

std::exception_ptr translated(std::exception_ptr error, const Place& place) {
    constexpr c10::SourceLocation here{"tutti", "tutti.torch", 0};
    try {
        std::rethrow_exception(error);
    } catch (const Aborted& e) {
        if (e.code() == ErrorCode::interrupted) {
            if (std::exception_ptr raised = raised_by_signal()) return raised;
        }
        return std::make_exception_ptr(c10::DistBackendError(here, message_of(e, place)));
    } catch (const InvalidArgument& e) {
        return std::make_exception_ptr(c10::Error(here, message_of(e, place)));
    } catch (const DistStoreError& e) {
        const std::string message = message_of(e, place);
        const bool says_so = e.code() != ErrorCode::timeout || message.find("Timed out") != std::string::npos;
        return std::make_exception_ptr(c10::DistStoreError(here, says_so ? message : "Timed out: " + message));
    } catch (const DistNetworkError& e) {
        return std::make_exception_ptr(c10::DistNetworkError(here, message_of(e, place)));
    } catch (const Timeout& e) {  // gloo's words, which programs look for
        return std::make_exception_ptr(
            c10::DistBackendError(here, "tutti: Timed out waiting: " + message_of(e, place)));
    } catch (const PeerLost& e) {
        return std::make_exception_ptr(
            c10::DistBackendError(here, "tutti: Connection closed by peer: " + message_of(e, place)));
    } catch (const DistBackendError& e) {
        return std::make_exception_ptr(c10::DistBackendError(here, message_of(e, place)));
    } catch (const DistError& e) {
        return std::make_exception_ptr(c10::DistError(here, message_of(e, place)));
    } catch (...) {
        return error;
    }
}

void Failures::note(const std::exception_ptr& error) noexcept {
    if (set_first(error)) tell_hooks();
}

bool Failures::set_first(const std::exception_ptr& error) noexcept {
    const c10d::ErrorType type = type_of(error);
    c10d::ErrorType none = c10d::ErrorType::SUCCESS;
    if (type != none) first_.compare_exchange_strong(none, type);
    return type != c10d::ErrorType::SUCCESS;
}

void Failures::watch(const tutti::Work& work) {
    if (has_hooks_) listen(hooks(), work);
    const std::lock_guard lock(mutex_);
    watched_.push_back(work);
    if (watched_.size() >= next_look_up_) {
        look_up();
        next_look_up_ = 2 * watched_.size() + 16;
    }
}

// One thread notifies all waiters, in the order in which they asked; a program that waits for a Work may therefore see
// its error a moment before the hook is called.
void Failures::listen(const std::shared_ptr<Hooks>& hooks, const tutti::Work& work) {
    work.get_future().add_done_callback([hooks, work](const auto&) {
        if (type_of(work.exception()) != c10d::ErrorType::SUCCESS) hooks->tell();
    });
}

void Failures::add_hook(std::int64_t id, Hook hook) {
    const auto own = hooks();
    {
        const std::lock_guard lock(own->mutex);
        own->all.insert_or_assign(id, std::move(hook));
    }
    if (has_hooks_.exchange(true)) return;
    std::vector<tutti::Work> under_way;
    {
        const std::lock_guard lock(mutex_);
        under_way = watched_;
    }
    for (const tutti::Work& work : under_way) listen(own, work);
}

void Failures::remove_hook(std::int64_t id) {
    const auto own = hooks();
    const std::lock_guard lock(own->mutex);
    own->all.erase(id);
}

void Failures::Hooks::tell() noexcept {
    std::map<std::int64_t, Hook> now;
    {
        const std::lock_guard lock(mutex);
        if (std::exchange(told, true)) return;
        now = all;
    }
    for (const auto& [id, hook] : now) {
        try {
            hook();
        } catch (const std::exception& error) {
            TORCH_WARN("the abort hook ", id, " failed: ", error.what());
        }
    }
}

void Failures::reset() {
    auto next = std::make_shared<Hooks>();
    const std::lock_guard lock(mutex_);
    {
        const std::lock_guard theirs(hooks_->mutex);
        next->all = hooks_->all;
        hooks_->told = true;
    }
    hooks_ = std::move(next);
    watched_.clear();
    first_ = c10d::ErrorType::SUCCESS;
}

c10d::ErrorType Failures::first() {
    const std::lock_guard lock(mutex_);
    look_up();
    return first_;
}

void Failures::look_up() {
    std::erase_if(watched_, [this](const tutti::Work& work) {
        if (!work.is_completed()) return false;
        if (const std::exception_ptr error = work.exception()) set_first(error);
        return true;
    });
}

}  // namespace tutti::torch
