"""hfai.distributed: torch.distributed's functions, of which gather and broadcast take objects, and a little more.

Where hfai has no group or async_op yet, they work here. Follows hfai.distributed.
"""
from __future__ import annotations

from datetime import timedelta
from typing import Any, Callable, Literal, overload

from .. import distributed as _dist
from ..distributed import (
    all_gather, all_reduce, barrier, destroy_process_group, get_rank, get_world_size, is_initialized, new_group,
    reduce_scatter,
)
from ..distributed._arguments import Array, Group
from ..errors import InvalidArgument
from .asynchronous import ObjectWork, begin
from .tuning import HFAI_NCCL_OPT_LEVEL, set_nccl_opt_level

__all__ = ["HFAI_NCCL_OPT_LEVEL", "HF_ZMQ_BACKEND", "ObjectWork", "all_gather", "all_reduce", "barrier", "broadcast", "destroy_process_group", "gather",
           "get_rank", "get_world_size", "init_process_group", "is_initialized", "new_group", "pairwise_apply",
           "reduce_scatter", "set_nccl_opt_level"]

HF_ZMQ_BACKEND = "hf_zmq"


def init_process_group(backend: str, init_method: str | None = None, timeout: timedelta = timedelta(seconds=1800),
                       world_size: int = -1, rank: int = -1, store: Any = None, group_name: str = "",
                       pg_options: Any = None) -> None:
    """torch.distributed's, and the backend over ZeroMQ: HF_ZMQ_BACKEND, or "hf_barrier"."""
    _dist.init_process_group(backend, init_method, timeout, world_size, rank, store, group_name, pg_options)


@overload
def gather(obj: Any, gather_list: list[Any] | None = ..., dst: int = ..., group: Group = ...,
           async_op: Literal[False] = ...) -> None: ...
@overload
def gather(obj: Any, gather_list: list[Any] | None = ..., dst: int = ..., group: Group = ...,
           async_op: Literal[True] = ...) -> ObjectWork: ...
@overload
def gather(obj: Any, gather_list: list[Any] | None = ..., dst: int = ..., group: Group = ...,
           async_op: bool = ...) -> ObjectWork | None: ...
def gather(obj: Any, gather_list: list[Any] | None = None, dst: int = 0, group: Group = None,
           async_op: bool = False) -> ObjectWork | None:
    """gather_list[i] becomes rank i's object, on rank `dst`; None elsewhere. With `async_op` the call returns a handle;
    the object and the list must not be touched until it is complete."""
    def run(of: Group) -> list[Any]:
        _dist.gather_object(obj, gather_list, dst, of)
        return gather_list or []

    if async_op:
        return begin(group, run)
    run(group)
    return None


@overload
def broadcast(objs: list[Any], src: int = ..., group: Group = ..., async_op: Literal[False] = ...) -> None: ...
@overload
def broadcast(objs: list[Any], src: int = ..., group: Group = ..., async_op: Literal[True] = ...) -> ObjectWork: ...
@overload
def broadcast(objs: list[Any], src: int = ..., group: Group = ..., async_op: bool = ...) -> ObjectWork | None: ...
def broadcast(objs: list[Any], src: int = 0, group: Group = None, async_op: bool = False) -> ObjectWork | None:
    """Every rank's list becomes that of rank `src`; the lengths must be equal. `async_op` as in gather()."""
    def run(of: Group) -> list[Any]:
        _dist.broadcast_object_list(objs, src, of)
        return objs

    if async_op:
        return begin(group, run)
    run(group)
    return None


# From arrays of so many bytes on f works on those that have come while others are on their way: bench/python/pairwise.py.
OVERLAPS_FROM = 1 << 20


def pairwise_apply(f: Callable[..., Any], x: Array, args: tuple[Any, ...] = (), group: Group = None,
                   equal_size: bool = False) -> list[Any]:
    """[f(x, y, *args) for the x of every rank], by rank. The shapes may differ, the number of dimensions may not; with
    `equal_size` they may not either. The y are NumPy arrays. Where all are short, f is called in the order of ranks. Where
    the longest has 1 MiB or more, f works on arrays that have come while the next is on its way: on this rank's own first,
    then on that of the rank before it, and so on."""
    import numpy

    device = x.__dlpack_device__() if hasattr(x, "__dlpack_device__") else (1, 0)
    if int(device[0]) not in (1, 3, 11):  # DLPack's numbers of what is the host's
        raise InvalidArgument(f"pairwise_apply: x is on a device (DLPack's type {int(device[0])}): expected host memory, as "
                              "what f gets are NumPy arrays")
    mine: Any = numpy.asarray(x)
    mine = numpy.ascontiguousarray(mine) if mine.ndim else mine
    n, me = get_world_size(group), get_rank(group)
    shapes: list[Any] = [None] * n
    _dist.all_gather_object(shapes, (mine.shape, mine.dtype), group)
    for rank, (shape, dtype) in enumerate(shapes):
        if dtype != mine.dtype or len(shape) != mine.ndim or (equal_size and shape != mine.shape):
            raise InvalidArgument(f"pairwise_apply: x of rank {rank} is {dtype}{list(shape)}: expected one like "
                                  f"{mine.dtype}{list(mine.shape)}")
    others = [numpy.empty(shape, mine.dtype) for shape, _ in shapes]
    if max(other.nbytes for other in others) < OVERLAPS_FROM:
        all_gather(others, mine, group)
        return [f(x, other, *args) for other in others]
    # Step k takes every array k ranks on, on all links in both directions.
    coming: dict[int, Any] = {}
    for step in range(1, n):
        source, target = (me - step) % n, (me + step) % n
        coming[source] = _dist.all_to_all_v(
            others[source], mine, send_counts=[mine.size * (rank == target) for rank in range(n)],
            receive_counts=[others[source].size * (rank == source) for rank in range(n)], group=group, async_op=True)
    numpy.copyto(others[me], mine)
    results: list[Any] = [None] * n
    for step in range(n):
        rank = (me - step) % n
        if work := coming.get(rank):
            work.wait()
        results[rank] = f(x, others[rank], *args)
    return results
