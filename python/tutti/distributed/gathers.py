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
    """Copies the root's `tensor` into everyone's. Exactly one of `src` and `group_src`."""
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
    """tensor_list[i] becomes rank i's `tensor`; element counts may differ between ranks."""
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
    """All inputs one after the other, concatenated or stacked: the output has size() times the input's elements. With
    `output_split_sizes` it is all_gather_into_tensor_uneven."""
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
    """All inputs one after the other, along dimension 0, of which rank i's has output_split_sizes[i] rows (on all ranks the
    same sizes; zero is allowed). None: every rank tells its rows, by one more small all_gather; where nothing can be asked,
    with `async_op` and while calls are coalesced, the rows are even."""
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
    """gather_list[i] becomes rank i's `tensor` on the root (default: global rank 0); None elsewhere. Equal counts."""
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
    """`tensor` becomes the root's scatter_list[rank] (root: global rank 0 by default); None elsewhere. Equal counts."""
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
    """all_gather of each input, in one launch: output_tensor_lists[rank][i] becomes that rank's input i."""
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
    """all_gather_into_tensor of each pair, in one launch."""
    return _core.all_gather_into_tensor_coalesced(output_tensor_list, input_tensor_list, group, async_op, timeout)
