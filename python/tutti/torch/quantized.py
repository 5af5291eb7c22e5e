"""Quantised collectives on PyTorch's tensors, and a communication hook for DistributedDataParallel.

Messages hold codes of 8 or 4 bits instead of floating-point numbers, which pays where a network is slow, and never inside
one host. All ranks get the same bits. The options are those of tutti.distributed.quantized; tensors are float32, float16
or bfloat16.
"""

# Annotations are evaluated: DistributedDataParallel looks at those of hooks.

from typing import Any

import torch
import torch.distributed as dist

from ._groups import members_of
from ._module import backend

_BLOCKS = {"row": -1, "tensor": -2}


def _how(name: str, op: Any, type: str, block: int | str, scales: str, scale: float | None, quantize_results: bool,
         rounding: str, seed: int, counts: list[int] | None = None) -> tuple[Any, ...]:
    if op not in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
        raise ValueError(f"tutti.torch.{name}: op is {op}; expected SUM or AVG")
    if isinstance(block, str) and block not in _BLOCKS:
        raise ValueError(f"tutti.torch.{name}: block is {block!r}; expected an integer, 'row' or 'tensor'")
    if not isinstance(block, str) and block < 0:
        raise ValueError(f"tutti.torch.{name}: block is {block}; expected a multiple of 32 from 32 to 1024")
    length = _BLOCKS[block] if isinstance(block, str) else block
    return (type, length, scales, scale, quantize_results, rounding, seed, op == dist.ReduceOp.AVG, list(counts or ()))


def quantized_all_reduce(tensor: torch.Tensor, op: Any = dist.ReduceOp.SUM, group: Any = None, async_op: bool = False, *,
                         output: torch.Tensor | None = None, type: str = "int8", block: int | str = 256,
                         scales: str = "per_rank", scale: float | None = None, quantize_results: bool = True,
                         rounding: str = "nearest", seed: int = 0) -> dist.Work | None:
    """Adds up or averages `tensor` over all ranks, in place, or into `output`, which may be of another dtype."""
    name = "quantized_all_reduce"
    how = _how(name, op, type, block, scales, scale, quantize_results, rounding, seed)
    return members_of(group, name).quantized(name, tensor if output is None else output, tensor, how, async_op)


def quantized_reduce_scatter(output: torch.Tensor, input: torch.Tensor, op: Any = dist.ReduceOp.SUM, group: Any = None,
                             async_op: bool = False, *, counts: list[int] | None = None, type: str = "int8",
                             block: int | str = 256, scales: str = "per_rank", scale: float | None = None,
                             rounding: str = "nearest", seed: int = 0) -> dist.Work | None:
    """`output` becomes this rank's piece of the sum of all inputs. counts: elements of each piece; None: equal."""
    name = "quantized_reduce_scatter"
    how = _how(name, op, type, block, scales, scale, False, rounding, seed, counts)
    return members_of(group, name).quantized(name, output, input, how, async_op)


def quantized_all_gather(output: torch.Tensor, input: torch.Tensor, group: Any = None, async_op: bool = False, *,
                         counts: list[int] | None = None, type: str = "int8", block: int | str = 256,
                         scale: float | None = None, rounding: str = "nearest", seed: int = 0) -> dist.Work | None:
    """All inputs one after the other, each as its codes say. counts: elements of each rank's input; None: equal."""
    name = "quantized_all_gather"
    how = _how(name, dist.ReduceOp.SUM, type, block, "per_rank", scale, True, rounding, seed, counts)
    return members_of(group, name).quantized(name, output, input, how, async_op)


class QuantizedReducer:
    """quantized_all_reduce with error feedback: what a call loses to rounding is added to what the next one on the same
    bucket rounds. For one group. One thread at a time; a bucket's call must be complete before its next one."""

    def __init__(self, op: Any = dist.ReduceOp.SUM, group: Any = None, *, type: str = "int8", block: int | str = 256,
                 scales: str = "per_rank", quantize_results: bool = True, rounding: str = "nearest",
                 seed: int = 0) -> None:
        how = _how("QuantizedReducer", op, type, block, scales, None, quantize_results, rounding, seed)
        self.group = group
        self._reducer = backend().QuantizedReducer(how)

    def all_reduce(self, tensor: torch.Tensor, bucket: int = 0, async_op: bool = False) -> dist.Work | None:
        """In place. A bucket whose number of elements has changed begins anew."""
        return members_of(self.group, "QuantizedReducer").quantized_by(self._reducer, tensor, bucket, async_op)

    def residual(self, bucket: int = 0) -> torch.Tensor:
        """What has been lost of this rank's values and not made good; empty before the bucket's first call."""
        return self._reducer.residual(bucket)

    def reset(self) -> None:
        """Forgets all losses."""
        self._reducer.reset()


class QuantizedState(QuantizedReducer):
    """The state of quantized_hook: how gradients are averaged, in which group, and what has been lost.
    error_feedback=False: nothing is remembered."""

    def __init__(self, group: Any = None, *, type: str = "int8", block: int | str = 256, scales: str = "per_rank",
                 quantize_results: bool = True, rounding: str = "nearest", seed: int = 0,
                 error_feedback: bool = True) -> None:
        self.options: dict[str, Any] = {"type": type, "block": block, "scales": scales, "rounding": rounding, "seed": seed,
                                        "quantize_results": quantize_results}
        super().__init__(dist.ReduceOp.AVG, group, **self.options)
        self.error_feedback = error_feedback


def quantized_hook(state: QuantizedState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """A communication hook of DistributedDataParallel: averages the bucket by codes, with error feedback.

        model.register_comm_hook(QuantizedState(type="int4"), quantized_hook)

    It works in the bucket's own buffer and returns it, so other hooks can be put around it:
    fp16_compress_wrapper(quantized_hook) rounds gradients to float16 first.
    """
    tensor = bucket.buffer()
    if state.error_feedback:
        work = state.all_reduce(tensor, bucket.index(), async_op=True)
    else:
        work = quantized_all_reduce(tensor, dist.ReduceOp.AVG, state.group, True, **state.options)
    return work.get_future().then(lambda _: tensor)
