"""Collectives that combine what the ranks have. The rest is said in collectives.py."""
from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Literal, overload

from .. import _core
from .._core import ReduceOp, Work
from ._arguments import Array, Group

__all__ = [
    "all_reduce", "all_reduce_coalesced", "reduce", "reduce_scatter", "reduce_scatter_tensor",
    "reduce_scatter_tensor_coalesced", "reduce_scatter_tensor_uneven",
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
    """Combines `tensor` over all ranks, element by element, in place; the same bits everywhere."""
    return _core.all_reduce(tensor, op, group, async_op, timeout)


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
    """As all_reduce, but only the root's `tensor` gets the result; the others' stay as they are."""
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
    """`output` becomes the combination of all ranks' input_list[rank]; counts may differ between entries."""
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
    """As reduce_scatter with one input of size() equal blocks. With `input_split_sizes` it is
    reduce_scatter_tensor_uneven."""
    if input_split_sizes is not None:
        return reduce_scatter_tensor_uneven(output, input, input_split_sizes, op, group, async_op, timeout=timeout)
    return _core.reduce_scatter_tensor(output, input, op, group, async_op, timeout)


@overload
def reduce_scatter_tensor_uneven(output: Array, input: Array, input_split_sizes: list[int] | None = ...,
                                 op: ReduceOp = ..., group: Group = ..., async_op: Literal[False] = ..., *,
                                 timeout: timedelta | None = ...) -> None: ...
@overload
def reduce_scatter_tensor_uneven(output: Array, input: Array, input_split_sizes: list[int] | None = ...,
                                 op: ReduceOp = ..., group: Group = ..., async_op: Literal[True] = ..., *,
                                 timeout: timedelta | None = ...) -> Work: ...
@overload
def reduce_scatter_tensor_uneven(output: Array, input: Array, input_split_sizes: list[int] | None = ...,
                                 op: ReduceOp = ..., group: Group = ..., async_op: bool = ..., *,
                                 timeout: timedelta | None = ...) -> Work | None: ...
def reduce_scatter_tensor_uneven(output: Array, input: Array, input_split_sizes: list[int] | None = None,
                                 op: ReduceOp = ReduceOp.SUM, group: Group = None, async_op: bool = False, *,
                                 timeout: timedelta | None = None) -> Work | None:
    """As reduce_scatter with one input, of which rank i gets the i-th block of input_split_sizes[i] rows (on all ranks the
    same sizes). None: as all_gather_into_tensor_uneven's, from the rows of every rank's `output`."""
    return _core.reduce_scatter_tensor_uneven(output, input, input_split_sizes, op, group, async_op, timeout)


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
    """all_reduce of each array, in one launch."""
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
    """reduce_scatter_tensor of each pair, in one launch."""
    return _core.reduce_scatter_tensor_coalesced(output_tensor_list, input_tensor_list, op, group, async_op, timeout)
