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
    "all_gather_into_tensor_uneven", "all_gather_v", "broadcast", "gather", "gather_v", "scatter", "scatter_v",
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
        output_split_sizes: rows of each rank's input: with them it is all_gather_v.
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
        return all_gather_v(output_tensor, input_tensor, output_split_sizes, group, async_op, timeout=timeout)
    return _core.all_gather_into_tensor(output_tensor, input_tensor, group, async_op, timeout)


@overload
def all_gather_v(output: Array, input: Array, output_split_sizes: list[int] | None = ..., group: Group = ...,
                 async_op: Literal[False] = ..., *, output_offsets: list[int] | None = ...,
                 timeout: timedelta | None = ...) -> None: ...
@overload
def all_gather_v(output: Array, input: Array, output_split_sizes: list[int] | None = ..., group: Group = ...,
                 async_op: Literal[True] = ..., *, output_offsets: list[int] | None = ...,
                 timeout: timedelta | None = ...) -> Work: ...
@overload
def all_gather_v(output: Array, input: Array, output_split_sizes: list[int] | None = ..., group: Group = ...,
                 async_op: bool = ..., *, output_offsets: list[int] | None = ...,
                 timeout: timedelta | None = ...) -> Work | None: ...
def all_gather_v(output: Array, input: Array, output_split_sizes: list[int] | None = None, group: Group = None,
                 async_op: bool = False, *, output_offsets: list[int] | None = None,
                 timeout: timedelta | None = None) -> Work | None:
    """All inputs, of different lengths, along dimension 0 (MPI_Allgatherv). all_gather_into_tensor_uneven is its former name.

    Args:
        output: of sum(output_split_sizes) rows; with `output_offsets`, of any that have room for the blocks.
        input: this rank's rows.
        output_split_sizes: rows of each rank's input, the same on all ranks; zero is allowed. None: every rank tells its
            rows, by one more small all_gather; where nothing can be asked, with `async_op` and while calls are coalesced,
            the rows are even.
        group: the ranks that take part; None: the default group.
        async_op: return a Work at once; no array may be touched before it is complete.
        output_offsets: the row at which each rank's rows begin; the others keep their values. None: one after the other.
        timeout: of this call; None or zero: the group's.

    Returns:
        A Work with `async_op`; otherwise None, as outside of the group (with a UserWarning).

    Raises:
        InvalidArgument: before anything is sent; the group stays usable.
        CollectiveMismatch, PeerLost, Timeout, Aborted: on every rank; the group is unusable afterwards.

    Example:
        >>> rows = [2 + rank for rank in range(dist.get_world_size())]
        >>> everyone = np.empty((sum(rows), 3))
        >>> dist.all_gather_v(everyone, np.ones((rows[dist.get_rank()], 3)), rows)
    """
    return _core.all_gather_v(output, input, output_split_sizes, output_offsets, group, async_op, timeout)


all_gather_into_tensor_uneven = all_gather_v


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
def gather_v(input: Array, output: Array | None = ..., receive_counts: list[int] | None = ...,
             receive_offsets: list[int] | None = ..., dst: int | None = ..., group: Group = ...,
             async_op: Literal[False] = ..., group_dst: int | None = ..., *, timeout: timedelta | None = ...) -> None: ...
@overload
def gather_v(input: Array, output: Array | None = ..., receive_counts: list[int] | None = ...,
             receive_offsets: list[int] | None = ..., dst: int | None = ..., group: Group = ...,
             async_op: Literal[True] = ..., group_dst: int | None = ..., *, timeout: timedelta | None = ...) -> Work: ...
@overload
def gather_v(input: Array, output: Array | None = ..., receive_counts: list[int] | None = ...,
             receive_offsets: list[int] | None = ..., dst: int | None = ..., group: Group = ...,
             async_op: bool = ..., group_dst: int | None = ..., *, timeout: timedelta | None = ...) -> Work | None: ...
def gather_v(input: Array, output: Array | None = None, receive_counts: list[int] | None = None,
             receive_offsets: list[int] | None = None, dst: int | None = None, group: Group = None,
             async_op: bool = False, group_dst: int | None = None, *, timeout: timedelta | None = None) -> Work | None:
    """Blocks of different lengths on the root, from every rank (MPI_Gatherv): receive_counts[i] elements from rank i go to
    receive_offsets[i] of `output`. A rank knows only its own length.

    Counts and offsets are elements of the flattened array on the root; there alone they matter, and `output` does.

    Args:
        input: what this rank gives; each rank gives as much as it likes.
        output: on the root, where the blocks go; elements that no block covers keep their values. On the root, `input` may be its
            block of it. None elsewhere.
        receive_counts: elements from each rank, zero is allowed; None: equal blocks that cover `output`.
        receive_offsets: where each block begins; None: one after the other.
        dst: global rank of the root; by default 0.
        group: the ranks that take part; None: the default group.
        async_op: return a Work at once; no array may be touched before it is complete.
        group_dst: the root's rank in the group, instead of `dst`.
        timeout: of this call; None or zero: the group's.

    Returns:
        A Work with `async_op`; otherwise None, as outside of the group (with a UserWarning).

    Raises:
        InvalidArgument: on the root, before anything is sent; the others wait for it then.
        CollectiveMismatch, PeerLost, Timeout, Aborted: on every rank; the group is unusable afterwards.

    Example:
        >>> rank, n = dist.get_rank(), dist.get_world_size()
        >>> counts = [1 + i for i in range(n)]
        >>> everyone = np.zeros(sum(counts)) if rank == 0 else None
        >>> dist.gather_v(np.full(1 + rank, 7.0), everyone, counts)
        >>> rank != 0 or bool(everyone[0] == 7.0)
        True
    """
    return _core.gather_v(input, output, receive_counts, receive_offsets, dst, group_dst, group, async_op, timeout)


@overload
def scatter_v(output: Array, input: Array | None = ..., send_counts: list[int] | None = ...,
              send_offsets: list[int] | None = ..., src: int | None = ..., group: Group = ...,
              async_op: Literal[False] = ..., group_src: int | None = ..., *, timeout: timedelta | None = ...) -> None: ...
@overload
def scatter_v(output: Array, input: Array | None = ..., send_counts: list[int] | None = ...,
              send_offsets: list[int] | None = ..., src: int | None = ..., group: Group = ...,
              async_op: Literal[True] = ..., group_src: int | None = ..., *, timeout: timedelta | None = ...) -> Work: ...
@overload
def scatter_v(output: Array, input: Array | None = ..., send_counts: list[int] | None = ...,
              send_offsets: list[int] | None = ..., src: int | None = ..., group: Group = ...,
              async_op: bool = ..., group_src: int | None = ..., *, timeout: timedelta | None = ...) -> Work | None: ...
def scatter_v(output: Array, input: Array | None = None, send_counts: list[int] | None = None,
              send_offsets: list[int] | None = None, src: int | None = None, group: Group = None,
              async_op: bool = False, group_src: int | None = None, *, timeout: timedelta | None = None) -> Work | None:
    """Blocks of different lengths from the root, to every rank (MPI_Scatterv): the send_counts[i] elements at send_offsets[i] of
    `input` go to rank i. A rank knows only its own length.

    Counts and offsets are elements of the flattened array on the root; there alone they matter, and `input` does.

    Args:
        output: gets this rank's block, as long as the root says.
        input: on the root, where the blocks are; they may overlap. On the root, `output` may be its block of it. None elsewhere.
        send_counts: elements for each rank, zero is allowed; None: equal blocks that cover `input`.
        send_offsets: where each block begins; None: one after the other.
        src: global rank of the root; by default 0.
        group: the ranks that take part; None: the default group.
        async_op: return a Work at once; no array may be touched before it is complete.
        group_src: the root's rank in the group, instead of `src`.
        timeout: of this call; None or zero: the group's.

    Returns:
        A Work with `async_op`; otherwise None, as outside of the group (with a UserWarning).

    Raises:
        InvalidArgument: on the root, before anything is sent; the others wait for it then.
        CollectiveMismatch, PeerLost, Timeout, Aborted: on every rank; the group is unusable afterwards.

    Example:
        >>> rank, n = dist.get_rank(), dist.get_world_size()
        >>> counts = [1 + i for i in range(n)]
        >>> mine = np.empty(1 + rank)
        >>> dist.scatter_v(mine, np.ones(sum(counts)) if rank == 0 else None, counts)
        >>> mine[-1]
        np.float64(1.0)
    """
    return _core.scatter_v(output, input, send_counts, send_offsets, src, group_src, group, async_op, timeout)


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
