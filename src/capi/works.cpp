// Operations that may still run.
#include "capi/failure.hpp"
#include "capi/handles.hpp"

#include <fmt/format.h>

#include <exception>
#include <vector>

using namespace tutti;
using namespace tutti::capi;

extern "C" {

tutti_status tutti_work_wait(tutti_work* work, int64_t timeout_ms) {
    return guarded(__func__, [&](const char* f) {
        Work waited = works().get(f, "work", work);
        waited.wait(time_of(f, "timeout_ms", timeout_ms));
    });
}

tutti_status tutti_work_wait_all(tutti_work* const* works_, size_t count) {
    return guarded(__func__, [&](const char* f) {
        if (works_ == nullptr && count > 0) refuse_null(f, "works");
        std::vector<Work> all;
        for (std::size_t i = 0; i < count; ++i) {
            all.push_back(works().get(f, fmt::format("works[{}]", i).c_str(), works_[i]));
        }
        wait_all(all);
    });
}

tutti_status tutti_work_test(tutti_work* work, int* done) {
    return guarded(__func__, [&](const char* f) {
        int& result = out(f, "done", done);
        result = works().get(f, "work", work).is_completed() ? 1 : 0;
    });
}

tutti_status tutti_work_error(tutti_work* work, tutti_status* error) {
    return guarded(__func__, [&](const char* f) {
        tutti_status& result = out(f, "error", error);
        const std::exception_ptr failed = works().get(f, "work", work).exception();
        result = failed ? guarded(f, [&](const char*) { std::rethrow_exception(failed); }) : TUTTI_OK;
    });
}

tutti_status tutti_work_source_rank(tutti_work* work, int* rank) {
    return guarded(__func__, [&](const char* f) {
        int& result = out(f, "rank", rank);
        result = works().get(f, "work", work).source_rank();
    });
}

tutti_status tutti_work_free(tutti_work* work) {
    if (work == nullptr) return TUTTI_OK;
    return guarded(__func__, [&](const char* f) { works().take(f, "work", work); });
}
}  // extern "C"
