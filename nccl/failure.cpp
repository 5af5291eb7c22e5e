#include "failure.hpp"

#include "of_thread.hpp"
#include "process_mutex.hpp"

#include <tutti/error.hpp>

#include <cerrno>
#include <mutex>
#include <new>
#include <string_view>
#include <system_error>

namespace tutti::nccl_library {
namespace {

struct OfProcess {
    ProcessMutex mutex;
    std::string last;
};
OfProcess& of_process() {
    static auto* const instance = new OfProcess;  // outlives threads that end after main()
    return *instance;
}
struct Sentences {
    std::string last, shown;
};

ncclResult_t code_of(ErrorCode code) {
    switch (code) {
        case ErrorCode::invalid_argument: return ncclInvalidArgument;
        case ErrorCode::collective_mismatch:
        case ErrorCode::not_initialized: return ncclInvalidUsage;
        case ErrorCode::aborted:  // by another rank: this one's abort is known without it
        case ErrorCode::timeout:
        case ErrorCode::peer_lost:
        case ErrorCode::network:
        case ErrorCode::store:
        case ErrorCode::security: return ncclRemoteError;
        case ErrorCode::interrupted: return ncclSystemError;
        case ErrorCode::backend:
        case ErrorCode::internal: break;
    }
    return ncclInternalError;
}

// Whether this process could not have what it asked its own system for. A DistError of this rank, and of no other, has
// the system's words for it.
bool ran_out(const DistError& error) {
    const std::string_view said = error.what();
    const auto says = [&](int number) { return said.find(std::generic_category().message(number)) != said.npos; };
    return error.context().peer < 0 && (says(EMFILE) || says(ENFILE) || says(ENOMEM) || says(ENOBUFS) || says(ENOSPC));
}

}  // namespace

Failure as_failure(const std::exception_ptr& error) {
    try {
        std::rethrow_exception(error);
    } catch (const Failure& failure) {
        return failure;
    } catch (const DistError& failure) {
        return {ran_out(failure) ? ncclSystemError : code_of(failure.code()), failure.what()};
    } catch (const std::bad_alloc&) {
        return {ncclSystemError, "memory could not be allocated"};
    } catch (const std::system_error& failure) {
        return {ncclSystemError, failure.what()};
    } catch (const std::exception& failure) {
        return {ncclInternalError, failure.what()};
    } catch (...) {
        return {ncclInternalError, "something of unknown kind was thrown"};
    }
}

ncclResult_t remember(const Failure& failure) {
    of_thread<Sentences>().last = failure.sentence();
    const std::lock_guard lock(of_process().mutex);
    of_process().last = failure.sentence();
    return failure.code();
}

const char* last_sentence() {
    if (const std::string& last = of_thread<Sentences>().last; !last.empty()) return shown(last);
    const std::lock_guard lock(of_process().mutex);
    return shown(of_process().last);
}

const char* shown(const std::string& sentence) {
    std::string& shown = of_thread<Sentences>().shown;
    shown = sentence;
    return shown.c_str();
}

}  // namespace tutti::nccl_library
