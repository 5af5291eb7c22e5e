"""tutti.graph: every call of torch.distributed in one graph, with eager's values, under each backend of torch.compile; the
passes of get_backend; and what ranks are told whose graphs differ."""

import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

import graph_programs as programs
import ranks
import torch
import torch.distributed as dist
from failures_test import expect, message_of
from rows import main, rows
from torch._dynamo.testing import CompileCounterWithBackend

import tutti.graph
import tutti.torch

LONG = os.environ.get("TUTTI_TORCH_TESTS") == "all"
LONG_SAYS = "takes long: TUTTI_TORCH_TESTS=all runs it"
START = torch.arange(6.0).reshape(2, 3) + 1


def flat(result):
    return [result] if isinstance(result, torch.Tensor) else [tensor for part in result for tensor in flat(part)]


def same(found, expected, what):
    found, expected = flat(found), flat(expected)
    assert len(found) == len(expected), (what, len(found), len(expected))
    for one, other in zip(found, expected):
        assert one.shape == other.shape and torch.equal(one, other), (what, one, other)


def as_eager(rank, n, backend, names, dynamic=False):
    """Each program compiled, with the graph's breaks as errors, beside itself without."""
    tutti.graph.patch_for_hcom()
    backend = tutti.graph.get_backend() if backend == "tutti" else backend
    for name in names:
        torch._dynamo.reset()
        function = getattr(programs, name)
        counter = CompileCounterWithBackend("aot_eager") if backend == "aot_eager" else None
        compiled = torch.compile(function, backend=counter or backend, fullgraph=True, dynamic=dynamic)
        for factor in (1, 3):  # again, with other values
            given, expected_given = START * factor, START * factor
            same(compiled(given), function(expected_given), name)
            same(given, expected_given, f"{name}'s argument")
        if counter:
            assert counter.frame_count == 1, (name, counter.frame_count)


def larger_each_time(rank, n, backend, names):
    """Three shapes: compiled once, and once again with the size as a symbol."""
    tutti.graph.patch_for_hcom()
    for name in names:
        torch._dynamo.reset()
        function = getattr(programs, name)
        counter = CompileCounterWithBackend(tutti.graph.get_backend() if backend == "tutti" else backend)
        compiled = torch.compile(function, backend=counter, fullgraph=True)
        for size in (2, 4, 5, 7):
            x = torch.arange(3.0 * size).reshape(size, 3) + 1
            same(compiled(x.clone()), function(x.clone()), f"{name} of {size} rows")
        assert counter.frame_count <= 2, (name, counter.frame_count)


NAMES = [function.__name__ for function in programs.ALL]
#: Those whose sizes follow their argument's.
BY_SIZE = ["all_reduce", "broadcast", "reduce", "all_gather", "all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all",
           "gather", "scatter", "isend_and_irecv", "asynchronous", "into_the_input", "all_gather_into_tensor_uneven",
           "reduce_scatter_tensor_uneven"]


class Calls(unittest.TestCase):
    @rows("A-19", "S20-001", "S20-002", "S20-003", "S20-004", "S20-005", "S20-006", "S20-007", "S20-008", "S20-009", "S20-010",
          "S20-011", "S20-012")
    def test_each_is_one_graph_with_eagers_values(self):
        ranks.run(2, as_eager, "aot_eager", NAMES, limit=300)

    def test_of_four_ranks_with_uneven_sizes(self):
        ranks.run(4, as_eager, "aot_eager", ["all_to_all_single", "all_to_all", "all_gather_uneven", "batched", "gather",
                                             "all_gather_into_tensor_uneven", "reduce_scatter_tensor_uneven"], limit=300)

    @unittest.skipUnless(LONG, LONG_SAYS)
    def test_all_in_one_graph_under_inductor(self):
        ranks.run(2, as_eager, "inductor", ["everything"], limit=900)

    @rows("S20-016")
    def test_all_in_one_graph_under_our_passes(self):
        ranks.run(2, as_eager, "tutti", ["everything"], limit=900)

    def test_of_three_shapes_are_compiled_twice_at_most(self):
        ranks.run(2, larger_each_time, "aot_eager", BY_SIZE, limit=300)

    @unittest.skipUnless(LONG, LONG_SAYS)
    def test_of_three_shapes_are_compiled_twice_at_most_under_our_passes(self):
        ranks.run(2, larger_each_time, "tutti", ["all_reduce", "all_gather_into_tensor", "all_gather_into_tensor_uneven"],
                  limit=900)


def of_a_subgroup(rank, n):
    tutti.graph.patch_for_hcom()
    pair = dist.new_group([0, 2])

    def function(x):
        y = x + rank
        dist.all_reduce(y, group=pair)
        dist.broadcast(x, src=2, group=pair)
        return y + x

    compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
    same(compiled(START * (rank + 1)), function(START * (rank + 1)), "of a subgroup")


def handle_outside(rank, n):
    """A handle may leave the graph; the value is there after its wait()."""
    tutti.graph.patch_for_hcom()

    def function(x):
        y = x + rank
        return y, dist.all_reduce(y, async_op=True)

    for backend in ("aot_eager", "inductor", tutti.graph.get_backend()):
        torch._dynamo.reset()
        y, work = torch.compile(function, backend=backend, fullgraph=True)(START.clone())
        work.wait()
        same(y, n * START + n * (n - 1) / 2, "handle outside")


def equal_calls(rank, n):
    """Rank 0 sums one tensor twice, rank 1 two: they are two calls on both."""
    tutti.graph.patch_for_hcom()

    def function(x):
        first, second = (x + 1, x + 1) if rank == 0 else (x + 2, x + 3)
        dist.all_reduce(first)
        dist.all_reduce(second)
        return first, second

    for backend in ("aot_eager", tutti.graph.get_backend()):
        torch._dynamo.reset()
        found = torch.compile(function, backend=backend, fullgraph=True)(START.clone())
        same(found, [2 * START + 3, 2 * START + 4], "equal calls")


def unused_results(rank, n):
    """A result that nobody uses is communicated all the same: other ranks may need it."""
    tutti.graph.patch_for_hcom()

    def function(x):
        y, z = x + rank, x * 2
        dist.all_reduce(y)
        dist.broadcast(z, 0)
        dist.barrier()
        return y if rank == 0 else x

    for backend in ("aot_eager", tutti.graph.get_backend()):
        torch._dynamo.reset()
        found = torch.compile(function, backend=backend, fullgraph=True)(START.clone())
        same(found, n * START + 1 if rank == 0 else START, "unused results")


def refused(rank, n):
    """What cannot be part of a graph says so, or is called outside of it."""
    tutti.graph.patch_for_hcom()
    doubled = dist._make_nccl_premul_sum(2.0)

    def factor(x):
        y = x + 1
        dist.all_reduce(y, op=doubled)
        return y

    def any_source(x):
        dist.recv(x)
        return x

    def other_type(x):
        y = torch.empty(n * 2, 3, dtype=torch.int64)
        dist.all_gather_into_tensor(y, x)
        return y

    expect(message_of(torch.compile(factor, backend="aot_eager", fullgraph=True), START.clone()), "cannot be part of a graph")
    torch._dynamo.reset()
    same(torch.compile(factor, backend="aot_eager")(START.clone()), 2 * n * (START + 1), "outside of the graph")
    for function in (any_source, other_type):
        torch._dynamo.reset()
        assert message_of(torch.compile(function, backend="aot_eager", fullgraph=True), START.clone())
    dist.barrier()


def gradients(rank, n):
    """Of gathering and scattering uneven rows, in a graph and under autograd alone."""
    tutti.graph.patch_for_hcom()
    sizes, name = [1, 2], dist.group.WORLD.group_name
    weights = torch.arange(6.0).reshape(3, 2) * (rank + 1)

    def gathered(x):
        return (torch.ops.tutti_graph.all_gather_into_tensor_uneven(x, sizes, name) * weights).sum()

    def scattered(x):
        return (torch.ops.tutti_graph.reduce_scatter_tensor_uneven(x, sizes, "avg", name) * (rank + 2)).sum()

    for backend in (None, "aot_eager"):
        for function, rows_here in ((gathered, sizes[rank]), (scattered, 3)):
            x = torch.ones(rows_here, 2, requires_grad=True)
            (torch.compile(function, backend=backend, fullgraph=True) if backend else function)(x).backward()
            if function is gathered:
                expected = 3 * torch.arange(6.0).reshape(3, 2)[sum(sizes[:rank]):sum(sizes[:rank + 1])]
            else:
                expected = torch.tensor([[2.0, 2.0], [3.0, 3.0], [3.0, 3.0]]) / n
            assert torch.equal(x.grad, expected), (function.__name__, backend, x.grad, expected)


class Semantics(unittest.TestCase):
    def test_groups_and_their_roots(self):
        ranks.run(3, of_a_subgroup, limit=120)

    def test_a_handle_leaves_the_graph(self):
        ranks.run(2, handle_outside, limit=300)

    def test_equal_calls_stay_two(self):
        ranks.run(2, equal_calls, limit=300)

    def test_unused_results_are_communicated(self):
        ranks.run(2, unused_results, limit=300)

    def test_what_a_graph_cannot_hold_is_refused(self):
        ranks.run(2, refused, limit=120)

    def test_gradients_of_uneven_rows(self):
        ranks.run(2, gradients, limit=120)


setUpModule = ranks.load_compiler

if __name__ == "__main__":
    main("python_torch_graph")
