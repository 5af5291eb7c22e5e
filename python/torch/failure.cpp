#include "failure.hpp"

#include "signals.hpp"

#include <c10/util/Exception.h>

#include <tutti/error.hpp>

#include <string>

namespace tutti::torch {

namespace {

std::string message_of(const DistError& error, const Place& place) {
    std::string message = error.what();
    if (!place.operation) return message;
    const std::string rank = "rank " + std::to_string(place.rank);
    const bool complete = message.find(place.operation) != std::string::npos && message.find(rank) != std::string::npos;
    return complete ? message : message + " (" + place.operation + " on " + rank + ")";
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
        const bool says_so = e.code() != ErrorCode::timeout || message.find("imed out") != std::string::npos;
        return std::make_exception_ptr(c10::DistStoreError(here, says_so ? message : "Timed out: " + message));
    } catch (const DistNetworkError& e) {
        return std::make_exception_ptr(c10::DistNetworkError(here, message_of(e, place)));
    } catch (const Timeout& e) {  // in gloo's words, which programs look for
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
