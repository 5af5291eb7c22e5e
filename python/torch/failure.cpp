#include "failure.hpp"

#include "signals.hpp"

#include <c10/util/Exception.h>

#include <tutti/error.hpp>

#include <string>

namespace tutti::torch {

std::exception_ptr translated(std::exception_ptr error) {
    constexpr c10::SourceLocation here{"tutti", "tutti.torch", 0};
    try {
        std::rethrow_exception(error);
    } catch (const Aborted& e) {
        if (e.code() == ErrorCode::interrupted) {
            if (std::exception_ptr raised = raised_by_signal()) return raised;
        }
        return std::make_exception_ptr(c10::DistBackendError(here, e.what()));
    } catch (const InvalidArgument& e) {
        return std::make_exception_ptr(c10::Error(here, e.what()));
    } catch (const DistStoreError& e) {
        return std::make_exception_ptr(c10::DistStoreError(here, e.what()));
    } catch (const DistNetworkError& e) {
        return std::make_exception_ptr(c10::DistNetworkError(here, e.what()));
    } catch (const Timeout& e) {  // in gloo's words, which programs look for
        return std::make_exception_ptr(
            c10::DistBackendError(here, std::string("tutti: Timed out waiting: ") + e.what()));
    } catch (const PeerLost& e) {
        return std::make_exception_ptr(
            c10::DistBackendError(here, std::string("tutti: Connection closed by peer: ") + e.what()));
    } catch (const DistBackendError& e) {
        return std::make_exception_ptr(c10::DistBackendError(here, e.what()));
    } catch (const DistError& e) {
        return std::make_exception_ptr(c10::DistError(here, e.what()));
    } catch (...) {
        return error;
    }
}

void Failures::note(const std::exception_ptr& error) noexcept {
    c10d::ErrorType type = c10d::ErrorType::COMM_ERROR;
    try {
        std::rethrow_exception(error);
    } catch (const InvalidArgument&) {
        return;  // nothing was sent
    } catch (const Timeout&) {
        type = c10d::ErrorType::TIMEOUT;
    } catch (...) {  // NOLINT(bugprone-empty-catch): the kind that is set already
    }
    c10d::ErrorType none = c10d::ErrorType::SUCCESS;
    first_.compare_exchange_strong(none, type);
}

void Failures::watch(const tutti::Work& work) {
    const std::lock_guard lock(mutex_);
    watched_.push_back(work);
    if (watched_.size() >= next_look_up_) {
        look_up();
        next_look_up_ = 2 * watched_.size() + 16;
    }
}

c10d::ErrorType Failures::first() {
    const std::lock_guard lock(mutex_);
    look_up();
    return first_;
}

void Failures::look_up() {
    std::erase_if(watched_, [this](const tutti::Work& work) {
        if (!work.is_completed()) return false;
        if (const std::exception_ptr error = work.exception()) note(error);
        return true;
    });
}

}  // namespace tutti::torch
