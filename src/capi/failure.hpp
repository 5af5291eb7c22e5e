// Converts exceptions to a status and this thread's last error.
//
// Threads: any; the last error belongs to its thread.
#pragma once

#include "core/assert.hpp"

#include <tutti/tutti.h>

namespace tutti::capi {

/// Stores the exception that is being handled as this thread's last error. Never throws.
tutti_status take_exception() noexcept;

/// Calls `call(function)`; returns TUTTI_OK, or the code of its exception. Messages begin with `function`.
template <class Call>
tutti_status guarded(const char* function, Call&& call) noexcept {
    TUTTI_ASSERT(function != nullptr);
    try {
        call(function);
        return TUTTI_OK;
    } catch (...) {
        return take_exception();
    }
}

}  // namespace tutti::capi
