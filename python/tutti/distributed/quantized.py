"""Quantised collectives: messages hold codes of 8 or 4 bits instead of floating-point numbers.

They pay where a network is slow: int8 halves the bytes of float16, int4 quarters them. Inside one host they never do;
`tutti explain quantized_all_reduce` says when. Every value is rounded twice, whatever the number of ranks, and all ranks
get the same bits. include/tutti/quantized.hpp says how far results are off, and what becomes of NaN.

Common to all, beside what tutti.distributed.collectives says. Arrays are float32, float16 or ml_dtypes.bfloat16.
type: "int8", "int4", "float8_e4m3fn" or "float8_e5m2". block: elements with one scale, a multiple of 32 up to 1024, or
"row" (the last dimension) or "tensor". scales: "per_rank", or "shared": the ranks find the largest magnitudes first, and
whole codes add up exactly. scale: one for everything instead; the input may be of int8 then, codes already. rounding:
"nearest", or "stochastic" by `seed`. All ranks give the same, but for rounding and seed.
"""
from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal, overload

from .. import _core
from .._core import ReduceOp, Work
from ._arguments import Array, Group

__all__ = ["QuantizedReducer", "quantized_all_gather", "quantized_all_reduce", "quantized_reduce_scatter"]


@overload
def quantized_all_reduce(tensor: Array, op: ReduceOp = ..., group: Group = ..., async_op: Literal[False] = ..., *,
                         output: Array | None = ..., type: str = ..., block: int | str = ..., scales: str = ...,
                         scale: float | None = ..., quantize_results: bool = ..., rounding: str = ..., seed: int = ...,
                         timeout: timedelta | None = ...) -> None: ...
@overload
def quantized_all_reduce(tensor: Array, op: ReduceOp = ..., group: Group = ..., async_op: Literal[True] = ..., *,
                         output: Array | None = ..., type: str = ..., block: int | str = ..., scales: str = ...,
                         scale: float | None = ..., quantize_results: bool = ..., rounding: str = ..., seed: int = ...,
                         timeout: timedelta | None = ...) -> Work: ...
@overload
def quantized_all_reduce(tensor: Array, op: ReduceOp = ..., group: Group = ..., async_op: bool = ..., *,
                         output: Array | None = ..., type: str = ..., block: int | str = ..., scales: str = ...,
                         scale: float | None = ..., quantize_results: bool = ..., rounding: str = ..., seed: int = ...,
                         timeout: timedelta | None = ...) -> Work | None: ...
def quantized_all_reduce(tensor: Array, op: ReduceOp = ReduceOp.SUM, group: Group = None, async_op: bool = False, *,
                         output: Array | None = None, type: str = "int8", block: int | str = 256,
                         scales: str = "per_rank", scale: float | None = None, quantize_results: bool = True,
                         rounding: str = "nearest", seed: int = 0, timeout: timedelta | None = None) -> Work | None:
    """Adds up or averages `tensor` over all ranks, in codes of few bits.

    Args:
        tensor: float32, float16 or ml_dtypes.bfloat16; in place, but for `output`.
        op: SUM or AVG.
        group: the ranks that take part; None: the default group.
        async_op: return a Work at once; no array may be touched before it is complete.
        output: another array for the result, which may be of another dtype; None: in place.
        type: "int8", "int4", "float8_e4m3fn" or "float8_e5m2".
        block: elements with one scale, a multiple of 32 up to 1024, or "row" (the last dimension) or "tensor".
        scales: "per_rank", or "shared": the ranks find the largest magnitudes first, and whole codes add up exactly.
        scale: one for everything; the input may be of int8 then, codes already.
        quantize_results: without it the second leg holds numbers of the output's dtype, and values are rounded once only.
        rounding: "nearest", or "stochastic" by `seed`.
        seed: of stochastic rounding; ranks may differ.
        timeout: of this call; None or zero: the group's.

    Returns:
        A Work with `async_op`; otherwise None, as outside of the group (with a UserWarning).

    Raises:
        InvalidArgument: before anything is sent; the group stays usable.
        CollectiveMismatch, PeerLost, Timeout, Aborted: on every rank; the group is unusable afterwards.

    Example:
        >>> gradient = np.ones(1024, dtype=np.float32)
        >>> dist.quantized_all_reduce(gradient, op=dist.ReduceOp.AVG, type="int8")
    """
    how = (type, block, scales, scale, quantize_results, rounding, seed)
    return _core.quantized_all_reduce(tensor if output is None else output, tensor, how, None, op, group, async_op, timeout)


@overload
def quantized_reduce_scatter(output: Array, input: Array, op: ReduceOp = ..., group: Group = ...,
                             async_op: Literal[False] = ..., *, counts: list[int] | None = ..., type: str = ...,
                             block: int | str = ..., scales: str = ..., scale: float | None = ..., rounding: str = ...,
                             seed: int = ..., timeout: timedelta | None = ...) -> None: ...
@overload
def quantized_reduce_scatter(output: Array, input: Array, op: ReduceOp = ..., group: Group = ...,
                             async_op: Literal[True] = ..., *, counts: list[int] | None = ..., type: str = ...,
                             block: int | str = ..., scales: str = ..., scale: float | None = ..., rounding: str = ...,
                             seed: int = ..., timeout: timedelta | None = ...) -> Work: ...
@overload
def quantized_reduce_scatter(output: Array, input: Array, op: ReduceOp = ..., group: Group = ..., async_op: bool = ...,
                             *, counts: list[int] | None = ..., type: str = ..., block: int | str = ...,
                             scales: str = ..., scale: float | None = ..., rounding: str = ..., seed: int = ...,
                             timeout: timedelta | None = ...) -> Work | None: ...
def quantized_reduce_scatter(output: Array, input: Array, op: ReduceOp = ReduceOp.SUM, group: Group = None,
                             async_op: bool = False, *, counts: list[int] | None = None, type: str = "int8",
                             block: int | str = 256, scales: str = "per_rank", scale: float | None = None,
                             rounding: str = "nearest", seed: int = 0, timeout: timedelta | None = None) -> Work | None:
    """`output` becomes this rank's piece of the sum of all inputs, which travel in codes of few bits.

    Args:
        output: this rank's piece.
        input: all pieces; float32, float16 or ml_dtypes.bfloat16.
        op: SUM or AVG.
        group: the ranks that take part; None: the default group.
        async_op: return a Work at once; no array may be touched before it is complete.
        counts: elements of each rank's piece; None: equal.
        type: "int8", "int4", "float8_e4m3fn" or "float8_e5m2".
        block: elements with one scale, a multiple of 32 up to 1024, or "row" (the last dimension) or "tensor".
        scales: "per_rank", or "shared": the ranks find the largest magnitudes first, and whole codes add up exactly.
        scale: one for everything; the input may be of int8 then, codes already.
        rounding: "nearest", or "stochastic" by `seed`.
        seed: of stochastic rounding; ranks may differ.
        timeout: of this call; None or zero: the group's.

    Returns:
        A Work with `async_op`; otherwise None, as outside of the group (with a UserWarning).

    Raises:
        InvalidArgument: before anything is sent; the group stays usable.
        CollectiveMismatch, PeerLost, Timeout, Aborted: on every rank; the group is unusable afterwards.

    Example:
        >>> piece = np.empty(256, dtype=np.float32)
        >>> dist.quantized_reduce_scatter(piece, np.ones(256 * dist.get_world_size(), dtype=np.float32))
    """
    how = (type, block, scales, scale, False, rounding, seed)
    return _core.quantized_reduce_scatter(output, input, how, counts, op, group, async_op, timeout)


@overload
def quantized_all_gather(output: Array, input: Array, group: Group = ..., async_op: Literal[False] = ..., *,
                         counts: list[int] | None = ..., type: str = ..., block: int | str = ...,
                         scale: float | None = ..., rounding: str = ..., seed: int = ...,
                         timeout: timedelta | None = ...) -> None: ...
@overload
def quantized_all_gather(output: Array, input: Array, group: Group = ..., async_op: Literal[True] = ..., *,
                         counts: list[int] | None = ..., type: str = ..., block: int | str = ...,
                         scale: float | None = ..., rounding: str = ..., seed: int = ...,
                         timeout: timedelta | None = ...) -> Work: ...
@overload
def quantized_all_gather(output: Array, input: Array, group: Group = ..., async_op: bool = ..., *,
                         counts: list[int] | None = ..., type: str = ..., block: int | str = ...,
                         scale: float | None = ..., rounding: str = ..., seed: int = ...,
                         timeout: timedelta | None = ...) -> Work | None: ...
def quantized_all_gather(output: Array, input: Array, group: Group = None, async_op: bool = False, *,
                         counts: list[int] | None = None, type: str = "int8", block: int | str = 256,
                         scale: float | None = None, rounding: str = "nearest", seed: int = 0,
                         timeout: timedelta | None = None) -> Work | None:
    """All inputs one after the other, in the order of ranks, each as its codes say.

    Args:
        output: all pieces.
        input: this rank's piece; float32, float16 or ml_dtypes.bfloat16.
        group: the ranks that take part; None: the default group.
        async_op: return a Work at once; no array may be touched before it is complete.
        counts: elements of each rank's piece; None: equal.
        type: "int8", "int4", "float8_e4m3fn" or "float8_e5m2".
        block: elements with one scale, a multiple of 32 up to 1024, or "row" (the last dimension) or "tensor".
        scale: one for everything; the input may be of int8 then, codes already.
        rounding: "nearest", or "stochastic" by `seed`.
        seed: of stochastic rounding; ranks may differ.
        timeout: of this call; None or zero: the group's.

    Returns:
        A Work with `async_op`; otherwise None, as outside of the group (with a UserWarning).

    Raises:
        InvalidArgument: before anything is sent; the group stays usable.
        CollectiveMismatch, PeerLost, Timeout, Aborted: on every rank; the group is unusable afterwards.

    Example:
        >>> everyone = np.empty(256 * dist.get_world_size(), dtype=np.float32)
        >>> dist.quantized_all_gather(everyone, np.ones(256, dtype=np.float32))
    """
    how = (type, block, "per_rank", scale, True, rounding, seed)
    return _core.quantized_all_gather(output, input, how, counts, ReduceOp.SUM, group, async_op, timeout)


class QuantizedReducer:
    """quantized_all_reduce with error feedback: what a call loses to rounding is added to what the next one on the same
    bucket rounds.

    One thread at a time; a bucket's call must be complete before its next one.

    Args:
        op: SUM or AVG.
        group: the ranks that take part; None: the default group.
        type: "int8", "int4", "float8_e4m3fn" or "float8_e5m2".
        block: elements with one scale, a multiple of 32 up to 1024, or "row" (the last dimension) or "tensor".
        scales: "per_rank", or "shared": the ranks find the largest magnitudes first, and whole codes add up exactly.
        quantize_results: without it the second leg holds numbers of the output's dtype, and values are rounded once only.
        rounding: "nearest", or "stochastic" by `seed`.
        seed: of stochastic rounding; ranks may differ.
        timeout: of this call; None or zero: the group's.

    Example:
        >>> reducer = dist.QuantizedReducer(dist.ReduceOp.AVG, type="int4")
        >>> reducer.all_reduce(np.ones(1024, dtype=np.float32), bucket=0)
    """

    def __init__(self, op: ReduceOp = ReduceOp.SUM, group: Group = None, *, type: str = "int8", block: int | str = 256,
                 scales: str = "per_rank", quantize_results: bool = True, rounding: str = "nearest", seed: int = 0,
                 timeout: timedelta | None = None) -> None:
        self._reducer = _core.QuantizedReducer((type, block, scales, None, quantize_results, rounding, seed), op, group,
                                               timeout)

    @overload
    def all_reduce(self, tensor: Array, bucket: int = ..., async_op: Literal[False] = ...) -> None: ...
    @overload
    def all_reduce(self, tensor: Array, bucket: int = ..., async_op: Literal[True] = ...) -> Work: ...
    @overload
    def all_reduce(self, tensor: Array, bucket: int = ..., async_op: bool = ...) -> Work | None: ...
    def all_reduce(self, tensor: Array, bucket: int = 0, async_op: bool = False) -> Work | None:
        """In place. A bucket whose number of elements has changed begins anew.

        Args:
            tensor: float32, float16 or ml_dtypes.bfloat16.
            bucket: a number of the caller's for what is reduced again and again.
            async_op: return a Work at once; no array may be touched before it is complete.

        Returns:
            A Work with `async_op`; otherwise None, as outside of the group (with a UserWarning).

        Raises:
            InvalidArgument: before anything is sent; the group stays usable.
            CollectiveMismatch, PeerLost, Timeout, Aborted: on every rank; the group is unusable afterwards.

        Example:
            >>> dist.QuantizedReducer().all_reduce(np.ones(1024, dtype=np.float32))
        """
        return self._reducer.all_reduce(tensor, bucket, async_op)

    def residual(self, bucket: int = 0) -> Any:
        """What has been lost of this rank's values and not made good.

        Args:
            bucket: as in all_reduce.

        Returns:
            A float32 array, empty before the first call.

        Example:
            >>> dist.QuantizedReducer().residual().size
            0
        """
        return self._reducer.residual(bucket)

    def reset(self) -> None:
        """Forgets all losses."""
        self._reducer.reset()
