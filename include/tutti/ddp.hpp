// DistributedDataParallel: equal copies of a model on all ranks, each trained on its own data with averaged gradients.
//
// The program owns its parameters and computes the gradients itself; there is no autograd here. The program reports
// each complete gradient by ready(); as soon as a bucket of gradients is complete, DDP starts to average it over all
// ranks while the program computes the next ones:
//
//     std::vector<tutti::NamedParameter> parameters{{"a.weight", a, a_gradient}, {"b.weight", b, b_gradient}};
//     tutti::DistributedDataParallel ddp(parameters, {.module_name = "TwoLinLayerNet"});
//     for (const Batch& batch : batches) {
//         ddp.forward();
//         const Loss loss = net.forward(batch);
//         ddp.prepare_for_backward();
//         net.backward_b(loss);
//         ddp.ready("b.weight");         // DDP may send it now
//         net.backward_a(loss);
//         ddp.ready("a.weight");
//         ddp.finish();                  // the gradients are averages, the same bits on all ranks
//         net.step();
//     }
//
// Logs. At the debug levels `info` and `detail` (tutti/debug.hpp), if the log level lets INFO through, the constructor
// logs "[Rank R]: DDP Initialized with:" and 26 lines `key: value`. Unset values are N/A; output_device and device_ids
// come from the options, environment variables from this process; sizes are bytes. At `detail` finish() logs the
// statistics of iterations 1 to 10 and of every hundredth, as torch does: averages over the logged iterations, in
// nanoseconds.
//   forward compute    from the end of forward() to prepare_for_backward(), or else to the first ready()
//   backward compute   from the end of forward compute to the last ready(), or to finish() if a parameter was not ready
//   backward comm.     from the start of the first bucket to the completion of the last
//   overlap            the part of backward comm. that lies in backward compute
//   unused_parameter_size: bytes of the parameters that were not ready in the iteration, on this rank
//
// Follows torch.nn.parallel.DistributedDataParallel; each deviation is noted at its place.
#pragma once

#include <tutti/export.hpp>
#include <tutti/future.hpp>
#include <tutti/process_group.hpp>
#include <tutti/quantized.hpp>
#include <tutti/tensor.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tutti {

namespace detail {
class Reducer;
}

/// A parameter, and the memory of its gradient: both in host memory, with any strides; or both contiguous on one device
/// that the group serves.
struct NamedParameter {
    std::string name;  ///< not empty, and unique
    TensorView tensor;
    /// The gradient, with the parameter's dtype and shape. Optional if ready() gets the gradient; must be empty with
    /// gradient_as_bucket_view.
    std::optional<TensorView> gradient{};
};

/// A tensor of the model that is not trained, such as a running mean. Any dtype.
struct NamedBuffer {
    std::string name;
    TensorView tensor;
};

struct DistributedDataParallelOptions {
    ProcessGroup group{};
    std::vector<NamedBuffer> buffers{};
    bool broadcast_buffers = true;  ///< forward() copies rank 0's buffers to all ranks
    /// A bucket that has reached this size gets no further gradient; for the first bucket of each dtype the limit is at
    /// most 1 MiB, so that communication begins early. 0: each gradient by itself.
    std::size_t bucket_cap_bytes = 25 << 20;
    bool find_unused_parameters = false;   ///< a parameter may stay without gradient in an iteration; see finish()
    bool gradient_as_bucket_view = false;  ///< gradients are computed in the buckets, which saves memory and copies
    std::string module_name{};             ///< in logs and messages
    std::vector<int> device_ids{};         ///< logged; at most one
    std::optional<int> output_device{};    ///< logged; default: device_ids[0], which it must equal
};

/// The gradients of some parameters, of one dtype and on one device; in host memory they are one flat tensor. The
/// argument of a communication hook.
class TUTTI_API GradBucket {
 public:
    /// All gradients of this rank, flattened, one after the other, not averaged yet. A hook may write to the buffer;
    /// copies of the GradBucket share it. Empty for gradients on a device.
    const Tensor& buffer() const noexcept { return buffer_; }
    /// Position in the order in which buckets are sent, from 0.
    std::size_t index() const noexcept { return index_; }
    bool is_last() const noexcept { return is_last_; }
    /// The parameters whose gradients the bucket holds, in order.
    const std::vector<TensorView>& parameters() const noexcept { return parameters_; }
    /// The gradients of parameters(): views of the buffer, in the parameters' shapes; on a device, the program's own
    /// tensors.
    const std::vector<TensorView>& gradients() const noexcept { return gradients_; }

 private:
    friend class detail::Reducer;
    Tensor buffer_;
    std::size_t index_ = 0;
    bool is_last_ = false;
    std::vector<TensorView> parameters_, gradients_;
};

/// The result of a hook: a tensor with as many elements as the bucket, of its dtype, or a list of one, as
/// Work::get_future() gives; it may be the bucket's buffer.
using CommHookResult = std::variant<Future<Tensor>, Future<std::vector<TensorView>>>;
/// A communication hook. ready() and finish() call it, on their caller's thread, once for each bucket, in order; DDP
/// then does no all_reduce itself.
///     ddp.register_comm_hook({}, [](const tutti::ProcessGroup& group, tutti::GradBucket& bucket) {
///         for (float& x : bucket.buffer().span<float>()) x /= static_cast<float>(group.size());
///         tutti::TensorView gradients = bucket.buffer().view();
///         return tutti::async::all_reduce(gradients, {.group = group}).get_future();
///     });
using CommHook = std::function<CommHookResult(const ProcessGroup& group, GradBucket& bucket)>;

enum class ErrorFeedback {
    off,
    on,  ///< each iteration adds the rounding errors of the one before (QuantizedReducer)
};
/// A hook that averages each bucket with quantized_all_reduce, as `options` say, but for their op and group: the hook
/// sets these itself. Gradients are float32, float16 or bfloat16. When buckets change, after the first iteration, the
/// error feedback starts from zero. Register the hook with a group, or without one for the object's group.
///     ddp.register_comm_hook({}, tutti::quantized_comm_hook({.type = tutti::QuantizedType::int4}));
TUTTI_API CommHook quantized_comm_hook(QuantizedOptions options = {}, ErrorFeedback feedback = ErrorFeedback::on);

/// The parameters and gradients of a model on all ranks of a group. May be moved, not copied.
///
/// Ownership: the program owns parameters, gradients and buffers, which must outlive the object; a gradient passed to
/// ready() must live until finish(). Between ready() and finish() a gradient must not be read or written.
/// Order: all ranks make the same calls of forward() and finish(), except those in no_sync(). Parameters may become
/// ready in any order, which may differ between ranks.
/// Errors: InvalidArgument for an impossible request, which changes nothing. finish() throws what has failed since
/// forward(): the group, a hook, or a gradient that is missing. After such a failure the object cannot be used, and the
/// group is aborted on all ranks, unless it has failed already: other ranks get Aborted with this rank's message
/// instead of waiting for this rank.
/// Threads: one at a time. A group's collectives need the same order on all ranks: use the group for nothing else
/// between forward() and finish(), or give the object a group of its own.
/// Devices: a device's backend averages the gradients in place, those of a bucket in one launch; nothing is copied or
/// allocated. finish() makes the current stream (tutti/stream.hpp) wait for the averages and returns; call ready() when
/// the work that computes the gradient is in that stream. A hook's bucket has no buffer(): the hook leaves the averages
/// in gradients(). gradient_as_bucket_view and find_unused_parameters are for host memory.
/// Cost: forward(): a broadcast of the buffers; an iteration: one all_reduce for each bucket, and with
/// find_unused_parameters one of an int32 for each parameter. Memory: that of all gradients, unless they are views.
class TUTTI_API DistributedDataParallel {
 public:
    /// Collective: all ranks of the group call it with matching arguments; then all have rank 0's parameters and
    /// buffers. At least one parameter; floating-point or complex.
    /// Throws InvalidArgument if this rank's arguments are wrong, and CollectiveMismatch on the other ranks;
    /// CollectiveMismatch on all ranks if they differ in a parameter's name, shape or dtype, or an option. The message
    /// names the first difference, and the group stays usable.
    explicit DistributedDataParallel(std::vector<NamedParameter> parameters,
                                     DistributedDataParallelOptions options = {});
    DistributedDataParallel(DistributedDataParallel&& other) noexcept;
    DistributedDataParallel& operator=(DistributedDataParallel&& other) noexcept;
    DistributedDataParallel(const DistributedDataParallel&) = delete;
    DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;
    /// Does not wait: an unfinished iteration is lost, and other ranks that wait in it get no answer.
    ~DistributedDataParallel();

    /// Begins an iteration. The second one outside no_sync() may form the buckets anew, in the order in which gradients
    /// became ready on rank 0 in the first one (not with find_unused_parameters).
    /// May be called again when no gradient has been ready since: a forward pass without a backward pass.
    /// Throws InvalidArgument if the last iteration is not finished; if gradients are missing in it, the error of
    /// finish().
    void forward();
    /// The forward pass is over. This call is optional. `unused`: indices of parameters that will get no gradient in
    /// this iteration, so that their buckets need not wait for finish(); InvalidArgument without
    /// find_unused_parameters.
    void prepare_for_backward(const std::vector<std::size_t>& unused = {});
    /// The gradient of a parameter is complete, in the memory that the constructor got (or in the bucket). Call it once
    /// in an iteration. Sends the gradient's bucket when the bucket is complete and all earlier ones are sent.
    /// `parameter`: index in the constructor's list, from 0.
    void ready(std::size_t parameter);
    void ready(std::string_view parameter);
    /// As above, for a gradient in other memory, of the parameter's dtype and shape: finish() puts the average there
    /// (with gradient_as_bucket_view: in the bucket).
    void ready(std::size_t parameter, TensorView gradient);
    void ready(std::string_view parameter, TensorView gradient);
    /// Ends the iteration: waits for all buckets; the gradients are then averages over all ranks.
    /// Parameters that have not been ready: with find_unused_parameters they count as zeros; if no rank has used one,
    /// its gradient stays as it is. Without that option, InvalidArgument "Expected to have finished reduction in the
    /// prior iteration before starting a new one. ...", with names at debug levels `info` and `detail`.
    /// In no_sync() it sends nothing, and no gradient counts as missing.
    void finish();

    /// While a NoSync object lives, iterations that forward() begins are local to this rank: the program accumulates
    /// gradients, and buffers stay unchanged. The next iteration outside averages the accumulated gradients.
    class TUTTI_API NoSync {
     public:
        explicit NoSync(std::shared_ptr<int> scopes) : scopes_(std::move(scopes)) { ++*scopes_; }
        ~NoSync() { --*scopes_; }
        NoSync(const NoSync&) = delete;
        NoSync& operator=(const NoSync&) = delete;

     private:
        std::shared_ptr<int> scopes_;
    };
    [[nodiscard]] NoSync no_sync() const;

    /// From now on `hook` replaces the all_reduce. All ranks register the same hook, before the first iteration or
    /// between two, at most once. `state` is the group that the hook gets; empty: the object's group. The hook's future
    /// must complete: only the operations that it waits for have a time limit.
    void register_comm_hook(ProcessGroup state, CommHook hook);

    /// The memory in which the program computes a parameter's gradient: its place in a bucket, valid until the next
    /// forward(), or the memory that the constructor got. Throws InvalidArgument if the constructor got none.
    TensorView gradient(std::size_t parameter) const;
    TensorView gradient(std::string_view parameter) const;
    /// The indices of the parameters in each bucket, in the order in which buckets are sent.
    std::vector<std::vector<std::size_t>> buckets() const;
    ProcessGroup group() const;

 private:
    detail::Reducer& checked(const char* method) const;
    std::unique_ptr<detail::Reducer> reducer_;
};

}  // namespace tutti
