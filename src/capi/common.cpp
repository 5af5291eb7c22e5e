#include "capi/common.hpp"

#include "capi/arguments.hpp"
#include "capi/handles.hpp"
#include "capi/operators.hpp"
#include "core/assert.hpp"

namespace tutti::capi {

Common::Common(const char* name, const tutti_options* given) : function(name) {
    TUTTI_ASSERT(name != nullptr);
    const tutti_options options = options_of(name, "tutti_options", given, TUTTI_OPTIONS_INIT);
    group = group_of(name, options.group);
    timeout = time_of(name, "options.timeout_ms", options.timeout_ms);
    group_ranks = number_of(name, "options.group_ranks", options.group_ranks, 0, 1) == 1;
    tag = options.tag;
    factor = options.factor;
}

ReduceOp Common::op(int kind) const {
    TUTTI_ASSERT(function != nullptr);
    if (kind >= first_op) return operator_of(function, kind);
    return {static_cast<ReduceOp::Kind>(number_of(function, "op", kind, 0, reduce_op_count - 1)), factor};
}

}  // namespace tutti::capi
