// The quick way of short collectives between ranks of one host: no Operation, no memory, no clock. Each function does
// the whole call and returns true, or returns false and has done nothing: then the ordinary way (request.hpp) serves
// it, or reports its error. Both ways exchange the same messages, so ranks may differ in which one they take.
//
// Threads: any.
#pragma once

#include <tutti/distributed.hpp>

namespace tutti::api::quick {

bool all_reduce(const TensorView& tensor, const AllReduceOptions& options);
bool broadcast(const TensorView& tensor, const BroadcastOptions& options);
bool reduce(const TensorView& tensor, const ReduceOptions& options);
bool all_gather_into_tensor(const TensorView& output, const ConstTensorView& input, const CollectiveOptions& options);
bool gather(const ConstTensorView& tensor, const TensorList& outputs, const GatherOptions& options);
bool scatter(const TensorView& tensor, const ConstTensorList& inputs, const ScatterOptions& options);
bool reduce_scatter_tensor(const TensorView& output, const ConstTensorView& input, const ReduceScatterOptions& options);
bool all_to_all_single(const TensorView& output, const ConstTensorView& input, const AllToAllSingleOptions& options);
bool all_to_all(const TensorList& outputs, const ConstTensorList& inputs, const CollectiveOptions& options);
bool all_to_all_v(const TensorView& output, const ConstTensorView& input, const AllToAllVOptions& options);
bool barrier(const BarrierOptions& options);

}  // namespace tutti::api::quick
