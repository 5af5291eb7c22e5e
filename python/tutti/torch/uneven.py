"""Gathering and scattering one tensor of which each rank has a different number of rows.

    whole = torch.empty(5, 8)
    tutti.torch.all_gather_into_tensor(whole, mine, output_split_sizes=[2, 3])
    tutti.torch.reduce_scatter_tensor(mine, whole, input_split_sizes=[2, 3])

Sizes count rows (along dimension 0), one for each rank of the group, zero allowed, equal on all ranks. Nothing is copied
to bring blocks together where the tensors are contiguous. Groups of any backend that gathers lists of uneven tensors
serve (tutti, NCCL); of gloo, which does not, the gather goes by all_to_all_single.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

__all__ = [
    "all_gather_into_tensor",
    "all_gather_into_tensor_uneven",
    "reduce_scatter_tensor",
    "reduce_scatter_tensor_uneven",
]


def _rows(tensor: torch.Tensor) -> int:
    return tensor.size(0) if tensor.dim() else 1


def sizes_or_even(name: str, argument: str, sizes: Any, tensor: torch.Tensor, own: torch.Tensor, group: Any) -> list[int]:
    """The sizes as numbers, checked; None: even ones."""
    n, rows, whole = dist.get_world_size(group), _rows(tensor), argument.split("_")[0]
    if sizes is None:
        if rows % n:
            raise ValueError(f"{name}: {whole} has {rows} rows; expected a multiple of {n}, or {argument}")
        sizes = [rows // n] * n
    sizes = list(sizes)
    if len(sizes) != n:
        raise ValueError(f"{name}: {argument} has {len(sizes)} entries; expected {n}, one for each rank")
    for size in sizes:
        if size < 0:
            raise ValueError(f"{name}: {argument} has {size}; expected zero or more")
    if sum(sizes) != rows:
        raise ValueError(f"{name}: {argument} add up to {sum(sizes)}; expected {rows}, the rows of {whole}")
    mine = sizes[dist.get_rank(group)]
    if _rows(own) != mine or own.numel() * rows != tensor.numel() * mine:
        other = "input" if whole == "output" else "output"
        raise ValueError(f"{name}: {other} has the shape {tuple(own.shape)}; expected {mine} rows like those of {whole}")
    return sizes


def _asked(sizes: Any, tensor: torch.Tensor, group: Any, async_op: bool) -> Any:
    """Where no sizes are given, and there is time to ask: every rank tells its rows."""
    if sizes is not None or async_op:
        return sizes
    rows = torch.empty(dist.get_world_size(group), dtype=torch.int64, device=tensor.device)
    dist.all_gather_into_tensor(rows, torch.tensor([_rows(tensor)], dtype=torch.int64, device=tensor.device), group)
    return rows.tolist()


def _outside(group: Any) -> bool:
    return group is dist.GroupMember.NON_GROUP_MEMBER


def all_gather_into_tensor_uneven(output: torch.Tensor, input: torch.Tensor, output_split_sizes: Any = None,
                                  group: Any = None, async_op: bool = False) -> Any:
    """All inputs one after the other, along dimension 0; rank i's has output_split_sizes[i] rows. None: every rank tells
    its rows, by one more small all_gather; with `async_op`, which cannot wait for it, the rows are even."""
    if _outside(group):
        return None
    name = "all_gather_into_tensor_uneven"
    sizes = sizes_or_even(name, "output_split_sizes", _asked(output_split_sizes, input, group, async_op), output, input, group)
    if dist.get_backend(group) == "gloo":
        for_all = input.repeat(dist.get_world_size(group), *[1] * max(input.dim() - 1, 0))
        return dist.all_to_all_single(output, for_all, sizes, [_rows(input)] * len(sizes), group, async_op)
    parts = list(output.split(sizes)) if output.dim() else [output]
    return dist.all_gather(parts, input, group, async_op)


def reduce_scatter_tensor_uneven(output: torch.Tensor, input: torch.Tensor, input_split_sizes: Any = None,
                                 op: Any = dist.ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Any:
    """The combination of all ranks' inputs, of which rank i gets the i-th block of input_split_sizes[i] rows. None: as
    all_gather_into_tensor_uneven's, from the rows of every rank's `output`."""
    if _outside(group):
        return None
    name = "reduce_scatter_tensor_uneven"
    sizes = sizes_or_even(name, "input_split_sizes", _asked(input_split_sizes, output, group, async_op), input, output, group)
    parts = list(input.split(sizes)) if input.dim() else [input]
    return dist.reduce_scatter(output, parts, op, group, async_op)


def all_gather_into_tensor(output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any = None,
                           async_op: bool = False, *, output_split_sizes: Any = None) -> Any:
    """torch.distributed's, or with `output_split_sizes` all_gather_into_tensor_uneven."""
    if output_split_sizes is None:
        return dist.all_gather_into_tensor(output_tensor, input_tensor, group, async_op)
    return all_gather_into_tensor_uneven(output_tensor, input_tensor, output_split_sizes, group, async_op)


def reduce_scatter_tensor(output: torch.Tensor, input: torch.Tensor, op: Any = dist.ReduceOp.SUM, group: Any = None,
                          async_op: bool = False, *, input_split_sizes: Any = None) -> Any:
    """torch.distributed's, or with `input_split_sizes` reduce_scatter_tensor_uneven."""
    if input_split_sizes is None:
        return dist.reduce_scatter_tensor(output, input, op, group, async_op)
    return reduce_scatter_tensor_uneven(output, input, input_split_sizes, op, group, async_op)
