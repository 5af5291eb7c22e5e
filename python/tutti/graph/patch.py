"""Teaches Dynamo to read the functions of traced.py where a program calls those of torch.distributed.

Dynamo looks a function up in traceable_collective_remaps, takes the replacement by its name from the module
torch.distributed._functional_collectives, and calls CollectiveFunctionRewriteVariable.call_function, which refuses
async_op=True, messages, and reduction operators of other functions than four. Ours are called without that.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any, Callable

import torch
import torch._dynamo
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional
from torch.distributed import distributed_c10d

from . import frameworks, ops, traced

_replacements: dict[Any, Callable] = {}


def trace_as(eager: Any, replacement: Callable) -> None:
    """From now on Dynamo reads `replacement` where `eager` is called."""
    known = _named(replacement)
    _replacements[eager] = known
    functional.traceable_collective_remaps[eager] = known


def _named(replacement: Callable) -> Callable:
    """Where Dynamo looks for it: by its name, in the module of PyTorch's own."""
    name = f"_tutti_{replacement.__name__}"
    if not hasattr(functional, name):
        replacement.__name__ = name
        setattr(functional, name, replacement)
    return getattr(functional, name)


@functools.cache
def install_rewriting() -> None:
    from torch._dynamo.variables.functions import CollectiveFunctionRewriteVariable

    original = CollectiveFunctionRewriteVariable.call_function

    def call_function(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        if self.fn not in _replacements:
            return original(self, tx, args, kwargs)
        ops.lower()
        if self.fn is dist.batch_isend_irecv:
            return original(self, tx, args, kwargs)  # which takes its list to pieces
        signature = inspect.signature(self.fn)
        bound = dict(signature.bind(*args, **kwargs).arguments)
        if "op" in bound:
            bound["op"] = _operator(tx, self.fn, bound["op"])
        return self.replacement_var.call_function(tx, [], bound)

    CollectiveFunctionRewriteVariable.call_function = call_function  # type: ignore[method-assign]
    torch._dynamo.config.enable_p2p_compilation = True  # P2POp: what it leads to is ours


def _operator(tx: Any, eager: Any, given: Any) -> Any:
    """A ReduceOp of the program as the name that functional operators take."""
    from torch._dynamo.exc import unimplemented
    from torch._dynamo.variables.base import VariableTracker

    value = given.as_python_constant() if given.is_python_constant() else getattr(given, "value", None)
    name = next((name for op, name in functional.REDUCE_OP_TO_STR.items() if op == value), None)
    if name is None:
        unimplemented(
            gb_type="reduction operator without a functional form", context=f"{eager.__name__}, op={value}",
            explanation=f"{eager.__name__} with op={value} cannot be part of a graph.",
            hints=["Use SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR or BXOR, or call it outside of the graph."])
    return VariableTracker.build(tx, name)


def _replacements_in_traced() -> dict[str, Callable]:
    """Its functions, by the names that they have there, and by further ones that torch.distributed has for the same."""
    found = {name: value for name, value in vars(traced).items() if inspect.isfunction(value) and not name.startswith("_")}
    return found | {other: found[name] for other, name in traced.FURTHER_NAMES.items()}


@functools.cache
def install() -> None:
    from ..torch import uneven

    ops.register()
    install_rewriting()
    for name, replacement in _replacements_in_traced().items():
        if hasattr(distributed_c10d, name):
            trace_as(getattr(distributed_c10d, name), replacement)
        elif hasattr(uneven, name):
            trace_as(getattr(uneven, name), replacement)
            setattr(dist, name, getattr(uneven, name))  # where programs for other accelerators look for them
    _keep_equal_calls()
    frameworks.install()


def _keep_equal_calls() -> None:
    """Two equal calls are two: another rank may call the second with something else."""
    from torch._functorch import compile_utils

    namespaces = (torch.ops._c10d_functional, torch.ops.tutti_graph)
    for namespace in namespaces:
        for name in {*ops.NAMES, *ops.PYTORCH_NAMES}:
            packet = getattr(namespace, name, None)
            if packet is not None and packet not in compile_utils.rand_ops:
                compile_utils.rand_ops.append(packet)
