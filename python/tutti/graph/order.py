"""The order of a graph's nodes: what each comes after, and what communicates in it."""

from __future__ import annotations

import functools
import heapq
from typing import Callable

import torch
from torch.fx import Graph, Node

from . import pieces


def is_mutation(node: Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def has_effects(node: Node) -> bool:
    """Communicates, so that other ranks rely on its place; a wait does not."""
    target = node.target
    if target is pieces.replayed:
        return True
    return isinstance(target, torch._ops.OpOverload) and target.namespace in ("tutti_graph", "_c10d_functional") and \
        target is not torch.ops._c10d_functional.wait_tensor.default


def dependencies(nodes: list[Node]) -> tuple[dict[Node, set[Node]], set[Node]]:
    """What each comes after, and those that write to tensors: these stay behind all that may read what they write."""
    after = {node: set(node.all_input_nodes) for node in nodes}
    writes: set[Node] = set()
    last: Node | None = None
    for i, node in enumerate(nodes):
        if is_mutation(node) and node.target.namespace != "tutti_graph":  # type: ignore[union-attr]
            after[node].update(nodes[:i])
            writes.add(node)
            last = node
        elif last is not None:
            after[node].add(last)
    return after, writes


def place_as(nodes: list[Node]) -> None:
    cursor, *others = nodes
    for node in others:
        if cursor.next is not node:
            cursor.append(node)
        cursor = node


def in_order_of(nodes: list[Node], place: dict[Node, float], after: dict[Node, set[Node]]) -> list[Node]:
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


def keeping_order(reorder: Callable[[Graph], None]) -> Callable[[Graph], None]:
    """A pass of inductor's that brings producers to their consumers, without its effect on what communicates: the order of
    that is what other ranks rely on, and results that this rank does not use would go to the end."""

    @functools.wraps(reorder)
    def run_in_order(graph: Graph) -> None:
        effects = [node for node in graph.nodes if node.op == "call_function" and has_effects(node)]
        reorder(graph)
        if len(effects) < 2:
            return
        nodes = list(graph.nodes)
        after, writes = dependencies(nodes)
        for before, effect in zip(effects, effects[1:]):
            if effect not in writes and before not in writes:
                after[effect].add(before)
        place_as(in_order_of(nodes, {node: float(i) for i, node in enumerate(nodes)}, after))

    return run_in_order
