"""Collectives in which every rank has something for every other, and barriers. The rest is said in collectives.py."""
from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Literal, overload

from .. import _core
from .._core import Work
from ._arguments import Array, Group

__all__ = [
    "all_to_all", "all_to_all_single", "all_to_all_v", "barrier", "monitored_barrier",
]


@overload
def all_to_all_single(output: Array, input: Array, output_split_sizes: list[int] | None = ...,
                      input_split_sizes: list[int] | None = ..., group: Group = ..., async_op: Literal[False] = ..., *,
                      timeout: timedelta | None = ...) -> None: ...
@overload
def all_to_all_single(output: Array, input: Array, output_split_sizes: list[int] | None = ...,
                      input_split_sizes: list[int] | None = ..., group: Group = ..., async_op: Literal[True] = ..., *,
                      timeout: timedelta | None = ...) -> Work: ...
@overload
def all_to_all_single(output: Array, input: Array, output_split_sizes: list[int] | None = ...,
                      input_split_sizes: list[int] | None = ..., group: Group = ..., async_op: bool = ..., *,
                      timeout: timedelta | None = ...) -> Work | None: ...
def all_to_all_single(output: Array, input: Array, output_split_sizes: list[int] | None = None,
                      input_split_sizes: list[int] | None = None, group: Group = None, async_op: bool = False, *,
                      timeout: timedelta | None = None) -> Work | None:
    """Sends block i of `input` (split along dimension 0, evenly by default) to rank i; `output` gets the blocks in rank
    order."""
    return _core.all_to_all_single(output, input, output_split_sizes, input_split_sizes, group, async_op, timeout)


@overload
def all_to_all(output_tensor_list: Sequence[Array], input_tensor_list: Sequence[Array], group: Group = ...,
               async_op: Literal[False] = ..., *, timeout: timedelta | None = ...) -> None: ...
@overload
def all_to_all(output_tensor_list: Sequence[Array], input_tensor_list: Sequence[Array], group: Group = ...,
               async_op: Literal[True] = ..., *, timeout: timedelta | None = ...) -> Work: ...
@overload
def all_to_all(output_tensor_list: Sequence[Array], input_tensor_list: Sequence[Array], group: Group = ...,
               async_op: bool = ..., *, timeout: timedelta | None = ...) -> Work | None: ...
def all_to_all(output_tensor_list: Sequence[Array], input_tensor_list: Sequence[Array], group: Group = None,
               async_op: bool = False, *, timeout: timedelta | None = None) -> Work | None:
    """input_tensor_list[i] goes to rank i, output_tensor_list[j] comes from rank j; sizes match pairwise."""
    return _core.all_to_all(output_tensor_list, input_tensor_list, group, async_op, timeout)


@overload
def all_to_all_v(output: Array, input: Array, *, send_counts: list[int] | None = ...,
                 send_offsets: list[int] | None = ..., receive_counts: list[int] | None = ...,
                 receive_offsets: list[int] | None = ..., group: Group = ..., async_op: Literal[False] = ...,
                 timeout: timedelta | None = ...) -> None: ...
@overload
def all_to_all_v(output: Array, input: Array, *, send_counts: list[int] | None = ...,
                 send_offsets: list[int] | None = ..., receive_counts: list[int] | None = ...,
                 receive_offsets: list[int] | None = ..., group: Group = ..., async_op: Literal[True] = ...,
                 timeout: timedelta | None = ...) -> Work: ...
@overload
def all_to_all_v(output: Array, input: Array, *, send_counts: list[int] | None = ...,
                 send_offsets: list[int] | None = ..., receive_counts: list[int] | None = ...,
                 receive_offsets: list[int] | None = ..., group: Group = ..., async_op: bool = ...,
                 timeout: timedelta | None = ...) -> Work | None: ...
def all_to_all_v(output: Array, input: Array, *, send_counts: list[int] | None = None,
                 send_offsets: list[int] | None = None, receive_counts: list[int] | None = None,
                 receive_offsets: list[int] | None = None, group: Group = None, async_op: bool = False,
                 timeout: timedelta | None = None) -> Work | None:
    """Sends to each rank i the `send_counts[i]` elements at `send_offsets[i]` of `input`, and puts the `receive_counts[j]`
    elements that rank j sends at `receive_offsets[j]` of `output`. Counts and offsets are elements of the flattened arrays.
    Blocks come in any order, with gaps, or empty; blocks of `output` must not overlap, and its other elements keep their
    values. No counts: equal blocks that cover the array. No offsets: one block after the other. As MPI_Alltoallv."""
    return _core.all_to_all_v(output, input, send_counts, send_offsets, receive_counts, receive_offsets, group, async_op,
                              timeout)


@overload
def barrier(group: Group = ..., async_op: Literal[False] = ..., device_ids: list[int] | None = ..., *,
            timeout: timedelta | None = ...) -> None: ...
@overload
def barrier(group: Group = ..., async_op: Literal[True] = ..., device_ids: list[int] | None = ..., *,
            timeout: timedelta | None = ...) -> Work: ...
@overload
def barrier(group: Group = ..., async_op: bool = ..., device_ids: list[int] | None = ..., *,
            timeout: timedelta | None = ...) -> Work | None: ...
def barrier(group: Group = None, async_op: bool = False, device_ids: list[int] | None = None, *,
            timeout: timedelta | None = None) -> Work | None:
    """Returns when every rank has entered; with `async_op` its Work's wait() does. `device_ids` are ignored. In a group that
    serves only a device it comes after what is in the current stream."""
    return _core.barrier(device_ids, group, async_op, timeout)


def monitored_barrier(group: Group = None, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
    """A barrier that tells which ranks did not come: the first, or with `wait_all_ranks` all. DistBackendError on every
    rank: "Rank R failed to pass monitoredBarrier in M ms" on rank 0."""
    _core.monitored_barrier(group, timeout, wait_all_ranks)
