"""Graphs of a program's calls over arrays; programs find all of it in tutti.graph.

    import tutti.distributed as dist
    import tutti.graph as graph

    def step():
        graph.compute([x], [y], lambda: np.multiply(x, 2, out=y), name="forward", cost_us=40)
        dist.all_reduce(y)
        dist.all_reduce(z)

    replayed = graph.Executable(graph.optimise(graph.capture(step)).graph)
    for batch in batches:
        x[:] = batch
        replayed.replay()

While capture() calls its function, this thread's collectives, sends and receives (blocking, asynchronous, planned) on all
groups, and compute(), run nothing: each becomes a node. A graph keeps the arrays and functions of its calls alive. Refused
inside a capture, with InvalidArgument: coalesced calls, objects, quantised collectives, monitored_barrier, a receive from
any rank, tensors on devices. C++ has the same in tutti/graph.hpp, which says more about costs.

Threads: a capture belongs to its thread, an Executable serves one replay at a time, everything else may be shared.
"""
from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, overload

from . import _core
from ._core import (
    Graph, GraphChange as Change, GraphEdge as Edge, GraphExecutable as Executable, GraphGroup as GroupInfo,
    GraphNode as Node, GraphPiece as Piece, GraphProof as Proof, GraphRange as Range, OptimisedGraph as Optimised,
)
from .distributed._arguments import Array, Group
from .errors import HostRead, InvalidArgument

__all__ = [
    "Change", "Edge", "Executable", "Graph", "GroupInfo", "HostRead", "Node", "Optimised", "Piece", "Proof", "Range",
    "capture", "check_host_read", "compute", "instantiate", "is_capturing", "item", "optimise", "prove", "temporary",
]


def capture(function: Callable[[], object]) -> Graph:
    """Calls `function` and returns its calls as a graph; no data moves. All ranks capture graphs that match, as their plain
    calls would.

    An asynchronous call returns a Work whose wait() marks the place in the order where its result has to be there; one
    without a wait is waited for at the graph's end.

    Args:
        function: takes nothing; its collectives, sends and receives become nodes.

    Returns:
        The graph, which can be looked at, optimised and run (Executable).

    Raises:
        InvalidArgument: inside of another capture of this thread, and for calls that cannot be captured. Also what the
            function raises.

    Example:
        >>> x = np.ones(4)
        >>> graph = tutti.graph.capture(lambda: dist.all_reduce(x))
        >>> [node.kind for node in graph.nodes]
        ['all_reduce']
    """
    return _core.graph_capture(function)


def is_capturing() -> bool:
    """Whether this thread is capturing.

    Example:
        >>> tutti.graph.is_capturing()
        False
    """
    return _core.graph_is_capturing()


def compute(reads: Sequence[Array], writes: Sequence[Array], function: Callable[..., object], *, name: str = "compute",
            cost_us: float = 0, splittable: bool = False, whole: Sequence[int] = (), elementwise: bool = False) -> None:
    """A compute step. Inside a capture it becomes a node, whose function replay() calls; outside it is called at once.

    It reads the arrays `reads` and no other that the graph writes, and writes every byte of `writes`; where it writes a
    part of an array, or reads what it overwrites, the array is in both lists. A step without `writes` is kept for its
    effects elsewhere.

    Args:
        reads: arrays in host memory, in one piece.
        writes: arrays in host memory, in one piece.
        function: takes nothing, or two lists of arrays, reads and writes: only then can the step run on other arrays
            (Executable.bind). What it raises, replay() raises.
        name: for texts and pictures.
        cost_us: about how long it takes, in microseconds: what overlaps with it is decided by that.
        splittable: the step may run in chunks: all its arrays, but for the reads whose numbers are in `whole`, have the
            same number of rows (their first dimension), and to run the function on blocks of rows gives the same.
        whole: numbers of the reads that no chunk cuts.
        elementwise: each element of the writes depends on the elements at the same place of the reads alone, again but for
            `whole`: the step may run in chunks that begin anywhere, which the function gets as arrays of one dimension.

    Raises:
        InvalidArgument: for arrays on devices or with gaps, for another kind of function, and for a step that may run in
            chunks and takes no arrays or has none to be cut.

    Example:
        >>> x, y = np.ones(4), np.empty(4)
        >>> tutti.graph.compute([x], [y], lambda: np.multiply(x, 2, out=y), name="forward", cost_us=40)
    """
    _core.graph_compute(list(reads), list(writes), function, name, cost_us, _takes_arrays(function), splittable, list(whole),
                        elementwise)


def _takes_arrays(function: Callable[..., object]) -> bool:
    if not callable(function):
        raise InvalidArgument(f"compute: function is of type {type(function).__name__}: expected a function")
    try:
        signature = inspect.signature(function)
    except ValueError:  # written in C, and says nothing: it takes nothing
        return False
    for arguments in ((), (None, None)):
        try:
            signature.bind(*arguments)
        except TypeError:
            continue
        return bool(arguments)
    raise InvalidArgument(f"compute: function takes {signature}: expected one that takes nothing, or (reads, writes)")


def temporary(array: Array) -> None:
    """Inside a capture: nobody reads `array` after the graph, so what only leads to its last value need not happen.

    Args:
        array: one that the graph uses.

    Example:
        >>> x = np.ones(4)
        >>> def step():
        ...     dist.all_reduce(x)
        ...     tutti.graph.temporary(x)
        >>> len(tutti.graph.capture(step).temporaries)
        1
    """
    _core.graph_temporary(array)


def item(array: Array) -> Any:
    """The number in an array of one element. A plain read of an array, as by float(x), cannot be seen by a capture.

    Args:
        array: has one element.

    Returns:
        A Python number.

    Raises:
        HostRead: this thread captures a graph in which some node writes the array: its value does not exist yet.

    Example:
        >>> tutti.graph.item(np.array([2.5]))
        2.5
    """
    return _core.graph_item(array)


def check_host_read(array: Array, reader: str) -> None:
    """Asks whether an array may be read now.

    Args:
        array: that is about to be read.
        reader: names for the message what is about to read.

    Raises:
        HostRead: this thread captures a graph in which some node writes the array; it names both call sites.

    Example:
        >>> tutti.graph.check_host_read(np.ones(3), "my logger")
    """
    _core.graph_check_host_read(array, reader)


def prove(captured: Sequence[Graph], optimised: Sequence[Graph] | None = None) -> Proof:
    """Runs the graphs of all ranks that their groups name at once, on symbols. About a microsecond for each node and rank.

    Afterwards it is known that each group's collectives come in the same order with matching arguments on all ranks, that
    every message is received, that nobody waits forever, and that no node touches what an asynchronous one still uses. With
    `optimised`, the same of both, and that every byte that a program may read afterwards holds the same after either.

    Args:
        captured: the graph of each rank.
        optimised: what passes made of them; None: only the captured ones are proved.

    Returns:
        A Proof, which is true where it holds, and otherwise has its faults in words.

    Example:
        >>> x = np.ones(4)
        >>> bool(tutti.graph.prove([tutti.graph.capture(lambda: dist.all_reduce(x))]))
        True
    """
    if optimised is None:
        return _core.graph_prove(list(captured))
    return _core.graph_prove_equal(list(captured), list(optimised))


@overload
def optimise(graph: Graph, *, group: Group = ..., alike: bool = ..., order: str = ..., dead_values: bool = ..., algebra: bool = ...,
             buckets: bool = ..., split: bool = ..., overlap: bool = ..., memory: bool = ..., bucket_bytes: int | None = ...,
             overlap_us: float = ..., chunks: int | None = ..., in_flight_bytes: int = ..., stages: bool = ...
             ) -> Optimised: ...


@overload
def optimise(graph: Sequence[Graph], *, order: str = ..., dead_values: bool = ..., algebra: bool = ...,
             buckets: bool = ..., split: bool = ..., overlap: bool = ..., memory: bool = ..., bucket_bytes: int | None = ...,
             overlap_us: float = ..., chunks: int | None = ..., in_flight_bytes: int = ..., stages: bool = ...
             ) -> list[Optimised]: ...


def optimise(graph: Graph | Sequence[Graph], *, group: Group = None, alike: bool = False, order: str = "free",
             dead_values: bool = True, algebra: bool = True, buckets: bool = True, split: bool = True, overlap: bool = True,
             memory: bool = True, bucket_bytes: int | None = None, overlap_us: float = 200, chunks: int | None = None,
             in_flight_bytes: int = 1 << 30, stages: bool = False) -> Optimised | list[Optimised]:
    """The passes, with a proof of what they return.

    Of one graph, this rank's: all ranks of `group`, which has all ranks of the graph's groups, call it; one exchange of the
    graphs' texts comes first. Of a list, the graphs of all ranks: asks nobody.

    Args:
        graph: this rank's, or a list of all ranks'.
        group: of one graph: who exchanges them; None: the default group.
        alike: of one graph: all ranks are taken to have captured the same, so nobody is asked. It has one group,
            collectives of equal blocks, no messages. A rank whose graph differs after all gets CollectiveMismatch at the
            first collective of a replay.
        order: "free", or "program": everything stays in the program's order.
        dead_values: run this pass.
        algebra: run this pass.
        buckets: run this pass.
        split: run this pass.
        overlap: run this pass.
        memory: run this pass.
        bucket_bytes: the size of a bucket; None: the smallest with 90 % of the group's bandwidth.
        overlap_us: collectives that take less, as predicted, are not worth starting early.
        chunks: in how many a long all_reduce runs with the steps around it that may; None: by the group's figures.
        in_flight_bytes: of buffers that started early and are not waited for.
        stages: keep the graph after each pass in Change.after.

    Returns:
        An Optimised, or a list of them, in the order of the graphs.

    Raises:
        InvalidArgument: for graphs that do not hold by themselves.

    Example:
        >>> x, y = np.ones(4), np.ones(4)
        >>> def step():
        ...     dist.all_reduce(x)
        ...     dist.all_reduce(y)
        >>> optimised = tutti.graph.optimise(tutti.graph.capture(step))
        >>> [change.name for change in optimised.changes][:2]
        ['algebra', 'dead values']
    """
    passes = {"alike": alike, "dead_values": dead_values, "algebra": algebra, "buckets": buckets, "split": split,
              "overlap": overlap, "memory": memory}
    if isinstance(graph, Graph):
        return _core.graph_optimise(graph, group, order, passes, bucket_bytes, overlap_us, chunks, in_flight_bytes,
                                    stages)
    if group is not None:
        raise InvalidArgument("optimise: group is for one graph, which the ranks exchange: expected None with a list")
    if alike:
        raise InvalidArgument("optimise: alike is for one graph: expected False with a list, which has those of all ranks")
    return _core.graph_optimise_all(list(graph), order, passes, bucket_bytes, overlap_us, chunks, in_flight_bytes,
                                    stages)


def instantiate(graph: Graph) -> Executable:
    """Executable(graph): makes a plan of each call, moves no data, waits for nobody.

    Args:
        graph: one that capture() or optimise() made.

    Returns:
        An Executable.

    Raises:
        InvalidArgument: for a graph of from_text().

    Example:
        >>> x = np.ones(4)
        >>> step = tutti.graph.instantiate(tutti.graph.capture(lambda: dist.all_reduce(x)))
        >>> step.replay()
    """
    return Executable(graph)
