// Buckets averaged by quantised collectives: a communication hook.
#include <tutti/ddp.hpp>
#include <tutti/quantized.hpp>

#include <memory>
#include <optional>
#include <utility>

namespace tutti {

CommHook quantized_comm_hook(QuantizedOptions options, ErrorFeedback feedback) {
    options.op = ReduceOp::avg;
    if (feedback == ErrorFeedback::off) {
        return [options = std::move(options)](const ProcessGroup& group, GradBucket& bucket) mutable {
            options.group = group;
            return async::quantized_all_reduce(bucket.buffer().view(), options).get_future();
        };
    }
    // The first call of the hook brings the group; a hook has one.
    auto reducer = std::make_shared<std::optional<QuantizedReducer>>();
    return [options = std::move(options), reducer](const ProcessGroup& group, GradBucket& bucket) mutable {
        options.group = group;
        if (!*reducer) reducer->emplace(options);
        return (*reducer)->start_all_reduce(bucket.buffer().view(), bucket.index()).get_future();
    };
}

}  // namespace tutti
