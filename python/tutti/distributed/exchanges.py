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
    """Sends block i of `input` to rank i; `output` gets the blocks that come, in rank order.

    Args:
        output: all that comes to this rank, along dimension 0.
        input: all that this rank sends, along dimension 0.
        output_split_sizes: rows (along dimension 0) that come from each rank; None: equal blocks.
        input_split_sizes: rows that go to each rank; None: equal blocks.
        group: the ranks that take part; None: the default group.
        async_op: return a Work at once; no array may be touched before it is complete.
        timeout: of this call; None or zero: the group's.

    Returns:
        A Work with `async_op`; otherwise None, as outside of the group (with a UserWarning).

    Raises:
        InvalidArgument: before anything is sent; the group stays usable.
        CollectiveMismatch, PeerLost, Timeout, Aborted: on every rank; the group is unusable afterwards.

    Example:
        >>> n = dist.get_world_size()
        >>> output = np.empty((n, 3))
        >>> dist.all_to_all_single(output, np.ones((n, 3)))
    """
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
    """input_tensor_list[i] goes to rank i, output_tensor_list[j] comes from rank j.

    Args:
        output_tensor_list: size() arrays; entry j has as many elements as what rank j sends here.
        input_tensor_list: size() arrays.
        group: the ranks that take part; None: the default group.
        async_op: return a Work at once; no array may be touched before it is complete.
        timeout: of this call; None or zero: the group's.

    Returns:
        A Work with `async_op`; otherwise None, as outside of the group (with a UserWarning).

    Raises:
        InvalidArgument: before anything is sent; the group stays usable.
        CollectiveMismatch, PeerLost, Timeout, Aborted: on every rank; the group is unusable afterwards.

    Example:
        >>> n = dist.get_world_size()
        >>> outputs = [np.empty(2) for _ in range(n)]
        >>> dist.all_to_all(outputs, [np.ones(2) for _ in range(n)])
    """
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
    elements that rank j sends at `receive_offsets[j]` of `output`. As MPI_Alltoallv.

    Counts and offsets are elements of the flattened arrays. Blocks come in any order, with gaps, or empty; blocks of
    `output` must not overlap, and its other elements keep their values.

    Args:
        output: where blocks go that come.
        input: where blocks are that this rank sends.
        send_counts: one for each rank; None: equal blocks that cover `input`.
        send_offsets: None: one block after the other.
        receive_counts: one for each rank; None: equal blocks that cover `output`.
        receive_offsets: None: one block after the other.
        group: the ranks that take part; None: the default group.
        async_op: return a Work at once; no array may be touched before it is complete.
        timeout: of this call; None or zero: the group's.

    Returns:
        A Work with `async_op`; otherwise None, as outside of the group (with a UserWarning).

    Raises:
        InvalidArgument: before anything is sent; the group stays usable.
        CollectiveMismatch, PeerLost, Timeout, Aborted: on every rank; the group is unusable afterwards.

    Example:
        >>> n = dist.get_world_size()
        >>> output = np.zeros(2 * n)
        >>> dist.all_to_all_v(output, np.ones(n), send_counts=[1] * n, receive_counts=[1] * n,
        ...                   receive_offsets=[2 * i for i in range(n)])
        >>> output[:2]
        array([1., 0.])
    """
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
    """Returns when every rank has entered; with `async_op` its Work's wait() does. In a group that serves only a device it
    comes after what is in the current stream.

    Args:
        group: the ranks that take part; None: the default group.
        async_op: return a Work at once; no array may be touched before it is complete.
        device_ids: accepted, ignored.
        timeout: of this call; None or zero: the group's.

    Returns:
        A Work with `async_op`; otherwise None, as outside of the group (with a UserWarning).

    Raises:
        InvalidArgument: before anything is sent; the group stays usable.
        CollectiveMismatch, PeerLost, Timeout, Aborted: on every rank; the group is unusable afterwards.

    Example:
        >>> dist.barrier()
    """
    return _core.barrier(device_ids, group, async_op, timeout)


def monitored_barrier(group: Group = None, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
    """A barrier that tells which ranks did not come.

    Args:
        group: the ranks that take part; None: the default group.
        timeout: how long rank 0 waits for the others; None: the group's.
        wait_all_ranks: name all ranks that did not come, not only the first.

    Raises:
        DistBackendError: on every rank; on rank 0 "Rank R failed to pass monitoredBarrier in M ms".

    Example:
        >>> dist.monitored_barrier(timeout=timedelta(seconds=10))
    """
    _core.monitored_barrier(group, timeout, wait_all_ranks)
