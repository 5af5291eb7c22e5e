"""Collectives that combine what the ranks have. The rest is said in collectives.py."""
from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Literal, overload

from .. import _core
from .._core import ReduceOp, Work
from ._arguments import Array, Group

__all__ = [
    "all_reduce", "all_reduce_coalesced", "exscan", "reduce", "reduce_scatter", "reduce_scatter_tensor",
    "reduce_scatter_tensor_coalesced", "reduce_scatter_tensor_uneven", "reduce_scatter_v", "scan",
]


@overload
def all_reduce(tensor: Array, op: ReduceOp = ..., group: Group = ..., async_op: Literal[False] = ..., *,
               timeout: timedelta | None = ...) -> None: ...
@overload
def all_reduce(tensor: Array, op: ReduceOp = ..., group: Group = ..., async_op: Literal[True] = ..., *,
               timeout: timedelta | None = ...) -> Work: ...
@overload
def all_reduce(tensor: Array, op: ReduceOp = ..., group: Group = ..., async_op: bool = ..., *,
               timeout: timedelta | None = ...) -> Work | None: ...
def all_reduce(tensor: Array, op: ReduceOp = ReduceOp.SUM, group: Group = None, async_op: bool = False, *,
               timeout: timedelta | None = None) -> Work | None:
    """Combines `tensor` over all ranks, element by element, in place; the same bits everywhere.

    Args:
        tensor: this rank's values, and the result; of any shape, with the same dtype and number of elements on all ranks.
        op: how elements are combined; BAND, BOR and BXOR are for integers and booleans, AVG is not for booleans.
        group: the ranks that take part; None: the default group.
        async_op: return a Work at once; no array may be touched before it is complete.
        timeout: of this call; None or zero: the group's.

    Returns:
        A Work with `async_op`; otherwise None, as outside of the group (with a UserWarning).

    Raises:
        InvalidArgument: before anything is sent; the group stays usable.
        CollectiveMismatch, PeerLost, Timeout, Aborted: on every rank; the group is unusable afterwards.

    Example:
        >>> x = np.array([1.0, 2.0])
        >>> dist.all_reduce(x, op=dist.ReduceOp.AVG)
        >>> work = dist.all_reduce(x, async_op=True)
        >>> work.wait()
        True
    """
    return _core.all_reduce(tensor, op, group, async_op, timeout)


@overload
def scan(tensor: Array, op: ReduceOp = ..., group: Group = ..., async_op: Literal[False] = ..., *,
         timeout: timedelta | None = ...) -> None: ...
@overload
def scan(tensor: Array, op: ReduceOp = ..., group: Group = ..., async_op: Literal[True] = ..., *,
         timeout: timedelta | None = ...) -> Work: ...
@overload
def scan(tensor: Array, op: ReduceOp = ..., group: Group = ..., async_op: bool = ..., *,
         timeout: timedelta | None = ...) -> Work | None: ...
def scan(tensor: Array, op: ReduceOp = ReduceOp.SUM, group: Group = None, async_op: bool = False, *,
         timeout: timedelta | None = None) -> Work | None:
    """Prefix (MPI_Scan): `tensor` becomes the combination of those of ranks 0, 1, … up to this one, element by element, in
    place and in the order of ranks.

    Args:
        tensor: this rank's values, and the result; of any shape, with the same dtype and number of elements on all ranks.
        op: how elements are combined; BAND, BOR and BXOR are for integers and booleans, AVG is refused.
        group: the ranks that take part; None: the default group.
        async_op: return a Work at once; no array may be touched before it is complete.
        timeout: of this call; None or zero: the group's.

    Returns:
        A Work with `async_op`; otherwise None, as outside of the group (with a UserWarning).

    Raises:
        InvalidArgument: before anything is sent; the group stays usable.
        CollectiveMismatch, PeerLost, Timeout, Aborted: on every rank; the group is unusable afterwards.

    Example:
        >>> x = np.array([1.0, 2.0])
        >>> dist.scan(x)
    """
    return _core.scan(tensor, op, group, async_op, timeout)


@overload
def exscan(tensor: Array, op: ReduceOp = ..., group: Group = ..., async_op: Literal[False] = ..., *,
           timeout: timedelta | None = ...) -> None: ...
@overload
def exscan(tensor: Array, op: ReduceOp = ..., group: Group = ..., async_op: Literal[True] = ..., *,
           timeout: timedelta | None = ...) -> Work: ...
@overload
def exscan(tensor: Array, op: ReduceOp = ..., group: Group = ..., async_op: bool = ..., *,
           timeout: timedelta | None = ...) -> Work | None: ...
def exscan(tensor: Array, op: ReduceOp = ReduceOp.SUM, group: Group = None, async_op: bool = False, *,
           timeout: timedelta | None = None) -> Work | None:
    """As scan, without this rank's own values (MPI_Exscan): the combination of those of the ranks before it. Rank 0, which has
    none before it, keeps its `tensor` as it was.

    Args:
        tensor: this rank's values, and the result but on rank 0; of any shape, with the same dtype and number of elements on all ranks.
        op: how elements are combined; BAND, BOR and BXOR are for integers and booleans, AVG is refused.
        group: the ranks that take part; None: the default group.
        async_op: return a Work at once; no array may be touched before it is complete.
        timeout: of this call; None or zero: the group's.

    Returns:
        A Work with `async_op`; otherwise None, as outside of the group (with a UserWarning).

    Raises:
        InvalidArgument: before anything is sent; the group stays usable.
        CollectiveMismatch, PeerLost, Timeout, Aborted: on every rank; the group is unusable afterwards.

    Example:
        >>> x = np.array([1.0, 2.0])
        >>> dist.exscan(x)
    """
    return _core.exscan(tensor, op, group, async_op, timeout)


@overload
def reduce(tensor: Array, dst: int | None = ..., op: ReduceOp = ..., group: Group = ..., async_op: Literal[False] = ...,
           group_dst: int | None = ..., *, timeout: timedelta | None = ...) -> None: ...
@overload
def reduce(tensor: Array, dst: int | None = ..., op: ReduceOp = ..., group: Group = ..., async_op: Literal[True] = ...,
           group_dst: int | None = ..., *, timeout: timedelta | None = ...) -> Work: ...
@overload
def reduce(tensor: Array, dst: int | None = ..., op: ReduceOp = ..., group: Group = ..., async_op: bool = ...,
           group_dst: int | None = ..., *, timeout: timedelta | None = ...) -> Work | None: ...
def reduce(tensor: Array, dst: int | None = None, op: ReduceOp = ReduceOp.SUM, group: Group = None,
           async_op: bool = False, group_dst: int | None = None, *, timeout: timedelta | None = None) -> Work | None:
    """As all_reduce, but only the root's `tensor` gets the result; the others' stay as they are.

    Args:
        tensor: this rank's values, on the root the result too; the same dtype and number of elements on all ranks.
        dst: global rank of the root.
        op: how elements are combined; BAND, BOR and BXOR are for integers and booleans, AVG is not for booleans.
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
        >>> x = np.array([1.0, 2.0])
        >>> dist.reduce(x, dst=0)
    """
    return _core.reduce(tensor, dst, group_dst, op, group, async_op, timeout)


@overload
def reduce_scatter(output: Array, input_list: Sequence[Array], op: ReduceOp = ..., group: Group = ...,
                   async_op: Literal[False] = ..., *, timeout: timedelta | None = ...) -> None: ...
@overload
def reduce_scatter(output: Array, input_list: Sequence[Array], op: ReduceOp = ..., group: Group = ...,
                   async_op: Literal[True] = ..., *, timeout: timedelta | None = ...) -> Work: ...
@overload
def reduce_scatter(output: Array, input_list: Sequence[Array], op: ReduceOp = ..., group: Group = ...,
                   async_op: bool = ..., *, timeout: timedelta | None = ...) -> Work | None: ...
def reduce_scatter(output: Array, input_list: Sequence[Array], op: ReduceOp = ReduceOp.SUM, group: Group = None,
                   async_op: bool = False, *, timeout: timedelta | None = None) -> Work | None:
    """`output` becomes the combination of all ranks' input_list[rank].

    Args:
        output: has as many elements as this rank's entry of the list.
        input_list: size() arrays; numbers of elements may differ between entries.
        op: how elements are combined; BAND, BOR and BXOR are for integers and booleans, AVG is not for booleans.
        group: the ranks that take part; None: the default group.
        async_op: return a Work at once; no array may be touched before it is complete.
        timeout: of this call; None or zero: the group's.

    Returns:
        A Work with `async_op`; otherwise None, as outside of the group (with a UserWarning).

    Raises:
        InvalidArgument: before anything is sent; the group stays usable.
        CollectiveMismatch, PeerLost, Timeout, Aborted: on every rank; the group is unusable afterwards.

    Example:
        >>> mine = np.empty(2)
        >>> dist.reduce_scatter(mine, [np.ones(2) for _ in range(dist.get_world_size())])
    """
    return _core.reduce_scatter(output, input_list, op, group, async_op, timeout)


@overload
def reduce_scatter_tensor(output: Array, input: Array, op: ReduceOp = ..., group: Group = ...,
                          async_op: Literal[False] = ..., *, input_split_sizes: list[int] | None = ...,
                          timeout: timedelta | None = ...) -> None: ...
@overload
def reduce_scatter_tensor(output: Array, input: Array, op: ReduceOp = ..., group: Group = ...,
                          async_op: Literal[True] = ..., *, input_split_sizes: list[int] | None = ...,
                          timeout: timedelta | None = ...) -> Work: ...
@overload
def reduce_scatter_tensor(output: Array, input: Array, op: ReduceOp = ..., group: Group = ..., async_op: bool = ..., *,
                          input_split_sizes: list[int] | None = ...,
                          timeout: timedelta | None = ...) -> Work | None: ...
def reduce_scatter_tensor(output: Array, input: Array, op: ReduceOp = ReduceOp.SUM, group: Group = None,
                          async_op: bool = False, *, input_split_sizes: list[int] | None = None,
                          timeout: timedelta | None = None) -> Work | None:
    """As reduce_scatter with one input of size() equal blocks.

    Args:
        output: this rank's block.
        input: has size() times the output's elements, concatenated or stacked.
        op: how elements are combined; BAND, BOR and BXOR are for integers and booleans, AVG is not for booleans.
        group: the ranks that take part; None: the default group.
        async_op: return a Work at once; no array may be touched before it is complete.
        input_split_sizes: rows of each rank's block: with them it is reduce_scatter_v.
        timeout: of this call; None or zero: the group's.

    Returns:
        A Work with `async_op`; otherwise None, as outside of the group (with a UserWarning).

    Raises:
        InvalidArgument: before anything is sent; the group stays usable.
        CollectiveMismatch, PeerLost, Timeout, Aborted: on every rank; the group is unusable afterwards.

    Example:
        >>> mine = np.empty(2)
        >>> dist.reduce_scatter_tensor(mine, np.ones(2 * dist.get_world_size()))
        >>> float(mine[0])
        1.0
    """
    if input_split_sizes is not None:
        return reduce_scatter_v(output, input, input_split_sizes, op, group, async_op, timeout=timeout)
    return _core.reduce_scatter_tensor(output, input, op, group, async_op, timeout)


@overload
def reduce_scatter_v(output: Array, input: Array, input_split_sizes: list[int] | None = ...,
                     op: ReduceOp = ..., group: Group = ..., async_op: Literal[False] = ..., *,
                     timeout: timedelta | None = ...) -> None: ...
@overload
def reduce_scatter_v(output: Array, input: Array, input_split_sizes: list[int] | None = ...,
                     op: ReduceOp = ..., group: Group = ..., async_op: Literal[True] = ..., *,
                     timeout: timedelta | None = ...) -> Work: ...
@overload
def reduce_scatter_v(output: Array, input: Array, input_split_sizes: list[int] | None = ...,
                     op: ReduceOp = ..., group: Group = ..., async_op: bool = ..., *,
                     timeout: timedelta | None = ...) -> Work | None: ...
def reduce_scatter_v(output: Array, input: Array, input_split_sizes: list[int] | None = None,
                     op: ReduceOp = ReduceOp.SUM, group: Group = None, async_op: bool = False, *,
                     timeout: timedelta | None = None) -> Work | None:
    """As reduce_scatter with one input, of which rank i gets the i-th block of rows (MPI_Reduce_scatter).
    reduce_scatter_tensor_uneven is its former name.

    Args:
        output: this rank's block, of input_split_sizes[rank] rows.
        input: all blocks, along dimension 0.
        input_split_sizes: rows of each rank's block, the same on all ranks; zero is allowed. None: the rows of every rank's
            `output`, which one more small all_gather tells; where nothing can be asked, with `async_op` and while calls are
            coalesced, the rows are even.
        op: how elements are combined; BAND, BOR and BXOR are for integers and booleans, AVG is not for booleans.
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
        >>> mine = np.empty((rows[dist.get_rank()], 3))
        >>> dist.reduce_scatter_v(mine, np.ones((sum(rows), 3)), rows)
    """
    return _core.reduce_scatter_v(output, input, input_split_sizes, op, group, async_op, timeout)


reduce_scatter_tensor_uneven = reduce_scatter_v


@overload
def all_reduce_coalesced(tensors: Sequence[Array], op: ReduceOp = ..., group: Group = ...,
                         async_op: Literal[False] = ..., *, timeout: timedelta | None = ...) -> None: ...
@overload
def all_reduce_coalesced(tensors: Sequence[Array], op: ReduceOp = ..., group: Group = ...,
                         async_op: Literal[True] = ..., *, timeout: timedelta | None = ...) -> Work: ...
@overload
def all_reduce_coalesced(tensors: Sequence[Array], op: ReduceOp = ..., group: Group = ..., async_op: bool = ..., *,
                         timeout: timedelta | None = ...) -> Work | None: ...
def all_reduce_coalesced(tensors: Sequence[Array], op: ReduceOp = ReduceOp.SUM, group: Group = None,
                         async_op: bool = False, *, timeout: timedelta | None = None) -> Work | None:
    """all_reduce of each array, in one launch.

    Args:
        tensors: arrays, each as all_reduce's `tensor`.
        op: how elements are combined; BAND, BOR and BXOR are for integers and booleans, AVG is not for booleans.
        group: the ranks that take part; None: the default group.
        async_op: return a Work at once; no array may be touched before it is complete.
        timeout: of this call; None or zero: the group's.

    Returns:
        A Work with `async_op`; otherwise None, as outside of the group (with a UserWarning).

    Raises:
        InvalidArgument: before anything is sent; the group stays usable.
        CollectiveMismatch, PeerLost, Timeout, Aborted: on every rank; the group is unusable afterwards.

    Example:
        >>> dist.all_reduce_coalesced([np.ones(3), np.ones(5, dtype=np.float32)])
    """
    return _core.all_reduce_coalesced(tensors, op, group, async_op, timeout)


@overload
def reduce_scatter_tensor_coalesced(output_tensor_list: Sequence[Array], input_tensor_list: Sequence[Array],
                                    op: ReduceOp = ..., group: Group = ..., async_op: Literal[False] = ..., *,
                                    timeout: timedelta | None = ...) -> None: ...
@overload
def reduce_scatter_tensor_coalesced(output_tensor_list: Sequence[Array], input_tensor_list: Sequence[Array],
                                    op: ReduceOp = ..., group: Group = ..., async_op: Literal[True] = ..., *,
                                    timeout: timedelta | None = ...) -> Work: ...
@overload
def reduce_scatter_tensor_coalesced(output_tensor_list: Sequence[Array], input_tensor_list: Sequence[Array],
                                    op: ReduceOp = ..., group: Group = ..., async_op: bool = ..., *,
                                    timeout: timedelta | None = ...) -> Work | None: ...
def reduce_scatter_tensor_coalesced(output_tensor_list: Sequence[Array], input_tensor_list: Sequence[Array],
                                    op: ReduceOp = ReduceOp.SUM, group: Group = None, async_op: bool = False, *,
                                    timeout: timedelta | None = None) -> Work | None:
    """reduce_scatter_tensor of each pair, in one launch.

    Args:
        output_tensor_list: this rank's blocks.
        input_tensor_list: as many arrays, each with size() times its output's elements.
        op: how elements are combined; BAND, BOR and BXOR are for integers and booleans, AVG is not for booleans.
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
        >>> dist.reduce_scatter_tensor_coalesced([np.empty(1), np.empty(2)], [np.ones(n), np.ones(2 * n)])
    """
    return _core.reduce_scatter_tensor_coalesced(output_tensor_list, input_tensor_list, op, group, async_op, timeout)
