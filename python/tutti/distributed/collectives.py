"""The collectives: torch.distributed's, in its order of arguments.

Common to all. A tensor is a NumPy array, or anything with the buffer protocol or DLPack, of any shape and strides; or, where
a backend of the group serves it, on a device and in one piece, and the operation is put in its library's current stream: a
blocking call returns when it is there, and the stream waits for it (docs/devices.md). Dtypes and element counts must agree
between ranks, shapes need not. `group`: None is the default group; a DeviceMesh of one dimension will do. `src`, `dst` are
global ranks, `group_src`, `group_dst` ranks in the group; never both. With `async_op` the call returns a Work at once, and
the arrays must not be touched until it is complete; otherwise it blocks and returns None. Outside the group it returns None
and does nothing but warn (UserWarning). `timeout`: of this call; None or zero is the group's.

Errors: InvalidArgument before anything is sent; CollectiveMismatch, PeerLost, Timeout, Aborted on every rank, and the
group is unusable afterwards. Ctrl-C ends a blocking call within 100 ms, and with it the group; Work.wait() can be called
again. Threads: collectives of one group are issued in the same order on all ranks.
"""
from __future__ import annotations

from .exchanges import all_to_all, all_to_all_single, all_to_all_v, barrier, monitored_barrier
from .gathers import (
    all_gather, all_gather_coalesced, all_gather_into_tensor, all_gather_into_tensor_coalesced,
    all_gather_into_tensor_uneven, all_gather_v, broadcast, gather, gather_v, scatter, scatter_v,
)
from .reductions import (
    all_reduce, all_reduce_coalesced, exscan, reduce, reduce_scatter, reduce_scatter_tensor, reduce_scatter_tensor_coalesced,
    reduce_scatter_tensor_uneven, reduce_scatter_v, scan,
)

__all__ = [
    "all_gather", "all_gather_coalesced", "all_gather_into_tensor", "all_gather_into_tensor_coalesced",
    "all_gather_into_tensor_uneven", "all_gather_v", "all_reduce", "all_reduce_coalesced", "all_to_all", "all_to_all_single",
    "all_to_all_v", "barrier", "broadcast", "exscan", "gather", "gather_v", "monitored_barrier", "reduce", "reduce_scatter",
    "reduce_scatter_tensor", "reduce_scatter_tensor_coalesced", "reduce_scatter_tensor_uneven", "reduce_scatter_v", "scan",
    "scatter", "scatter_v",
]
