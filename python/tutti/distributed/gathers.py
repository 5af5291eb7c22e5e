"""Collectives that hand out what one rank has, or bring together what all have. The rest is said in collectives.py."""
from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Literal, overload

from .. import _core
from .._core import Work
from ._arguments import Array, Group

__all__ = [
    "all_gather", "all_gather_coalesced", "all_gather_into_tensor", "all_gather_into_tensor_coalesced",
    "all_gather_into_tensor_uneven", "broadcast", "gather", "scatter",
]


@overload
def broadcast(tensor: Array, src: int | None = ..., group: Group = ..., async_op: Literal[False] = ...,
              group_src: int | None = ..., *, timeout: timedelta | None = ...) -> None: ...
@overload
def broadcast(tensor: Array, src: int | None = ..., group: Group = ..., async_op: Literal[True] = ...,
              group_src: int | None = ..., *, timeout: timedelta | None = ...) -> Work: ...
@overload
def broadcast(tensor: Array, src: int | None = ..., group: Group = ..., async_op: bool = ...,
              group_src: int | None = ..., *, timeout: timedelta | None = ...) -> Work | None: ...
def broadcast(tensor: Array, src: int | None = None, group: Group = None, async_op: bool = False,
              group_src: int | None = None, *, timeout: timedelta | None = None) -> Work | None:
    """Copies the root's `tensor` into everyone's.

    Args:
        tensor: the values on the root; elsewhere they are overwritten. The same dtype and number of elements.
        src: global rank of the root. Exactly one of `src` and `group_src`.
        group: the ranks that take part; None: the default group.
        async_op: return a Work at once; no array may be touched before it is complete.
        group_src: the root's rank in the group, instead of `src`.
        timeout: of this call; None or zero: the group's.

    Returns:
        A Work with `async_op`; otherwise None, as outside of the group (with a UserWarning).

    Raises:
        InvalidArgument: before anything is sent; the group stays usable.
        CollectiveMismatch, PeerLost, Timeout, Aborted: on every rank; the group is unusable afterwards.

    Example:
        >>> weights = np.zeros(3)
        >>> dist.broadcast(weights, src=0)
    """
    return _core.broadcast(tensor, src, group_src, group, async_op, timeout)


@overload
def all_gather(tensor_list: Sequence[Array], tensor: Array, group: Group = ..., async_op: Literal[False] = ..., *,
               timeout: timedelta | None = ...) -> None: ...
@overload
def all_gather(tensor_list: Sequence[Array], tensor: Array, group: Group = ..., async_op: Literal[True] = ..., *,
               timeout: timedelta | None = ...) -> Work: ...
@overload
def all_gather(tensor_list: Sequence[Array], tensor: Array, group: Group = ..., async_op: bool = ..., *,
               timeout: timedelta | None = ...) -> Work | None: ...
def all_gather(tensor_list: Sequence[Array], tensor: Array, group: Group = None, async_op: bool = False, *,
               timeout: timedelta | None = None) -> Work | None:
    """tensor_list[i] becomes rank i's `tensor`.

    Args:
        tensor_list: size() arrays; entry i has as many elements as rank i's `tensor`.
        tensor: what this rank gives; numbers of elements may differ between ranks.
        group: the ranks that take part; None: the default group.
        async_op: return a Work at once; no array may be touched before it is complete.
        timeout: of this call; None or zero: the group's.

    Returns:
        A Work with `async_op`; otherwise None, as outside of the group (with a UserWarning).

    Raises:
        InvalidArgument: before anything is sent; the group stays usable.
        CollectiveMismatch, PeerLost, Timeout, Aborted: on every rank; the group is unusable afterwards.

    Example:
        >>> everyone = [np.empty(2) for _ in range(dist.get_world_size())]
        >>> dist.all_gather(everyone, np.ones(2))
        >>> everyone[0]
        array([1., 1.])
    """
    return _core.all_gather(tensor_list, tensor, group, async_op, timeout)


@overload
def all_gather_into_tensor(output_tensor: Array, input_tensor: Array, group: Group = ...,
                           async_op: Literal[False] = ..., *, output_split_sizes: list[int] | None = ...,
                           timeout: timedelta | None = ...) -> None: ...
@overload
def all_gather_into_tensor(output_tensor: Array, input_tensor: Array, group: Group = ..., async_op: Literal[True] = ...,
                           *, output_split_sizes: list[int] | None = ..., timeout: timedelta | None = ...) -> Work: ...
@overload
def all_gather_into_tensor(output_tensor: Array, input_tensor: Array, group: Group = ..., async_op: bool = ..., *,
                           output_split_sizes: list[int] | None = ...,
                           timeout: timedelta | None = ...) -> Work | None: ...
def all_gather_into_tensor(output_tensor: Array, input_tensor: Array, group: Group = None, async_op: bool = False, *,
                           output_split_sizes: list[int] | None = None,
                           timeout: timedelta | None = None) -> Work | None:
    """All inputs one after the other, in one array.

    Args:
        output_tensor: has size() times the input's elements: (size() * n, ...) concatenated, or (size(), n, ...) stacked.
        input_tensor: what this rank gives.
        group: the ranks that take part; None: the default group.
        async_op: return a Work at once; no array may be touched before it is complete.
        output_split_sizes: rows of each rank's input: with them it is all_gather_into_tensor_uneven.
        timeout: of this call; None or zero: the group's.

    Returns:
        A Work with `async_op`; otherwise None, as outside of the group (with a UserWarning).

    Raises:
        InvalidArgument: before anything is sent; the group stays usable.
        CollectiveMismatch, PeerLost, Timeout, Aborted: on every rank; the group is unusable afterwards.

    Example:
        >>> everyone = np.empty((dist.get_world_size(), 2))
        >>> dist.all_gather_into_tensor(everyone, np.ones(2))
    """
    if output_split_sizes is not None:
        return all_gather_into_tensor_uneven(output_tensor, input_tensor, output_split_sizes, group, async_op,
                                             timeout=timeout)
    return _core.all_gather_into_tensor(output_tensor, input_tensor, group, async_op, timeout)


@overload
def all_gather_into_tensor_uneven(output: Array, input: Array, output_split_sizes: list[int] | None = ...,
                                  group: Group = ..., async_op: Literal[False] = ..., *,
                                  timeout: timedelta | None = ...) -> None: ...
@overload
def all_gather_into_tensor_uneven(output: Array, input: Array, output_split_sizes: list[int] | None = ...,
                                  group: Group = ..., async_op: Literal[True] = ..., *,
                                  timeout: timedelta | None = ...) -> Work: ...
@overload
def all_gather_into_tensor_uneven(output: Array, input: Array, output_split_sizes: list[int] | None = ...,
                                  group: Group = ..., async_op: bool = ..., *,
                                  timeout: timedelta | None = ...) -> Work | None: ...
def all_gather_into_tensor_uneven(output: Array, input: Array, output_split_sizes: list[int] | None = None,
                                  group: Group = None, async_op: bool = False, *,
                                  timeout: timedelta | None = None) -> Work | None:
    """All inputs one after the other, along dimension 0.

    Args:
        output: of sum(output_split_sizes) rows.
        input: this rank's rows.
        output_split_sizes: rows of each rank's input, the same on all ranks; zero is allowed. None: every rank tells its
            rows, by one more small all_gather; where nothing can be asked, with `async_op` and while calls are coalesced,
            the rows are even.
        group: the ranks that take part; None: the default group.
        async_op: return a Work at once; no array may be touched before it is complete.
        timeout: of this call; None or zero: the group's.

    Returns:
        A Work with `async_op`; otherwise None, as outside of the group (with a UserWarning).

    Raises:
        InvalidArgument: before anything is sent; the group stays usable.
        CollectiveMismatch, PeerLost, Timeout, Aborted: on every rank; the group is unusable afterwards.

    Example:
        >>> rows = [2 + rank for rank in range(dist.get_world_size())]
        >>> everyone = np.empty((sum(rows), 3))
        >>> dist.all_gather_into_tensor_uneven(everyone, np.ones((rows[dist.get_rank()], 3)), rows)
    """
    return _core.all_gather_into_tensor_uneven(output, input, output_split_sizes, group, async_op, timeout)


@overload
def gather(tensor: Array, gather_list: Sequence[Array] | None = ..., dst: int | None = ..., group: Group = ...,
           async_op: Literal[False] = ..., group_dst: int | None = ..., *, timeout: timedelta | None = ...) -> None: ...
@overload
def gather(tensor: Array, gather_list: Sequence[Array] | None = ..., dst: int | None = ..., group: Group = ...,
           async_op: Literal[True] = ..., group_dst: int | None = ..., *, timeout: timedelta | None = ...) -> Work: ...
@overload
def gather(tensor: Array, gather_list: Sequence[Array] | None = ..., dst: int | None = ..., group: Group = ...,
           async_op: bool = ..., group_dst: int | None = ..., *, timeout: timedelta | None = ...) -> Work | None: ...
def gather(tensor: Array, gather_list: Sequence[Array] | None = None, dst: int | None = None, group: Group = None,
           async_op: bool = False, group_dst: int | None = None, *, timeout: timedelta | None = None) -> Work | None:
    """gather_list[i] becomes rank i's `tensor`, on the root.

    Args:
        tensor: what this rank gives; the same number of elements on all ranks.
        gather_list: on the root size() arrays; None elsewhere.
        dst: global rank of the root; by default 0.
        group: the ranks that take part; None: the default group.
        async_op: return a Work at once; no array may be touched before it is complete.
        group_dst: the root's rank in the group, instead of `dst`.
        timeout: of this call; None or zero: the group's.

    Returns:
        A Work with `async_op`; otherwise None, as outside of the group (with a UserWarning).

    Raises:
        InvalidArgument: before anything is sent; the group stays usable.
        CollectiveMismatch, PeerLost, Timeout, Aborted: on every rank; the group is unusable afterwards.

    Example:
        >>> parts = [np.empty(2) for _ in range(dist.get_world_size())] if dist.get_rank() == 0 else None
        >>> dist.gather(np.ones(2), parts, dst=0)
    """
    return _core.gather(tensor, gather_list, dst, group_dst, group, async_op, timeout)


@overload
def scatter(tensor: Array, scatter_list: Sequence[Array] | None = ..., src: int | None = ..., group: Group = ...,
            async_op: Literal[False] = ..., group_src: int | None = ..., *,
            timeout: timedelta | None = ...) -> None: ...
@overload
def scatter(tensor: Array, scatter_list: Sequence[Array] | None = ..., src: int | None = ..., group: Group = ...,
            async_op: Literal[True] = ..., group_src: int | None = ..., *, timeout: timedelta | None = ...) -> Work: ...
@overload
def scatter(tensor: Array, scatter_list: Sequence[Array] | None = ..., src: int | None = ..., group: Group = ...,
            async_op: bool = ..., group_src: int | None = ..., *, timeout: timedelta | None = ...) -> Work | None: ...
def scatter(tensor: Array, scatter_list: Sequence[Array] | None = None, src: int | None = None, group: Group = None,
            async_op: bool = False, group_src: int | None = None, *, timeout: timedelta | None = None) -> Work | None:
    """`tensor` becomes the root's scatter_list[rank].

    Args:
        tensor: gets this rank's part.
        scatter_list: on the root size() arrays of as many elements as `tensor`; None elsewhere.
        src: global rank of the root; by default 0.
        group: the ranks that take part; None: the default group.
        async_op: return a Work at once; no array may be touched before it is complete.
        group_src: the root's rank in the group, instead of `src`.
        timeout: of this call; None or zero: the group's.

    Returns:
        A Work with `async_op`; otherwise None, as outside of the group (with a UserWarning).

    Raises:
        InvalidArgument: before anything is sent; the group stays usable.
        CollectiveMismatch, PeerLost, Timeout, Aborted: on every rank; the group is unusable afterwards.

    Example:
        >>> parts = [np.ones(2) for _ in range(dist.get_world_size())] if dist.get_rank() == 0 else None
        >>> mine = np.empty(2)
        >>> dist.scatter(mine, parts, src=0)
    """
    return _core.scatter(tensor, scatter_list, src, group_src, group, async_op, timeout)


@overload
def all_gather_coalesced(output_tensor_lists: Sequence[Sequence[Array]], input_tensor_list: Sequence[Array],
                         group: Group = ..., async_op: Literal[False] = ..., *,
                         timeout: timedelta | None = ...) -> None: ...
@overload
def all_gather_coalesced(output_tensor_lists: Sequence[Sequence[Array]], input_tensor_list: Sequence[Array],
                         group: Group = ..., async_op: Literal[True] = ..., *,
                         timeout: timedelta | None = ...) -> Work: ...
@overload
def all_gather_coalesced(output_tensor_lists: Sequence[Sequence[Array]], input_tensor_list: Sequence[Array],
                         group: Group = ..., async_op: bool = ..., *,
                         timeout: timedelta | None = ...) -> Work | None: ...
def all_gather_coalesced(output_tensor_lists: Sequence[Sequence[Array]], input_tensor_list: Sequence[Array],
                         group: Group = None, async_op: bool = False, *,
                         timeout: timedelta | None = None) -> Work | None:
    """all_gather of each input, in one launch.

    Args:
        output_tensor_lists: size() lists: output_tensor_lists[rank][i] becomes that rank's input i.
        input_tensor_list: what this rank gives.
        group: the ranks that take part; None: the default group.
        async_op: return a Work at once; no array may be touched before it is complete.
        timeout: of this call; None or zero: the group's.

    Returns:
        A Work with `async_op`; otherwise None, as outside of the group (with a UserWarning).

    Raises:
        InvalidArgument: before anything is sent; the group stays usable.
        CollectiveMismatch, PeerLost, Timeout, Aborted: on every rank; the group is unusable afterwards.

    Example:
        >>> outputs = [[np.empty(1), np.empty(2)] for _ in range(dist.get_world_size())]
        >>> dist.all_gather_coalesced(outputs, [np.ones(1), np.ones(2)])
    """
    return _core.all_gather_coalesced(output_tensor_lists, input_tensor_list, group, async_op, timeout)


@overload
def all_gather_into_tensor_coalesced(output_tensor_list: Sequence[Array], input_tensor_list: Sequence[Array],
                                     group: Group = ..., async_op: Literal[False] = ..., *,
                                     timeout: timedelta | None = ...) -> None: ...
@overload
def all_gather_into_tensor_coalesced(output_tensor_list: Sequence[Array], input_tensor_list: Sequence[Array],
                                     group: Group = ..., async_op: Literal[True] = ..., *,
                                     timeout: timedelta | None = ...) -> Work: ...
@overload
def all_gather_into_tensor_coalesced(output_tensor_list: Sequence[Array], input_tensor_list: Sequence[Array],
                                     group: Group = ..., async_op: bool = ..., *,
                                     timeout: timedelta | None = ...) -> Work | None: ...
def all_gather_into_tensor_coalesced(output_tensor_list: Sequence[Array], input_tensor_list: Sequence[Array],
                                     group: Group = None, async_op: bool = False, *,
                                     timeout: timedelta | None = None) -> Work | None:
    """all_gather_into_tensor of each pair, in one launch.

    Args:
        output_tensor_list: arrays, each with size() times its input's elements.
        input_tensor_list: as many arrays, which this rank gives.
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
        >>> dist.all_gather_into_tensor_coalesced([np.empty(n), np.empty(2 * n)], [np.ones(1), np.ones(2)])
    """
    return _core.all_gather_into_tensor_coalesced(output_tensor_list, input_tensor_list, group, async_op, timeout)
