"""Plans: calls that are checked once and made often on the same arrays.

    step = tutti.distributed.plan.all_reduce(gradient)
    while training:
        fill(gradient)
        step.run()

Each function takes what the plain one takes. A plan talks as the plain call does: ranks may mix the two.
"""
from __future__ import annotations

from typing import Any

from .. import _core
from .._core import Plan, ReduceOp
from .collectives import Group

__all__ = ["Plan", "all_gather_into_tensor", "all_reduce", "all_to_all_single", "barrier", "broadcast", "recv",
           "reduce_scatter_tensor", "send"]


def all_reduce(tensor: Any, op: ReduceOp = ReduceOp.SUM, group: Group = None) -> Plan:
    return _core.plan_all_reduce(tensor, op, group)


def broadcast(tensor: Any, src: int | None = None, group: Group = None, group_src: int | None = None) -> Plan:
    return _core.plan_broadcast(tensor, src, group, group_src)


def all_gather_into_tensor(output_tensor: Any, input_tensor: Any, group: Group = None) -> Plan:
    return _core.plan_all_gather_into_tensor(output_tensor, input_tensor, group)


def reduce_scatter_tensor(output: Any, input: Any, op: ReduceOp = ReduceOp.SUM, group: Group = None) -> Plan:
    return _core.plan_reduce_scatter_tensor(output, input, op, group)


def all_to_all_single(output: Any, input: Any, group: Group = None) -> Plan:
    return _core.plan_all_to_all_single(output, input, group)


def barrier(group: Group = None) -> Plan:
    return _core.plan_barrier(group)


def send(tensor: Any, dst: int, group: Group = None, tag: int = 0) -> Plan:
    return _core.plan_send(tensor, dst, group, tag)


def recv(tensor: Any, src: int | None = None, group: Group = None, tag: int = 0) -> Plan:
    return _core.plan_recv(tensor, src, group, tag)
