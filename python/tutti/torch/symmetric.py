"""Tensors that the other ranks of the host read and write where they lie."""

from __future__ import annotations

from typing import Any

import torch
from ._groups import members_of


def empty_symmetric(*size: Any, dtype: torch.dtype | None = None, group: Any = None) -> torch.Tensor:
    """A new tensor in host memory that the other ranks of its host map too; all zero.

    It is an ordinary tensor: any operation of any group takes it, whole or in part. Those of `group` (the default group)
    move its elements without a copy in between, which large ones gain from; best is when all ranks' tensors are such.
    For buffers that are used again and again: a communication hook's of DistributedDataParallel, what the allocate() of
    fully_shard's set_custom_all_gather() and its like returns, parameters, activations.

    A collective call: all ranks of the group call it in the same order, with equal sizes and dtype. The memory is given
    back when the last tensor of the last rank that shares it has gone. size: numbers, or one sequence of them, as for
    torch.empty. dtype: torch.get_default_dtype() where none is given.
    """
    sizes = list(size[0]) if len(size) == 1 and not isinstance(size[0], int) else list(size)
    return members_of(group, "empty_symmetric").empty_symmetric(sizes, torch.get_default_dtype() if dtype is None else dtype)
