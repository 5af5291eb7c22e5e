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

from datetime import timedelta
from typing import Any

from .. import _core
from .._core import DeviceMesh, ProcessGroup, ReduceOp, Work

__all__ = [
    "all_gather", "all_gather_coalesced", "all_gather_into_tensor", "all_gather_into_tensor_coalesced",
    "all_gather_into_tensor_uneven", "all_reduce", "all_reduce_coalesced", "all_to_all", "all_to_all_single", "all_to_all_v",
    "barrier", "broadcast", "exscan", "gather", "monitored_barrier", "reduce", "reduce_scatter", "reduce_scatter_tensor",
    "reduce_scatter_tensor_coalesced", "reduce_scatter_tensor_uneven", "scan", "scatter",
]

Group = ProcessGroup | DeviceMesh | None
# A Work with async_op; None without it, and outside the group. The caller knows which, so a type checker lets it use either.
Issued = Work | Any


def broadcast(tensor: Any, src: int | None = None, group: Group = None, async_op: bool = False,
              group_src: int | None = None, *, timeout: timedelta | None = None) -> Issued:
    """Copies the root's `tensor` into everyone's. Exactly one of `src` and `group_src`."""
    return _core.broadcast(tensor, src, group_src, group, async_op, timeout)


def all_reduce(tensor: Any, op: ReduceOp = ReduceOp.SUM, group: Group = None, async_op: bool = False, *,
               timeout: timedelta | None = None) -> Issued:
    """Combines `tensor` over all ranks, element by element, in place; the same bits everywhere."""
    return _core.all_reduce(tensor, op, group, async_op, timeout)


def reduce(tensor: Any, dst: int | None = None, op: ReduceOp = ReduceOp.SUM, group: Group = None,
           async_op: bool = False, group_dst: int | None = None, *, timeout: timedelta | None = None) -> Issued:
    """As all_reduce, but only the root's `tensor` gets the result; the others' stay as they are."""
    return _core.reduce(tensor, dst, group_dst, op, group, async_op, timeout)


def scan(tensor: Any, op: ReduceOp = ReduceOp.SUM, group: Group = None, async_op: bool = False, *,
         timeout: timedelta | None = None) -> Issued:
    """Prefix (MPI_Scan): `tensor` becomes the combination of those of ranks 0, 1, … up to this one, element by element, in
    place and in the order of ranks. ReduceOp.AVG is refused."""
    return _core.scan(tensor, op, group, async_op, timeout)


def exscan(tensor: Any, op: ReduceOp = ReduceOp.SUM, group: Group = None, async_op: bool = False, *,
           timeout: timedelta | None = None) -> Issued:
    """As scan, without this rank's own values (MPI_Exscan): the combination of those of the ranks before it. Rank 0, which has
    none before it, keeps its `tensor` as it was."""
    return _core.exscan(tensor, op, group, async_op, timeout)


def all_gather(tensor_list: list[Any], tensor: Any, group: Group = None, async_op: bool = False, *,
               timeout: timedelta | None = None) -> Issued:
    """tensor_list[i] becomes rank i's `tensor`; element counts may differ between ranks."""
    return _core.all_gather(tensor_list, tensor, group, async_op, timeout)


def all_gather_into_tensor(output_tensor: Any, input_tensor: Any, group: Group = None, async_op: bool = False, *,
                           output_split_sizes: list[int] | None = None, timeout: timedelta | None = None) -> Issued:
    """All inputs one after the other, concatenated or stacked: the output has size() times the input's elements. With
    `output_split_sizes` it is all_gather_into_tensor_uneven."""
    if output_split_sizes is not None:
        return all_gather_into_tensor_uneven(output_tensor, input_tensor, output_split_sizes, group, async_op,
                                             timeout=timeout)
    return _core.all_gather_into_tensor(output_tensor, input_tensor, group, async_op, timeout)


def all_gather_into_tensor_uneven(output: Any, input: Any, output_split_sizes: list[int] | None = None,
                                  group: Group = None, async_op: bool = False, *,
                                  timeout: timedelta | None = None) -> Issued:
    """All inputs one after the other, along dimension 0, of which rank i's has output_split_sizes[i] rows (on all ranks the
    same sizes; zero is allowed). None: every rank tells its rows, by one more small all_gather; where nothing can be asked,
    with `async_op` and while calls are coalesced, the rows are even."""
    return _core.all_gather_into_tensor_uneven(output, input, output_split_sizes, group, async_op, timeout)


def gather(tensor: Any, gather_list: list[Any] | None = None, dst: int | None = None, group: Group = None,
           async_op: bool = False, group_dst: int | None = None, *, timeout: timedelta | None = None) -> Issued:
    """gather_list[i] becomes rank i's `tensor` on the root (default: global rank 0); None elsewhere. Equal counts."""
    return _core.gather(tensor, gather_list, dst, group_dst, group, async_op, timeout)


def scatter(tensor: Any, scatter_list: list[Any] | None = None, src: int | None = None, group: Group = None,
            async_op: bool = False, group_src: int | None = None, *, timeout: timedelta | None = None) -> Issued:
    """`tensor` becomes the root's scatter_list[rank] (root: global rank 0 by default); None elsewhere. Equal counts."""
    return _core.scatter(tensor, scatter_list, src, group_src, group, async_op, timeout)


def reduce_scatter(output: Any, input_list: list[Any], op: ReduceOp = ReduceOp.SUM, group: Group = None,
                   async_op: bool = False, *, timeout: timedelta | None = None) -> Issued:
    """`output` becomes the combination of all ranks' input_list[rank]; counts may differ between entries."""
    return _core.reduce_scatter(output, input_list, op, group, async_op, timeout)


def reduce_scatter_tensor(output: Any, input: Any, op: ReduceOp = ReduceOp.SUM, group: Group = None,
                          async_op: bool = False, *, input_split_sizes: list[int] | None = None,
                          timeout: timedelta | None = None) -> Issued:
    """As reduce_scatter with one input of size() equal blocks. With `input_split_sizes` it is
    reduce_scatter_tensor_uneven."""
    if input_split_sizes is not None:
        return reduce_scatter_tensor_uneven(output, input, input_split_sizes, op, group, async_op, timeout=timeout)
    return _core.reduce_scatter_tensor(output, input, op, group, async_op, timeout)


def reduce_scatter_tensor_uneven(output: Any, input: Any, input_split_sizes: list[int] | None = None,
                                 op: ReduceOp = ReduceOp.SUM, group: Group = None, async_op: bool = False, *,
                                 timeout: timedelta | None = None) -> Issued:
    """As reduce_scatter with one input, of which rank i gets the i-th block of input_split_sizes[i] rows (on all ranks the
    same sizes). None: as all_gather_into_tensor_uneven's, from the rows of every rank's `output`."""
    return _core.reduce_scatter_tensor_uneven(output, input, input_split_sizes, op, group, async_op, timeout)


def all_to_all_single(output: Any, input: Any, output_split_sizes: list[int] | None = None,
                      input_split_sizes: list[int] | None = None, group: Group = None, async_op: bool = False, *,
                      timeout: timedelta | None = None) -> Issued:
    """Sends block i of `input` (split along dimension 0, evenly by default) to rank i; `output` gets the blocks in rank
    order."""
    return _core.all_to_all_single(output, input, output_split_sizes, input_split_sizes, group, async_op, timeout)


def all_to_all(output_tensor_list: list[Any], input_tensor_list: list[Any], group: Group = None, async_op: bool = False,
               *, timeout: timedelta | None = None) -> Issued:
    """input_tensor_list[i] goes to rank i, output_tensor_list[j] comes from rank j; sizes match pairwise."""
    return _core.all_to_all(output_tensor_list, input_tensor_list, group, async_op, timeout)


def all_to_all_v(output: Any, input: Any, *, send_counts: list[int] | None = None, send_offsets: list[int] | None = None,
                 receive_counts: list[int] | None = None, receive_offsets: list[int] | None = None, group: Group = None,
                 async_op: bool = False, timeout: timedelta | None = None) -> Issued:
    """Sends to each rank i the `send_counts[i]` elements at `send_offsets[i]` of `input`, and puts the `receive_counts[j]`
    elements that rank j sends at `receive_offsets[j]` of `output`. Counts and offsets are elements of the flattened arrays.
    Blocks come in any order, with gaps, or empty; blocks of `output` must not overlap, and its other elements keep their
    values. No counts: equal blocks that cover the array. No offsets: one block after the other. As MPI_Alltoallv."""
    return _core.all_to_all_v(output, input, send_counts, send_offsets, receive_counts, receive_offsets, group, async_op,
                              timeout)


def barrier(group: Group = None, async_op: bool = False, device_ids: list[int] | None = None, *,
            timeout: timedelta | None = None) -> Issued:
    """Returns when every rank has entered; with `async_op` its Work's wait() does. `device_ids` are ignored. In a group that
    serves only a device it comes after what is in the current stream."""
    return _core.barrier(device_ids, group, async_op, timeout)


def monitored_barrier(group: Group = None, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
    """A barrier that tells which ranks did not come: the first, or with `wait_all_ranks` all. DistBackendError on every
    rank: "Rank R failed to pass monitoredBarrier in M ms" on rank 0."""
    _core.monitored_barrier(group, timeout, wait_all_ranks)


def all_reduce_coalesced(tensors: list[Any], op: ReduceOp = ReduceOp.SUM, group: Group = None, async_op: bool = False,
                         *, timeout: timedelta | None = None) -> Issued:
    """all_reduce of each array, in one launch."""
    return _core.all_reduce_coalesced(tensors, op, group, async_op, timeout)


def all_gather_coalesced(output_tensor_lists: list[list[Any]], input_tensor_list: list[Any], group: Group = None,
                         async_op: bool = False, *, timeout: timedelta | None = None) -> Issued:
    """all_gather of each input, in one launch: output_tensor_lists[rank][i] becomes that rank's input i."""
    return _core.all_gather_coalesced(output_tensor_lists, input_tensor_list, group, async_op, timeout)


def all_gather_into_tensor_coalesced(output_tensor_list: list[Any], input_tensor_list: list[Any], group: Group = None,
                                     async_op: bool = False, *, timeout: timedelta | None = None) -> Issued:
    """all_gather_into_tensor of each pair, in one launch."""
    return _core.all_gather_into_tensor_coalesced(output_tensor_list, input_tensor_list, group, async_op, timeout)


def reduce_scatter_tensor_coalesced(output_tensor_list: list[Any], input_tensor_list: list[Any],
                                    op: ReduceOp = ReduceOp.SUM, group: Group = None, async_op: bool = False, *,
                                    timeout: timedelta | None = None) -> Issued:
    """reduce_scatter_tensor of each pair, in one launch."""
    return _core.reduce_scatter_tensor_coalesced(output_tensor_list, input_tensor_list, op, group, async_op, timeout)
