#include "capi/operators.hpp"

#include "capi/arguments.hpp"
#include "capi/failure.hpp"
#include "core/assert.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <map>
#include <mutex>

namespace tutti::capi {
namespace {

// Never destroyed: threads may use it while the process ends. No number comes twice.
struct Operators {
    std::mutex mutex;
    std::map<int, ReduceOp> all;
    int next = first_op;
};
Operators& operators() {
    static auto& all = *new Operators;
    return all;
}

[[noreturn]] void refuse_op(const char* function, int op) {
    throw InvalidArgument(
        fmt::format("{}: op: {}: expected an operator of tutti_op_create that has not been released", function, op));
}

}  // namespace

ReduceOp operator_of(const char* function, int op) {
    TUTTI_ASSERT(function != nullptr);
    const std::lock_guard lock(operators().mutex);
    const auto found = operators().all.find(op);
    if (found == operators().all.end()) refuse_op(function, op);
    return found->second;
}

}  // namespace tutti::capi

using namespace tutti;
using namespace tutti::capi;

extern "C" {

tutti_status tutti_op_create(tutti_op_function function, void* context, size_t element_bytes, int dtype,
                             int commutative, const char* name, int* op) {
    return guarded(__func__, [&](const char* f) {
        int& result = out(f, "op", op);
        if (function == nullptr) refuse_null(f, "function");
        const auto type = static_cast<DType>(number_of(f, "dtype", dtype, 0, dtype_count - 1));
        const bool commutes = number_of(f, "commutative", commutative, 0, 1) == 1;
        const ReduceOp made = ReduceOp::of(function, context, element_bytes, type,
                                           {.commutative = commutes, .name = text_or_nothing(name)});
        const std::lock_guard lock(operators().mutex);
        TUTTI_ASSERT(operators().next >= first_op);
        operators().all.emplace(operators().next, made);
        result = operators().next++;
    });
}

tutti_status tutti_op_free(int op) {
    return guarded(__func__, [&](const char* f) {
        const std::lock_guard lock(operators().mutex);
        if (operators().all.erase(op) == 0) capi::refuse_op(f, op);
    });
}

}  // extern "C"
