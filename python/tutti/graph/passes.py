"""Passes over the graph of a compiled function, before inductor makes code of it.

    pieces      small collectives of one group that do not need each other, or only by way of local steps, are one call, which
                tutti::graph optimises: it knows algebra, buckets and memory (pieces.py). Where it cannot serve (groups of other
                backends, calls that go on in the background) those of one kind, (operation, operator, dtype), are one call;
    order       long collectives start as early and are waited for as late as the graph allows;
    in place    all other collectives are done in the tensor that they are given, when their call returns: no clone, no copy
                back, no Work that is kept, no wait.

Collectives of a graph keep their order but for what becomes one call. All ranks decide alike: from the graph, and from
numbers that the ranks agreed on when they met. Where their graphs differ, the first collective that differs is an error on
all of them: each says what it is part of.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any, Callable, Iterable

import torch
from torch.fx import Graph, Node

from . import ops, pieces
from .order import dependencies, has_effects, in_order_of, is_mutation, place_as
from .pieces import Piece

aten = torch.ops.aten
c10d = torch.ops._c10d_functional


def _pytorchs(form: str) -> Any:
    """`_c10d_functional`'s operator, which goes on behind its call."""
    return getattr(c10d, form).default


def _own(form: str) -> Any:
    """Ours, which is done when its call returns; in place where there is one in place."""
    return getattr(torch.ops.tutti_graph, f"{form}_" if f"{form}_" in ops.IN_PLACE else form).default


#: What inductor's graphs call, and tutti's name of it.
_COLLECTIVES = {_pytorchs(form): name for name, form in ops.FORMS.items()}
_TOGETHER = {name: (_pytorchs(f"{ops.FORMS[name]}_coalesced"), _own(f"{ops.FORMS[name]}_coalesced"))
             for name in ops.TOGETHER}
_ALONE = {name: _own(form) for name, form in ops.FORMS.items()}


@dataclass
class Settings:
    """What the passes do. `predicted_us`: of a group's name, tutti's name of a collective, and bytes."""

    bucket: bool
    algebra: bool
    overlap: bool
    in_place: bool
    overlap_us: float
    bucket_bytes: Callable[[str], int]
    predicted_us: Callable[[str, str, int], float]
    replays: Callable[[str], bool]  #: whether tutti can replay pieces of the group of this name


@dataclass(eq=False)
class Call:
    """One or several collectives that are issued together."""

    kind: str
    key: tuple
    members: list[Node]
    waits: list[Node]
    bytes: int
    background: bool = False
    issued: list[Node] = field(default_factory=list)


@dataclass(eq=False)
class Join:
    """Calls of one group that may be issued together, and the local steps between them."""

    calls: list[Call]
    steps: set[Node] = field(default_factory=set)
    chained: bool = False  #: one needs another
    bytes: int = 0

    def nodes(self) -> set[Node]:
        return {node for call in self.calls for node in (*call.members, *call.waits)} | self.steps


def run(graph: Graph, settings: Settings) -> list[Call | Piece]:
    """Changes the graph; returns what communicates, in order."""
    movable = _movable(graph)
    found = _find(movable)
    joins = _join(movable, found, settings) if settings.bucket else [Join([call]) for call in found]
    calls: list[Call | Piece] = []
    for join in joins:
        calls += _of_join(movable, join, settings)
    place = {node: i for i, node in enumerate(movable)}
    calls.sort(key=lambda call: max(place[node] for node in _issues(call)))
    for number, call in enumerate(calls):
        if isinstance(call, Piece):
            pieces.issue(graph, call, number)
        else:
            _issue(graph, call, settings)
    _order(graph, [call for call in calls if isinstance(call, Call) and call.background])
    for number, call in enumerate(calls):
        if isinstance(call, Piece):
            _lower(graph, call, number, settings)
        elif settings.in_place and not call.background and call.kind in ("all_reduce", "broadcast"):
            _put_in_place(graph, call)
    graph.eliminate_dead_code()
    graph.lint()
    return calls


def _movable(graph: Graph) -> list[Node]:
    """Up to the first node that writes to a tensor: before it the order is only that of the data."""
    nodes = []
    for node in graph.nodes:
        if is_mutation(node) or node.op == "output":
            break
        nodes.append(node)
    return nodes


def _bytes_of(node: Node) -> int | None:
    """Of a symbolic size: by the example that the graph was made with; None where there is none."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return None
    count = value.numel()
    if isinstance(count, torch.SymInt):
        count = count.node.hint
    return None if count is None else int(count) * value.element_size()


def _find(nodes: Iterable[Node]) -> list[Call]:
    """The collectives whose result is waited for once."""
    calls, fences = [], 0
    for node in nodes:
        kind = _COLLECTIVES.get(node.target) if node.op == "call_function" else None
        users = list(node.users)
        size = _bytes_of(node) if kind else None
        if kind and size is not None and len(users) == 1 and users[0].target is c10d.wait_tensor.default:
            tensor = node.args[0]
            key = (kind, *node.args[1:], tensor.meta["val"].dtype, tensor.meta["val"].device, fences)  # type: ignore[union-attr]
            calls.append(Call(kind, key, [node], users, size))
        elif node.op == "call_function" and has_effects(node):
            fences += 1  # no collective is moved over it
    return calls


def _group_of(call: Call) -> str:
    return str(call.members[0].args[-1])


# ---- What is issued together


def _join(nodes: list[Node], calls: list[Call], settings: Settings) -> list[Join]:
    """Each call joins the last one of its group, or of its kind, if what both need and what needs them stays in order. Those
    that need each other by local steps are small; those that do not are small together."""
    place = {node: i for i, node in enumerate(nodes)}
    joins: list[Join] = []
    open_joins: dict[tuple, Join] = {}
    others: dict[Node, set[Node]] = {}  # of each node of a join of several, or of a call, all of them
    for call in calls:
        member, group = call.members[0], _group_of(call)
        mixes = settings.in_place and settings.replays(group) and pieces.may_hold(call.kind, member)
        limit = settings.bucket_bytes(group) if mixes or call.kind in _TOGETHER else 0
        key = (group, call.key[-1]) if mixes else call.key
        join = open_joins.get(key)
        if join is None or call.bytes >= limit or not _may_join(join, call, mixes, limit, others, place):
            join = Join([])
            joins.append(join)
            if call.bytes < limit:
                open_joins[key] = join
        join.calls.append(call)
        join.bytes += call.bytes
        together = join.nodes()
        others.update((node, together) for node in together)
    return joins


def _may_join(join: Join, call: Call, mixes: bool, limit: int, others: dict[Node, set[Node]], place: dict[Node, int]) -> bool:
    """Also takes the local steps between them into the join."""
    nodes = join.nodes()
    path = pieces.path(call.members[0], nodes, others, place)
    if path is None:
        return False
    if not path:
        return join.bytes + call.bytes <= limit
    between = [node for node in path if node not in nodes]
    if not mixes or not all(pieces.is_step(node) and (_bytes_of(node) or 0) < limit for node in between):
        return False
    join.steps.update(between)
    join.chained = True
    return True


def _of_join(movable: list[Node], join: Join, settings: Settings) -> list[Call | Piece]:
    """A piece; or calls, each with those of one kind, where they go on in the background or tutti cannot replay them."""
    alike: dict[tuple, Call] = {}
    for i, call in enumerate(join.calls):
        key = call.key if call.kind in _TOGETHER else (i,)
        of_key = alike.setdefault(key, Call(call.kind, call.key, [], [], 0))
        of_key.members += call.members
        of_key.waits += call.waits
        of_key.bytes += call.bytes
    calls = list(alike.values())
    group = _group_of(calls[0])
    if not join.chained and settings.overlap:
        takes = sum(settings.predicted_us(group, call.kind, call.bytes) for call in calls)
        if takes >= settings.overlap_us:
            for call in calls:
                call.background = _may_overlap(movable, call)
    if len(join.calls) == 1 or any(call.background for call in calls) or \
            not (settings.in_place and settings.replays(group)):
        return [*calls]
    return [Piece(group, [(call.kind, call.members[0], call.waits[0]) for call in join.calls], join.steps)]


def _issues(call: Call | Piece) -> list[Node]:
    return call.members if isinstance(call, Call) else [member for _, member, _ in call.collectives]


def _may_overlap(movable: list[Node], call: Call) -> bool:
    """Whether there is something to compute meanwhile: what the call does not need, and what does not need it."""
    bound = _reached(call.members, lambda node: node.all_input_nodes) | _reached(call.waits, lambda node: node.users)
    return any(node not in bound and _computes(node) for node in movable)


def _reached(nodes: Iterable[Node], step: Callable[[Node], Iterable[Node]]) -> set[Node]:
    found, pending = set(nodes), list(nodes)
    while pending:
        for node in step(pending.pop()):
            if node not in found:
                found.add(node)
                pending.append(node)
    return found


def _computes(node: Node) -> bool:
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target.namespace in ("_c10d_functional", "tutti_graph"):
        return False
    return not any(argument.alias_info is not None for argument in target._schema.returns)


# ---- The new calls


def _issue(graph: Graph, call: Call, settings: Settings) -> None:
    """Replaces members and waits. What is written in place is still a function here: its result is its argument."""
    if call.background and len(call.members) == 1 or not settings.in_place and len(call.members) == 1:
        call.issued = [call.members[0]]
        return
    behind = call.background or not settings.in_place
    inputs = [member.args[0] for member in call.members]
    arguments = call.members[0].args[1:]
    examples = [wait.meta.get("val") for wait in call.waits]
    with graph.inserting_after(call.members[-1]):
        if len(inputs) > 1:
            issued = graph.call_function(_TOGETHER[call.kind][0 if behind else 1], (inputs, *arguments))
            issued.meta["val"] = examples
        else:
            issued = graph.call_function(_ALONE[call.kind], (inputs[0], *arguments))
            issued.meta["val"] = examples[0]
    call.issued = [issued]
    at = issued
    new_waits = []
    for i, (wait, example) in enumerate(zip(call.waits, examples)):
        result = issued
        if len(inputs) > 1:
            with graph.inserting_after(at):
                result = at = graph.call_function(operator.getitem, (issued, i))
            result.meta["val"] = example
            call.issued.append(result)
        if behind:
            with graph.inserting_after(at):
                result = at = graph.call_function(c10d.wait_tensor.default, (result,))
            result.meta["val"] = example
            new_waits.append(result)
        wait.replace_all_uses_with(result)
    for node in (*call.waits, *call.members):
        graph.erase_node(node)
    call.waits = new_waits


# ---- Order


def _order(graph: Graph, background: list[Call]) -> None:
    """Sorts by data, otherwise as the program is written; what goes on in the background begins early and ends late."""
    nodes = list(graph.nodes)
    place = {node: float(i) for i, node in enumerate(nodes)}
    after, _ = dependencies(nodes)
    in_order = in_order_of(nodes, place, after)
    effects = [node for node in in_order if has_effects(node)]
    for before, effect in zip(effects, effects[1:]):  # and what communicates stays in this order
        after[effect].add(before)
    place = {node: float(i) for i, node in enumerate(in_order)}
    for call in background:  # nodes that need its results come behind all others
        for node in _reached(call.waits, lambda node: node.users):
            place[node] += len(nodes)
    for call in background:
        start = call.issued[0]
        place[start] = max((place[needed] for needed in after[start]), default=-1.0) + 0.5
    place_as(in_order_of(nodes, place, after))


# ---- In place


def _storage(node: Node) -> Any:
    value = node.meta.get("val")
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else None


class _Memory:
    """Which nodes of a graph share memory, and in which order they stand."""

    def __init__(self, graph: Graph) -> None:
        self._place = {node: i for i, node in enumerate(graph.nodes)}
        self._by_storage: dict[Any, list[Node]] = {}
        for node in graph.nodes:
            self._by_storage.setdefault(_storage(node), []).append(node)

    def may_be_written(self, tensor: Node, issued: Node, write_back: Node | None) -> bool:
        """Whether nobody needs the tensor as it was, once the call is issued."""
        value = tensor.meta.get("val")
        if not isinstance(value, torch.Tensor) or not value.is_contiguous():
            return False
        sharing = self._by_storage[_storage(tensor)]
        if sharing[0] is not tensor or (tensor.op == "placeholder") != (write_back is not None):
            return False  # a part of something else, or the caller's
        if tensor.op not in ("placeholder", "call_function"):
            return False
        for node in sharing:
            if node is write_back:
                continue
            for user in node.users:
                if user is not issued and user is not write_back and self._place[user] > self._place[issued]:
                    return False
        return True


def _put_in_place(graph: Graph, call: Call) -> None:
    """The call writes its arguments; who used its results uses those. An argument that is needed as it was is cloned."""
    issued = call.issued[0]
    several = len(call.issued) > 1
    inputs = list(issued.args[0]) if several else [issued.args[0]]  # type: ignore[arg-type]
    results = call.issued[1:] if several else [issued]
    memory = _Memory(graph)
    targets: list[Node] = []
    for tensor, result in zip(inputs, results):
        write_back = _write_back(tensor, result)
        if tensor in targets or not memory.may_be_written(tensor, issued, write_back):
            with graph.inserting_before(issued):
                copy = graph.call_function(aten.clone.default, (tensor,), {"memory_format": torch.contiguous_format})
            copy.meta["val"] = result.meta["val"]
            tensor = copy
        elif write_back is not None:
            write_back.replace_all_uses_with(tensor)
            graph.erase_node(write_back)
        targets.append(tensor)
    with graph.inserting_before(issued):
        written = graph.call_function(issued.target, (targets if several else targets[0], *issued.args[1:]))  # type: ignore[arg-type]
    written.meta["val"] = None
    for target, result in zip(targets, results):
        result.replace_all_uses_with(target)
        if result is not issued:
            graph.erase_node(result)
    graph.erase_node(issued)
    call.issued = [written]


def _lower(graph: Graph, piece: Piece, number: int, settings: Settings) -> None:
    call = piece.written[0]
    memory = _Memory(graph)
    inputs: list[Node] = call.args[0]  # type: ignore[assignment]

    def may_be_written(tensor: Node, write_back: Node | None) -> bool:
        alone = all(other is tensor or _storage(other) != _storage(tensor) for other in inputs)
        return alone and memory.may_be_written(tensor, call, write_back)

    options = f"bucket {settings.bucket_bytes(piece.group)}; algebra {int(settings.algebra)}"
    pieces.lower(graph, piece, number, options, may_be_written, _write_back)


def _write_back(tensor: Node, result: Node) -> Node | None:
    """The copy of the result into the graph's input that it was made from."""
    if tensor.op != "placeholder":
        return None
    for user in result.users:
        if user.target is aten.copy_.default and user.args[0] is tensor and user.args[1] is result:
            return user
    return None
