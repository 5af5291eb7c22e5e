"""Connected pieces of a graph's communication: collectives of one group, with the local steps between them. Each becomes one
operator, tutti_graph::replay_, which has tutti::graph optimise the piece and replay it (python/torch/pieces.hpp describes the
program that it is given).
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping

import torch
from torch.fx import Graph, Node

aten = torch.ops.aten
c10d = torch.ops._c10d_functional

#: Local steps that a piece may hold, by their names in a program. Beside tensors of one shape they take a number as their
#: second argument.
_UNARY: dict[Any, str] = {aten.abs.default: "abs", aten.exp.default: "exp", aten.neg.default: "neg", aten.relu.default: "relu",
          aten.sigmoid.default: "sigmoid", aten.sqrt.default: "sqrt", aten.tanh.default: "tanh"}
_BINARY: dict[Any, str] = {aten.add.Tensor: "add", aten.div.Tensor: "div", aten.maximum.default: "maximum",
           aten.minimum.default: "minimum", aten.mul.Tensor: "mul", aten.sub.Tensor: "sub"}
#: Other shapes of the same elements in the same order.
_VIEWS = (aten.view.default, aten.reshape.default, aten.unsqueeze.default, aten.squeeze.dim, aten._unsafe_view.default)
#: What tutti combines, and what it can therefore be given in a piece.
_DTYPES = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
           torch.float32, torch.float64)


@dataclass(eq=False)
class Piece:
    """Collectives of a group, in order, and what lies between them."""

    group: str
    collectives: list[tuple[str, Node, Node]]  #: tutti's name, the call, its wait
    between: set[Node]
    written: list[Node] = field(default_factory=list)  #: once it is issued, the nodes of its results
    _inputs: list[Node] = field(default_factory=list)
    _lines: list[tuple[str, int, list[int], str]] = field(default_factory=list)  #: step, result, sources, further words
    _results: list[int] = field(default_factory=list)
    _numbers: dict[Node, int] = field(default_factory=dict)  #: of values; equal where a node is a view of another


def may_hold(kind: str, call: Node) -> bool:
    """Whether the call can be part of a piece with others."""
    tensor = call.args[0]
    if not isinstance(tensor, Node) or not _is_plain(tensor) or not _is_plain(call):
        return False
    if kind in ("all_gather", "reduce_scatter"):
        return not _is_symbolic(call)  # the piece would have to compute the size of the result
    if kind != "all_to_all":
        return True
    received, sent = call.args[1], call.args[2]
    return len({*received, *sent}) == 1  # type: ignore[misc]


def _is_plain(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.device.type == "cpu" and value.is_contiguous() and value.dtype in _DTYPES


def _is_symbolic(node: Node) -> bool:
    return any(isinstance(size, torch.SymInt) for size in node.meta["val"].shape)


def is_step(node: Node) -> bool:
    """Whether it is local, and a piece may hold it."""
    if node.target is c10d.wait_tensor.default or not _is_plain(node):
        return False
    tensors = [argument for argument in node.args if isinstance(argument, Node)]
    if not tensors or node.kwargs or not all(_is_plain(tensor) for tensor in tensors):
        return False
    if node.target in _VIEWS:
        return isinstance(node.args[0], Node) and not _is_symbolic(node)
    if node.target not in _UNARY and node.target not in _BINARY:
        return False
    own = node.meta["val"]
    if node.args[0] is not tensors[0] or any(not _is_like(own, tensor.meta["val"]) for tensor in tensors):
        return False
    return node.target in _UNARY or len(tensors) == 2 or isinstance(node.args[1], (int, float))


def _is_like(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.dtype == other.dtype and [str(size) for size in one.shape] == [str(size) for size in other.shape]


# ---- Issue: the piece as a function, whose results are new


def replayed(inputs: list[Any], number: int) -> list[Any]:
    """Stands in a graph for a piece until its tensors are chosen."""
    raise RuntimeError("tutti.graph: a piece of communication has not become an operator")


torch.fx.node.has_side_effect(replayed)


def issue(graph: Graph, piece: Piece, number: int) -> None:
    """Puts `replayed` in the place of the piece's nodes."""
    place = {node: i for i, node in enumerate(graph.nodes)}
    nodes = {node for _, call, wait in piece.collectives for node in (call, wait)} | piece.between
    in_order = sorted(nodes, key=place.__getitem__)
    kinds = {call: kind for kind, call, _ in piece.collectives}
    views = {node for node in in_order if node.target in _VIEWS}
    first: dict[int, Node] = {}  # of each value, the node that makes it
    for node in in_order:
        if node.target is c10d.wait_tensor.default or node in views:
            piece._numbers[node] = _number(piece, node.args[0])  # type: ignore[arg-type]
            continue
        sources = [_number(piece, argument) for argument in node.args if isinstance(argument, Node)]
        piece._numbers[node] = own = len(piece._numbers)
        first[own] = node
        name, words = _step(node, kinds.get(node))
        piece._lines.append((name, own, sources, words))
    used_views = {view for view in views if _is_used_outside(view, nodes, views)}  # these stay, over the piece's results
    outside: dict[int, list[Node]] = {}  # of each value that others use, the nodes that they use it by
    for node in in_order:
        if node not in views and any(user not in nodes or user in used_views for user in node.users):
            outside.setdefault(piece._numbers[node], []).append(node)
    piece._results = list(outside)
    # Where its last collective was, on all ranks: its last wait may lie behind the next communication on some of them.
    with graph.inserting_after([node for node in in_order if node in kinds][-1]):
        call = graph.call_function(replayed, (piece._inputs, number))
    call.meta["val"] = [first[own].meta["val"] for own in piece._results]
    piece.written = [call]
    for i, own in enumerate(piece._results):
        with graph.inserting_after(piece.written[-1]):
            result = graph.call_function(operator.getitem, (call, i))
        result.meta["val"] = first[own].meta["val"]
        piece.written.append(result)
        for node in outside[own]:
            node.replace_all_uses_with(result)
    for node in reversed(in_order):
        if not node.users:
            graph.erase_node(node)


def _is_used_outside(view: Node, nodes: set[Node], views: set[Node]) -> bool:
    return any(user not in nodes or user in views and _is_used_outside(user, nodes, views) for user in view.users)


def _number(piece: Piece, node: Node) -> int:
    if node not in piece._numbers:
        piece._numbers[node] = len(piece._numbers)
        piece._inputs.append(node)
    return piece._numbers[node]


def _step(node: Node, kind: str | None) -> tuple[str, str]:
    """Its name in a program, and what follows the tensors."""
    if kind in ("all_reduce", "reduce_scatter", "broadcast"):
        return kind, str(node.args[1])  # the operator, or the root
    if kind is not None:
        return kind, ""
    if node.target in _UNARY:
        return _UNARY[node.target], ""
    number = node.args[1]
    if isinstance(number, Node):
        return _BINARY[node.target], ""
    return _BINARY[node.target], f"#f{number.hex()}" if isinstance(number, float) else f"#i{int(number)}"  # type: ignore[arg-type]


# ---- Lower: the operator, over tensors that it writes and reads


@dataclass(eq=False)
class _Buffer:
    """Memory of values, one after the other."""

    node: Node | None = None  #: of the graph; None: the piece's own
    written: bool = False


def lower(graph: Graph, piece: Piece, number: int, options: str, may_be_written: Callable[[Node, Node | None], bool],
          write_back_of: Callable[[Node, Node], Node | None]) -> None:
    """Puts the operator in the place of `replayed`. Results go to new tensors, or to the inputs that they are combined in:
    `write_back_of(input, result)` says which copy of a result the graph makes to an input anyway, and
    `may_be_written(input, write_back)` which inputs are needed no more."""
    call, *results = piece.written
    result_of = dict(zip(piece._results, results))
    inputs = {piece._numbers[node]: node for node in piece._inputs}
    buffers = {own: _Buffer(node) for own, node in inputs.items()}
    last_use = {source: i for i, (_, _, sources, _) in enumerate(piece._lines) for source in sources}
    lines: list[tuple[str, list[_Buffer], str]] = []
    for i, (name, own, sources, words) in enumerate(piece._lines):
        if name not in ("all_reduce", "broadcast"):
            buffers[own] = _Buffer()
            lines.append((name, [buffers[own], *(buffers[source] for source in sources)], words))
            continue
        source, buffer = sources[0], buffers[sources[0]]
        taken = source in result_of or last_use[source] != i
        if not taken and source in inputs:
            node = inputs[source]
            write_back = write_back_of(node, result_of[own]) if own in result_of else None
            taken = not may_be_written(node, write_back)
            if not taken and write_back is not None:
                write_back.replace_all_uses_with(node)
                graph.erase_node(write_back)
        if taken:
            buffer = _Buffer()
            lines.append(("copy", [buffer, buffers[source]], ""))
        buffer.written = True
        buffers[own] = buffer
        lines.append((name, [buffer], words))
    shaped_as = dict(inputs)  # where sizes are symbols, each value has the shape of the input that it comes from
    for _, own, sources, _ in piece._lines:
        shaped_as[own] = shaped_as[sources[0]]
    for own, result in result_of.items():
        buffer = buffers[own]
        if buffer.node is None:
            buffer.node, buffer.written = _empty(graph, call, result, shaped_as[own]), True
        result.replace_all_uses_with(buffer.node)
        graph.erase_node(result)
    _replay(graph, call, piece, [f"piece {number}", options], lines)


def _empty(graph: Graph, call: Node, like: Node, shaped_as: Node) -> Node:
    value = like.meta["val"]
    with graph.inserting_before(call):
        if _is_symbolic(like):
            made = graph.call_function(aten.empty_like.default, (shaped_as,), {"memory_format": torch.contiguous_format})
        else:
            made = graph.call_function(aten.empty.memory_format, (list(value.shape),),
                                       {"dtype": value.dtype, "device": value.device, "pin_memory": False})
    made.meta["val"] = value
    return made


def _replay(graph: Graph, call: Node, piece: Piece, words: list[str], lines: list[tuple[str, list[_Buffer], str]]) -> None:
    names: dict[_Buffer, str] = {}
    written: list[Node] = []
    read: list[Node] = []
    own = 0
    for _, buffers, _ in lines:
        for buffer in buffers:
            if buffer in names:
                continue
            if buffer.node is None:
                names[buffer] = f"t{own}"
                own += 1
            else:
                into = written if buffer.written else read
                names[buffer] = f"{'w' if buffer.written else 'r'}{len(into)}"
                into.append(buffer.node)
    words += [" ".join([name, *(names[buffer] for buffer in buffers), further]).strip() for name, buffers, further in lines]
    with graph.inserting_before(call):
        made = graph.call_function(torch.ops.tutti_graph.replay_.default, (written, read, "; ".join(words), piece.group))
    made.meta["val"] = None
    graph.erase_node(call)
    piece.written = [made]


def path(member: Node, piece: set[Node], others: Mapping[Node, set[Node]], place: dict[Node, int]) -> list[Node] | None:
    """The nodes by which `member` needs a piece, in order, with those of the piece that it needs by name alone; []: it does not
    need the piece. None: it needs it through what becomes one call with something else. `others`: of each node that will be
    part of a piece or call, all nodes of that."""
    seen, pending, needed_of_piece = set[Node](), [member], set[Node]()
    while pending:
        for needed in pending.pop().all_input_nodes:
            if needed in piece:
                needed_of_piece.add(needed)
            elif needed not in seen:
                more = {needed, *others.get(needed, ())} - seen
                seen |= more
                pending += more
    if not needed_of_piece:
        return []
    reached = set(needed_of_piece)
    for node in sorted(seen, key=place.__getitem__):
        if any(needed in reached or needed in piece for needed in node.all_input_nodes):
            if node in others:
                return None
            reached.add(node)
    return sorted(reached, key=place.__getitem__)
