#include "failure.hpp"

#include <tutti/error.hpp>

#include <mutex>
#include <new>
#include <system_error>

namespace tutti::nccl_library {
namespace {

std::mutex process_mutex;
std::string& last_of_process() {
    static std::string* sentence = new std::string;  // outlives threads that end after main()
    return *sentence;
}
thread_local std::string last_of_thread;
thread_local std::string shown_to_thread;

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

}  // namespace

Failure as_failure(const std::exception_ptr& error) {
    try {
        std::rethrow_exception(error);
    } catch (const Failure& failure) {
        return failure;
    } catch (const DistError& failure) {
        return {code_of(failure.code()), failure.what()};
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
    last_of_thread = failure.sentence();
    const std::lock_guard lock(process_mutex);
    last_of_process() = failure.sentence();
    return failure.code();
}

const char* last_sentence() {
    if (!last_of_thread.empty()) return shown(last_of_thread);
    const std::lock_guard lock(process_mutex);
    return shown(last_of_process());
}

const char* shown(const std::string& sentence) {
    shown_to_thread = sentence;
    return shown_to_thread.c_str();
}

}  // namespace tutti::nccl_library
