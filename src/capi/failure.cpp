#include "capi/failure.hpp"

#include "core/assert.hpp"
#include "core/per_thread.hpp"

#include <tutti/dtype.hpp>
#include <tutti/error.hpp>
#include <tutti/version.hpp>

#include <cstdlib>
#include <exception>
#include <new>
#include <string>

namespace tutti::capi {
namespace {

struct LastError {
    std::string text;
    const char* shown = "";  // text, or a literal where there was no memory for it
    int peer = -1;
};

tutti_status keep(tutti_status status, const char* text, int peer = -1) noexcept {
    TUTTI_ASSERT(status != TUTTI_OK && text != nullptr);
    LastError& last = PerThread<LastError>::get();
    last.peer = peer;
    try {
        last.text = text;
        last.shown = last.text.c_str();
    } catch (...) {
        last.shown = "out of memory, also for what went wrong";
    }
    return status;
}

// The numbers are the same: every code has a name in C.
static_assert(static_cast<int>(ErrorCode::invalid_argument) == TUTTI_INVALID_ARGUMENT);
static_assert(static_cast<int>(ErrorCode::timeout) == TUTTI_TIMEOUT);
static_assert(static_cast<int>(ErrorCode::peer_lost) == TUTTI_PEER_LOST);
static_assert(static_cast<int>(ErrorCode::collective_mismatch) == TUTTI_COLLECTIVE_MISMATCH);
static_assert(static_cast<int>(ErrorCode::network) == TUTTI_NETWORK);
static_assert(static_cast<int>(ErrorCode::store) == TUTTI_STORE);
static_assert(static_cast<int>(ErrorCode::backend) == TUTTI_BACKEND);
static_assert(static_cast<int>(ErrorCode::aborted) == TUTTI_ABORTED);
static_assert(static_cast<int>(ErrorCode::interrupted) == TUTTI_INTERRUPTED);
static_assert(static_cast<int>(ErrorCode::security) == TUTTI_SECURITY);
static_assert(static_cast<int>(ErrorCode::not_initialized) == TUTTI_NOT_INITIALIZED);
static_assert(static_cast<int>(ErrorCode::internal) == TUTTI_INTERNAL);

}  // namespace

tutti_status take_exception() noexcept {
    TUTTI_ASSERT(std::current_exception() != nullptr);
    try {
        throw;
    } catch (const DistError& error) {
        return keep(static_cast<tutti_status>(error.code()), error.what(), error.context().peer);
    } catch (const std::bad_alloc&) {
        return keep(TUTTI_NO_MEMORY, "out of memory");
    } catch (const std::exception& error) {
        return keep(TUTTI_INTERNAL, error.what());
    } catch (...) {
        return keep(TUTTI_INTERNAL, "an exception that is no std::exception");
    }
}

}  // namespace tutti::capi

extern "C" {

const char* tutti_status_name(int status) {
    if (status == TUTTI_OK) return "ok";
    if (status == TUTTI_NO_MEMORY) return "no_memory";
    return tutti::to_string(static_cast<tutti::ErrorCode>(status));
}
const char* tutti_last_error(void) {
    return tutti::PerThread<tutti::capi::LastError>::get().shown;
}
int tutti_last_error_peer(void) {
    return tutti::PerThread<tutti::capi::LastError>::get().peer;
}
const char* tutti_version(void) {
    return tutti::version();
}
size_t tutti_dtype_size(int dtype) {
    return dtype < 0 || dtype >= tutti::dtype_count ? 0 : tutti::size_of(static_cast<tutti::DType>(dtype));
}
const char* tutti_dtype_name(int dtype) {  // literals, which end with a zero byte
    if (dtype < 0 || dtype >= tutti::dtype_count) return nullptr;
    return tutti::to_string(static_cast<tutti::DType>(dtype)).data();
}
void tutti_free(void* memory) {
    std::free(memory);
}
}  // extern "C"
