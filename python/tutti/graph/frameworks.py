"""Wrappers of frameworks around torch.distributed's functions: they time and log their calls, which no graph can hold.
While Dynamo reads them they are the functions below them."""

from __future__ import annotations

import functools
import importlib.abc
import importlib.util
import inspect
import sys
from types import ModuleType
from typing import Any, Callable

import torch
import torch.distributed as dist

#: deepspeed.comm's functions, and what they are in torch.distributed.
_DEEPSPEED = {
    "all_reduce": "all_reduce", "inference_all_reduce": "all_reduce", "broadcast": "broadcast", "reduce": "reduce",
    "all_gather": "all_gather", "all_gather_into_tensor": "all_gather_into_tensor",
    "reduce_scatter": "reduce_scatter", "reduce_scatter_tensor": "reduce_scatter_tensor",
    "all_to_all_single": "all_to_all_single", "all_to_all": "all_to_all", "gather": "gather", "scatter": "scatter",
    "send": "send", "recv": "recv", "isend": "isend", "irecv": "irecv", "barrier": "barrier",
}
#: Arguments of theirs that only time and log.
_ABOUT_LOGS = ("prof", "log_name", "debug")


def _plain_all_reduce(tensor: Any, op: Any = None, group: Any = None, async_op: bool = False) -> Any:
    return _with_op(dist.all_reduce, op, tensor=tensor, group=group, async_op=async_op)


def _plain_reduce(tensor: Any, dst: int, op: Any = None, group: Any = None, async_op: bool = False) -> Any:
    return _with_op(dist.reduce, op, tensor=tensor, dst=dst, group=group, async_op=async_op)


def _plain_reduce_scatter(output: Any, input_list: Any, op: Any = None, group: Any = None, async_op: bool = False) -> Any:
    return _with_op(dist.reduce_scatter, op, output=output, input_list=input_list, group=group, async_op=async_op)


def _plain_reduce_scatter_tensor(output_tensor: Any, tensor: Any, op: Any = None, group: Any = None,
                                 async_op: bool = False) -> Any:
    return _with_op(dist.reduce_scatter_tensor, op, output=output_tensor, input=tensor, group=group, async_op=async_op)


def _plain_all_gather_into_tensor(output_tensor: Any, tensor: Any, group: Any = None, async_op: bool = False) -> Any:
    return dist.all_gather_into_tensor(output_tensor, tensor, group=group, async_op=async_op)


def _plain_all_to_all_single(output: Any, tensor: Any, output_split_sizes: Any = None, input_split_sizes: Any = None,
                             group: Any = None, async_op: bool = False) -> Any:
    return dist.all_to_all_single(output, tensor, output_split_sizes, input_split_sizes, group=group, async_op=async_op)


def _plain_barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Any:
    return dist.barrier(group, async_op, device_ids)


_PLAIN: dict[str, Callable] = {
    "all_reduce": _plain_all_reduce, "inference_all_reduce": _plain_all_reduce, "reduce": _plain_reduce,
    "reduce_scatter": _plain_reduce_scatter, "reduce_scatter_tensor": _plain_reduce_scatter_tensor,
    "all_gather_into_tensor": _plain_all_gather_into_tensor, "all_to_all_single": _plain_all_to_all_single,
    "barrier": _plain_barrier,
}


def _with_op(function: Any, op: Any, **given: Any) -> Any:
    """An operator of theirs is torch.distributed's of the same name."""
    name = "SUM" if op is None else op.name
    if name == "SUM":
        return function(op=dist.ReduceOp.SUM, **given)
    if name == "AVG":
        return function(op=dist.ReduceOp.AVG, **given)
    if name == "PRODUCT":
        return function(op=dist.ReduceOp.PRODUCT, **given)
    if name == "MIN":
        return function(op=dist.ReduceOp.MIN, **given)
    if name == "MAX":
        return function(op=dist.ReduceOp.MAX, **given)
    if name == "BAND":
        return function(op=dist.ReduceOp.BAND, **given)
    if name == "BOR":
        return function(op=dist.ReduceOp.BOR, **given)
    if name == "BXOR":
        return function(op=dist.ReduceOp.BXOR, **given)
    raise ValueError(f"op is {name}; expected one that torch.distributed has")


def _inner(wrapper: Callable) -> Callable:
    """What timed_op has wrapped, whose signature its wrapper does not show."""
    inner = inspect.getclosurevars(wrapper).nonlocals.get("func", wrapper) if inspect.isfunction(wrapper) else wrapper
    return inner if callable(inner) else wrapper


def _replacement(eager: Callable, plain: Callable) -> Callable:
    names = list(inspect.signature(_inner(eager)).parameters)

    @functools.wraps(eager)
    def replacement(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            given = {name: value for name, value in zip(names, args) if name not in _ABOUT_LOGS}
            given.update({name: value for name, value in kwargs.items() if name not in _ABOUT_LOGS})
            return plain(**given)
        return eager(*args, **kwargs)

    replacement._is_traceable = True  # type: ignore[attr-defined]
    return replacement


def _patch_deepspeed(comm: ModuleType) -> None:
    package = sys.modules.get("deepspeed.comm")
    for name, plain_name in _DEEPSPEED.items():
        eager = getattr(comm, name, None)
        if eager is None or getattr(eager, "_is_traceable", False):
            continue
        made = _replacement(eager, _PLAIN.get(name, getattr(dist, plain_name)))
        setattr(comm, name, made)
        if package is not None and getattr(package, name, None) is eager:
            setattr(package, name, made)


_PATCHES: dict[str, Callable[[ModuleType], None]] = {"deepspeed.comm.comm": _patch_deepspeed}


class _WhenImported(importlib.abc.MetaPathFinder):
    """Patches a module as soon as it has been imported."""

    def __init__(self) -> None:
        self._searching = False

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name not in _PATCHES or self._searching:
            return None
        self._searching = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._searching = False
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            _PATCHES[name](module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


@functools.cache
def install() -> None:
    for name, patch in _PATCHES.items():
        if name in sys.modules:
            patch(sys.modules[name])
    if not all(name in sys.modules for name in _PATCHES):
        sys.meta_path.insert(0, _WhenImported())
