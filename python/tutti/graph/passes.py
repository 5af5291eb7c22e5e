"""Passes over the graph of a compiled function, before inductor makes code of it.

    bucket      small collectives of one kind, (group, operation, operator, dtype), that do not need each other, are one call;
    order       long collectives start as early and are waited for as late as the graph allows;
    in place    all other collectives are done in the tensor that they are given, when their call returns: no clone, no copy
                back, no Work that is kept, no wait.

Collectives of a graph keep their order but for what becomes one call. All ranks decide alike: from the graph, and from
numbers that the ranks agreed on when they met. Where their graphs differ, the first collective that differs is an error on
all of them: each says what it is part of.
"""

from __future__ import annotations

import functools
import heapq
import operator
from dataclasses import dataclass, field
from typing import Any, Callable, Iterable

import torch
from torch.fx import Graph, Node

from . import ops

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
    """What the passes do. `bucket_bytes` and `predicted_us`: (group's name, tutti's name of a collective, bytes)."""

    bucket: bool
    overlap: bool
    in_place: bool
    overlap_us: float
    bucket_bytes: Callable[[str], int]
    predicted_us: Callable[[str, str, int], float]


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


def run(graph: Graph, settings: Settings) -> list[Call]:
    """Changes the graph; returns its collectives, in order."""
    movable = _movable(graph)
    calls = _find(movable)
    if settings.bucket:
        calls = _bucket(movable, calls, settings)
    _choose_background(movable, calls, settings)
    _issue(graph, calls, settings)
    _order(graph, calls)
    if settings.in_place:
        for call in calls:
            if not call.background and call.kind in ("all_reduce", "broadcast"):
                _put_in_place(graph, call)
    graph.eliminate_dead_code()
    graph.lint()
    return calls


def _is_mutation(node: Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def _movable(graph: Graph) -> list[Node]:
    """Up to the first node that writes to a tensor: before it the order is only that of the data."""
    nodes = []
    for node in graph.nodes:
        if _is_mutation(node) or node.op == "output":
            break
        nodes.append(node)
    return nodes


def _has_effects(node: Node) -> bool:
    """Communicates in another way than the collectives that are found here."""
    target = node.target
    return isinstance(target, torch._ops.OpOverload) and target.namespace in ("tutti_graph", "_c10d_functional") and \
        target is not c10d.wait_tensor.default


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
        elif node.op == "call_function" and _has_effects(node):
            fences += 1  # no collective is moved over it
    return calls


def _group_of(call: Call) -> str:
    return str(call.members[0].args[-1])


# ---- Bucket


def _bucket(nodes: list[Node], calls: list[Call], settings: Settings) -> list[Call]:
    index = {node: i for i, node in enumerate(nodes)}
    bucket_of: dict[Node, Call] = {}
    open_buckets: dict[tuple, Call] = {}
    for call in calls:
        member = call.members[0]
        limit = settings.bucket_bytes(_group_of(call)) if call.kind in _TOGETHER else 0
        bucket = open_buckets.get(call.key)
        if bucket is None or bucket.bytes + call.bytes > limit or _needs(member, bucket, bucket_of):
            bucket = Call(call.kind, call.key, [], [], 0)
            if call.bytes < limit:
                open_buckets[call.key] = bucket
        bucket.members += call.members
        bucket.waits += call.waits
        bucket.bytes += call.bytes
        bucket_of[member] = bucket
    buckets = list(dict.fromkeys(bucket_of.values()))
    return sorted(buckets, key=lambda bucket: index[bucket.members[-1]])


def _needs(node: Node, bucket: Call, bucket_of: dict[Node, Call]) -> bool:
    """Whether it, or what would be issued together with what it needs, needs a result of the bucket."""
    seen, pending = set(), [node]
    while pending:
        for needed in pending.pop().all_input_nodes:
            if needed in seen:
                continue
            seen.add(needed)
            other = bucket_of.get(needed)
            if other is bucket:
                return True
            pending.append(needed)
            if other is not None:
                pending += [member for member in other.members if member not in seen]
    return False


# ---- Background or not


def _choose_background(movable: list[Node], calls: list[Call], settings: Settings) -> None:
    """A call goes on in the background where it takes long, and there is something to compute meanwhile: what it does not
    need, and what does not need it."""
    for call in calls:
        if not settings.overlap:
            continue
        if settings.predicted_us(_group_of(call), call.kind, call.bytes) < settings.overlap_us:
            continue
        bound = _reached(call.members, lambda node: node.all_input_nodes) | _reached(call.waits, lambda node: node.users)
        call.background = any(node not in bound and _computes(node) for node in movable)


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


def _issue(graph: Graph, calls: list[Call], settings: Settings) -> None:
    """Replaces members and waits. What is written in place is still a function here: its result is its argument."""
    for call in calls:
        if call.background and len(call.members) == 1 or not settings.in_place and len(call.members) == 1:
            call.issued = [call.members[0]]
            continue
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


def keeping_order(reorder: Callable[[Graph], None]) -> Callable[[Graph], None]:
    """A pass of inductor's that brings producers to their consumers, without its effect on what communicates: the order of
    that is what other ranks rely on, and results that this rank does not use would go to the end."""

    @functools.wraps(reorder)
    def run_in_order(graph: Graph) -> None:
        effects = [node for node in graph.nodes if node.op == "call_function" and _has_effects(node)]
        reorder(graph)
        if len(effects) < 2:
            return
        nodes = list(graph.nodes)
        after, writes = _dependencies(nodes)
        for before, effect in zip(effects, effects[1:]):
            if effect not in writes and before not in writes:
                after[effect].add(before)
        _place(_sorted(nodes, {node: float(i) for i, node in enumerate(nodes)}, after))

    return run_in_order


def _order(graph: Graph, calls: list[Call]) -> None:
    """Sorts by data, otherwise as the program is written; what goes on in the background begins early and ends late."""
    nodes = list(graph.nodes)
    place = {node: float(i) for i, node in enumerate(nodes)}
    after, _ = _dependencies(nodes)
    in_order = _sorted(nodes, place, after)
    effects = [node for node in in_order if _has_effects(node)]
    for before, effect in zip(effects, effects[1:]):  # and what communicates stays in this order
        after[effect].add(before)
    place = {node: float(i) for i, node in enumerate(in_order)}
    background = [call for call in calls if call.background]
    for call in background:  # nodes that need its results come behind all others
        for node in _reached(call.waits, lambda node: node.users):
            place[node] += len(nodes)
    for call in background:
        start = call.issued[0]
        place[start] = max((place[needed] for needed in after[start]), default=-1.0) + 0.5
    _place(_sorted(nodes, place, after))


def _dependencies(nodes: list[Node]) -> tuple[dict[Node, set[Node]], set[Node]]:
    """What each comes after, and those that write to tensors: these stay behind all that may read what they write."""
    after = {node: set(node.all_input_nodes) for node in nodes}
    writes: set[Node] = set()
    last: Node | None = None
    for i, node in enumerate(nodes):
        if _is_mutation(node) and node.target.namespace != "tutti_graph":  # type: ignore[union-attr]
            after[node].update(nodes[:i])
            writes.add(node)
            last = node
        elif last is not None:
            after[node].add(last)
    return after, writes


def _place(nodes: list[Node]) -> None:
    cursor, *others = nodes
    for node in others:
        if cursor.next is not node:
            cursor.append(node)
        cursor = node


def _sorted(nodes: list[Node], place: dict[Node, float], after: dict[Node, set[Node]]) -> list[Node]:
    """Each behind those that it comes after, otherwise by their places."""
    waiting = {node: len(needed) for node, needed in after.items()}
    followers: dict[Node, list[Node]] = {node: [] for node in nodes}
    for node, needed in after.items():
        for other in needed:
            followers[other].append(node)
    number = {node: i for i, node in enumerate(nodes)}
    ready = [(place[node], number[node]) for node in nodes if waiting[node] == 0]
    heapq.heapify(ready)
    in_order = []
    while ready:
        node = nodes[heapq.heappop(ready)[1]]
        in_order.append(node)
        for follower in followers[node]:
            waiting[follower] -= 1
            if waiting[follower] == 0:
                heapq.heappush(ready, (place[follower], number[follower]))
    if len(in_order) != len(nodes):
        raise RuntimeError("tutti.graph: calls that were put together need each other")
    return in_order


# ---- In place


def _storage(node: Node) -> Any:
    value = node.meta.get("val")
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else None


def _put_in_place(graph: Graph, call: Call) -> None:
    """The call writes its arguments; who used its results uses those. An argument that is needed as it was is cloned."""
    issued = call.issued[0]
    several = len(call.issued) > 1
    inputs = list(issued.args[0]) if several else [issued.args[0]]  # type: ignore[arg-type]
    results = call.issued[1:] if several else [issued]
    place = {node: i for i, node in enumerate(graph.nodes)}
    by_storage: dict[Any, list[Node]] = {}
    for node in graph.nodes:
        by_storage.setdefault(_storage(node), []).append(node)
    targets: list[Node] = []
    for tensor, result in zip(inputs, results):
        write_back = _write_back(tensor, result)
        if tensor in targets or not _may_be_written(tensor, issued, write_back, by_storage, place):
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


def _write_back(tensor: Node, result: Node) -> Node | None:
    """The copy of the result into the graph's input that it was made from."""
    if tensor.op != "placeholder":
        return None
    for user in result.users:
        if user.target is aten.copy_.default and user.args[0] is tensor and user.args[1] is result:
            return user
    return None


def _may_be_written(tensor: Node, issued: Node, write_back: Node | None, by_storage: dict, place: dict[Node, int]) -> bool:
    value = tensor.meta.get("val")
    if not isinstance(value, torch.Tensor) or not value.is_contiguous():
        return False
    sharing = by_storage[_storage(tensor)]
    if sharing[0] is not tensor or (tensor.op == "placeholder") != (write_back is not None):
        return False  # a part of something else, or the caller's
    if tensor.op not in ("placeholder", "call_function"):
        return False
    for node in sharing:
        if node is write_back:
            continue
        for user in node.users:
            if user is not issued and user is not write_back and place[user] > place[issued]:
                return False
    return True
