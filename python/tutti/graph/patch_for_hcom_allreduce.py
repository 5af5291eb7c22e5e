"""Importing this replaces torch.distributed.all_reduce by PyTorch's functional all_reduce, copied back in place; for scripts
of inference that call nothing else. tutti.graph.patch_for_hcom() is the better way: it replaces no function."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional

from . import patch, traced

eager = dist.all_reduce


def all_reduce(tensor: torch.Tensor, op: Any = dist.ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Any:
    """torch.distributed's. With `async_op`, and for operators that have no functional form, it is the one that was there."""
    if async_op or group is dist.GroupMember.NON_GROUP_MEMBER or op not in functional.REDUCE_OP_TO_STR:
        return eager(tensor, op, group, async_op)
    result = functional.all_reduce(tensor.detach(), functional.REDUCE_OP_TO_STR[op], group or dist.group.WORLD)
    with torch.no_grad():
        tensor.copy_(result)
    return None


def _install() -> None:
    patch.trace_as(eager, traced.all_reduce)
    patch.trace_as(all_reduce, traced.all_reduce)
    patch.install_rewriting()
    for module in (dist, dist.distributed_c10d):
        module.all_reduce = all_reduce


_install()
