"""The operators tutti_graph::* for the compiler: shapes, gradients, what must not be dropped, and how inductor calls them.
The operators themselves are C++ (python/torch/graph_ops.cpp)."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.distributed import distributed_c10d

from ..torch._module import backend
from .order import keeping_order

#: Those of ours that write their first argument; all others return what is new.
IN_PLACE = ("all_reduce_", "all_reduce_coalesced_", "broadcast_", "replay_")
#: The collectives that inductor's graphs call, by tutti's names, and PyTorch's operators for them.
FORMS = {"all_reduce": "all_reduce", "all_gather": "all_gather_into_tensor", "reduce_scatter": "reduce_scatter_tensor",
         "all_to_all": "all_to_all_single", "broadcast": "broadcast"}
#: Those of which several may be one call: NAME_coalesced.
TOGETHER = ("all_reduce", "all_gather", "reduce_scatter")
#: PyTorch's own, of which two equal calls are not one.
PYTORCH_NAMES = (*FORMS.values(), *(f"{FORMS[name]}_coalesced" for name in TOGETHER))


def _members(group_name: str) -> Any:
    return distributed_c10d._resolve_process_group(group_name)


def _with_rows(tensor: Any, rows: Any) -> Any:
    return tensor.new_empty([rows, *tensor.shape[1:]])


def _rows(tensor: Any) -> Any:
    return tensor.shape[0] if tensor.dim() else 1


def _gathered(tensor: Any, group_size: int) -> Any:
    return _with_rows(tensor, _rows(tensor) * group_size)


def _scattered(tensor: Any, group_size: int) -> Any:
    return _with_rows(tensor, _rows(tensor) // group_size)


def _uneven_gathered(input: Any, output_split_sizes: Any, group_name: str) -> Any:
    for size in output_split_sizes:
        torch._check(size >= 0)
    return _with_rows(input, sum(output_split_sizes))


def _uneven_scattered(input: Any, input_split_sizes: Any, reduce_op: str, group_name: str) -> Any:
    return _with_rows(input, input_split_sizes[_members(group_name).rank()])


def _gather(tensor: Any, root: int, group_size: int, group_name: str) -> Any:
    return _with_rows(tensor, _rows(tensor) * group_size if _members(group_name).rank() == root else 0)


def _like(tensor: Any, *others: Any) -> Any:
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def _token(tensor: Any, *others: Any) -> Any:
    return tensor.new_empty([0])


def _nothing(*arguments: Any) -> None:
    return None


_FAKES = {
    "all_reduce_": _nothing, "all_reduce_coalesced_": _nothing, "broadcast_": _nothing, "replay_": _nothing,
    "all_gather_into_tensor": lambda input, group_size, group_name: _gathered(input, group_size),
    "all_gather_into_tensor_coalesced":
        lambda inputs, group_size, group_name: [_gathered(input, group_size) for input in inputs],
    "reduce_scatter_tensor": lambda input, reduce_op, group_size, group_name: _scattered(input, group_size),
    "reduce_scatter_tensor_coalesced":
        lambda inputs, reduce_op, group_size, group_name: [_scattered(input, group_size) for input in inputs],
    "all_to_all_single":
        lambda input, output_split_sizes, input_split_sizes, group_name: _with_rows(input, sum(output_split_sizes)),
    "all_gather_into_tensor_uneven": _uneven_gathered, "reduce_scatter_tensor_uneven": _uneven_scattered,
    "reduce": _like, "gather": _gather, "scatter": _like, "barrier": _token, "send": _token, "recv": _like,
    "start_send": _like, "start_recv": _like,
}
NAMES = tuple(_FAKES)


def _keep_sizes_of_gather(ctx: Any, inputs: Any, output: Any) -> None:
    _, ctx.sizes, ctx.group_name = inputs


def _gradient_of_gather(ctx: Any, gradient: Any) -> Any:
    """Every rank has used all rows, so each gets the sum of what they mean for its own."""
    own = torch.ops.tutti_graph.reduce_scatter_tensor_uneven(gradient.contiguous(), ctx.sizes, "sum", ctx.group_name)
    return own, None, None


def _keep_sizes_of_scatter(ctx: Any, inputs: Any, output: Any) -> None:
    _, ctx.sizes, ctx.reduce_op, ctx.group_name = inputs


def _gradient_of_scatter(ctx: Any, gradient: Any) -> Any:
    if ctx.reduce_op not in ("sum", "avg"):
        raise RuntimeError(f"reduce_scatter_tensor_uneven: reduce_op {ctx.reduce_op!r} has no gradient; expected sum or avg")
    if ctx.reduce_op == "avg":
        gradient = gradient / _members(ctx.group_name).size()
    whole = torch.ops.tutti_graph.all_gather_into_tensor_uneven(gradient.contiguous(), ctx.sizes, ctx.group_name)
    return whole, None, None, None


@functools.cache
def register() -> None:
    """Loads the operators, and tells PyTorch about them."""
    backend()
    for name, fake in _FAKES.items():
        torch.library.register_fake(f"tutti_graph::{name}", fake)
        packet = getattr(torch.ops.tutti_graph, name)
        torch.fx.node.has_side_effect(packet)
        torch.fx.node.has_side_effect(packet.default)
    torch.library.register_autograd("tutti_graph::all_gather_into_tensor_uneven", _gradient_of_gather,
                                    setup_context=_keep_sizes_of_gather)
    torch.library.register_autograd("tutti_graph::reduce_scatter_tensor_uneven", _gradient_of_scatter,
                                    setup_context=_keep_sizes_of_scatter)
    # PyTorch's own are not dropped only because somebody waits for them; our handles may outlive the graph.
    for name in PYTORCH_NAMES:
        torch.fx.node.has_side_effect(getattr(torch.ops._c10d_functional, name).default)


@functools.cache
def lower() -> None:
    """Tells inductor that these are collectives, which its scheduler must keep in order and may not move others over."""
    register()
    from torch._inductor import ir
    from torch._inductor.lowering import add_layout_constraint, constrain_to_fx_strides, register_lowering
    from torch._inductor.virtualized import V
    from torch.utils import _pytree as pytree

    _keep_order(ir._CollectiveKernel, V)
    from torch._inductor.fx_passes import post_grad

    post_grad.reorder_for_locality = keeping_order(post_grad.reorder_for_locality)

    def box(node: Any) -> Any:
        return pytree.tree_map(ir.TensorBox.create, node)

    def out_of_place(operator: Any) -> Any:
        def lowering(*arguments: Any) -> Any:
            return box(ir._CollectiveKernel.create_out_of_place(operator, *arguments))

        return lowering

    def in_place(operator: Any) -> Any:
        def lowering(*arguments: Any) -> None:
            with V.graph.fake_mode:
                result = ir._CollectiveKernel.process_kernel(operator, *arguments)
            if isinstance(result, tuple):  # PyTorch 2.13
                _, tensors, others, unflatten, _ = result
            else:
                tensors, others, unflatten = result.tensor_args, result.non_tensor_args, result.unflatten_args
            written = {tensor.get_name() for tensor in _listed(arguments[0])}
            for tensor in tensors:
                tensor.realize()
                if tensor.get_name() in written:
                    V.graph.mark_buffer_mutated(tensor.get_name())
            # The schema says what is written.
            ir._CollectiveKernel(ir.NoneLayout(device=tensors[0].get_device()), operator, tensors, others, unflatten)

        return lowering

    for name in NAMES:
        operator = getattr(torch.ops.tutti_graph, name).default
        add_layout_constraint(operator, constrain_to_fx_strides)
        register_lowering(operator, type_promotion_kind=None)(in_place(operator) if name in IN_PLACE else out_of_place(operator))


def _listed(argument: Any) -> Any:
    return argument if isinstance(argument, (list, tuple)) else [argument]


def _keep_order(kernel: Any, virtualized: Any) -> None:
    """Each collective, message and wait of a graph comes after the one before it. Inductor knows only their data: it puts a
    wait before the send that another rank waits for, where that lets it fuse what is computed around them."""
    plain = kernel.__init__

    @functools.wraps(plain)
    def in_order(self: Any, *arguments: Any, **keywords: Any) -> None:
        plain(self, *arguments, **keywords)
        graph = virtualized.graph
        before = getattr(graph, "_tutti_last_effect", None)
        if before is not None:
            graph.additional_buffer_deps[self.operation_name].add(before)
        graph._tutti_last_effect = self.get_name()

    kernel.__init__ = in_order
