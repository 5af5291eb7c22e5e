// Several calls, one launch, one Work: torch.distributed's coalescing manager and its _coalesced collectives.
//
// Calls with short tensors and the same collective, dtype, operator and root are packed into one collective; calls with
// long tensors start one after the other. Each call reads its tensors as they are at the launch, also if another call
// of the scope writes to the same memory; if several calls write to the same memory, the result of the last remains.
// (Tensors on devices must not overlap: InvalidArgument.) Buffers must stay alive and untouched until the Work is
// complete. All ranks make the same calls in the same order, in the same scopes: a rank that makes them without a scope
// gets CollectiveMismatch. InvalidArgument is thrown before anything is sent; other errors are those of the
// collectives, and the Work rethrows the first.
#pragma once

#include <tutti/distributed.hpp>

#include <memory>
#include <vector>

namespace tutti {

namespace detail {
class CollectedCalls;
}

struct CoalescingOptions {
    ProcessGroup group{};
};

/// A scope that collects this thread's blocking collectives, sends and receives on one group instead of running them
/// (recv then returns its `src`, or -1 for any rank). Not collected: calls on other groups, async:: calls, isend and
/// irecv, plans, object collectives, quantised collectives, monitored_barrier.
///     tutti::Coalescing scope({.group = g});
///     tutti::all_reduce(a, {.group = g});
///     tutti::all_reduce(b, {.group = g});
///     tutti::Work work = scope.end();
/// Threads: one thread makes, uses and ends a scope. InvalidArgument if this thread already has a scope for the group.
class TUTTI_API Coalescing {
 public:
    explicit Coalescing(const CoalescingOptions& options = {});
    /// If end() has not been called: launches the calls, waits for them, and throws their errors. While an exception
    /// unwinds the scope: drops the calls.
    ~Coalescing() noexcept(false);
    Coalescing(const Coalescing&) = delete;
    Coalescing& operator=(const Coalescing&) = delete;
    /// Launches the collected calls; later calls run as usual. The Work's result() has the tensors of all calls, in
    /// order. Returns an empty Work if this rank is not in the group; throws InvalidArgument when called twice.
    [[nodiscard]] Work end();

 private:
    std::unique_ptr<detail::CollectedCalls> calls_;
    int exceptions_;
};

/// all_reduce of each tensor.
TUTTI_API void all_reduce_coalesced(const TensorList& tensors, const AllReduceOptions& options = {});
/// all_gather of each input: output_lists[rank][i] becomes that rank's input_list[i].
TUTTI_API void all_gather_coalesced(const std::vector<TensorList>& output_lists, const ConstTensorList& input_list,
                                    const CollectiveOptions& options = {});
/// all_gather_into_tensor of each pair.
TUTTI_API void all_gather_into_tensor_coalesced(const TensorList& outputs, const ConstTensorList& inputs,
                                                const CollectiveOptions& options = {});
/// reduce_scatter_tensor of each pair.
TUTTI_API void reduce_scatter_tensor_coalesced(const TensorList& outputs, const ConstTensorList& inputs,
                                               const ReduceScatterOptions& options = {});

namespace async {

#define TUTTI_OR_NONE = {}
#define TUTTI_COALESCED_FUNCTION(name, collective, function, tensors, Options, ...) \
    [[nodiscard]] TUTTI_API Work name(TUTTI_PARAMETERS_##tensors(Options));
#include <tutti/collectives.def>
#undef TUTTI_OR_NONE

}  // namespace async

}  // namespace tutti
