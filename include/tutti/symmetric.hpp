// Symmetric memory: tensors whose pages all ranks of a host map, so that collectives read and write them in place,
// without a copy to a staging area.
#pragma once

#include <tutti/distributed.hpp>
#include <tutti/export.hpp>
#include <tutti/tensor.hpp>

namespace tutti {

/// Allocates a tensor of this rank, contiguous, page-aligned and zeroed, in memory that the other ranks of its host map
/// too.
///
/// It is an ordinary tensor in every other respect: any collective, send or receive of any group takes it, whole or in
/// part (views), and results are the same. Operations of `group` move its elements without an intermediate copy; large
/// tensors gain most, in reductions, gathers and broadcasts. A rank's symmetric buffers make its operations faster
/// whatever buffers the others use, and most when all are symmetric.
///
/// A collective call: all ranks of the group call it in the same order, with equal dtype and element count.
/// options  the group (default: the default group) and the timeout of this call.
/// returns  the tensor. Copies share it; the memory is freed when the last copy on the last rank of the host is
///          destroyed (memory of a rank that died: when the others leave the group). No file appears in a file system.
///          On a host with one rank, and in a group without shared memory, it is ordinary memory.
/// errors   InvalidArgument; CollectiveMismatch if dtypes or counts differ; DistBackendError on all ranks if one rank
///          cannot get the memory; PeerLost, Timeout, Aborted.
/// threads  as for collectives. A forked child maps the same pages as its parent and sees its writes.
/// cost     two small collectives, and a connection from each rank to the lowest of its host: allocate once, use often.
/// source   OpenSHMEM 1.5, symmetric data objects; torch.distributed._symmetric_memory.
TUTTI_API Tensor empty_symmetric(DType dtype, Extents shape, const CollectiveOptions& options = {});

}  // namespace tutti
