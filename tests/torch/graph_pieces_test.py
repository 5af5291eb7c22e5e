"""Pieces of communication in compiled graphs: each is one call, whose values are eager's, whatever tutti::graph makes of it.

Graphs run here as our passes leave them, without inductor's code, which graph_passes_test.py and graph_test.py have."""

import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

import ranks
import torch
import torch.distributed as dist
from failures_test import expect, message_of
from functorch.compile import make_boxed_func
from rows import main

import tutti.graph
import tutti.torch
from tutti.graph import CompilerConfig, ops


def compiled(function, **config):
    """The function behind inductor's passes and ours, and the list of its graphs."""
    from torch._dynamo.utils import detect_fake_mode
    from torch._inductor.compile_fx import compile_fx
    from torch._inductor.fx_passes.post_grad import post_grad_passes
    from torch._inductor.virtualized import V

    from tutti.graph import backend

    graphs = []

    def run_passes(graph, inputs, **options):
        with V.set_fake_mode(detect_fake_mode(inputs)):
            post_grad_passes(graph, options.get("is_inference", False))
        graph.recompile()
        graphs.append(graph)
        return make_boxed_func(graph.forward)

    def without_code(graph, inputs):
        return compile_fx(graph, inputs, inner_compile=run_passes, config_patches=backend._with_passes(CompilerConfig(**config)))

    torch._dynamo.reset()
    torch._functorch.config.enable_autograd_cache = False  # what an earlier run has compiled passes no passes
    tutti.graph.patch_for_hcom()
    ops.lower()
    return torch.compile(function, backend=without_code, fullgraph=True), graphs


def calls_in(graph):
    """The names of what communicates, in order."""
    targets = [node.target for node in graph.graph.nodes if isinstance(node.target, torch._ops.OpOverload)]
    return [target._schema.name.split("::")[1] for target in targets if target.namespace in ("tutti_graph", "_c10d_functional")]


def programs_in(graph):
    """Of its pieces, the steps without the options."""
    return [[step.strip() for step in node.args[2].split(";") if step.split()[0] not in ("piece", "bucket", "algebra")]
            for node in graph.graph.nodes if node.target is torch.ops.tutti_graph.replay_.default]


def listed(result):
    return [result] if isinstance(result, torch.Tensor) else list(result)


def check(function, *arguments, calls=None, **config):
    """Twice: eager's values, also in the arguments, and these calls. Returns the programs of its pieces."""
    call, graphs = compiled(function, **config)
    for factor in (1, 2):
        given, expected_given = ([argument * factor for argument in arguments] for _ in range(2))
        found, expected = listed(call(*given)), listed(function(*expected_given))
        for one, other in zip([*found, *given], [*expected, *expected_given], strict=True):
            assert one.dtype == other.dtype and torch.equal(one, other), (function.__name__, one, other)
    assert len(graphs) == 1
    if calls is not None:
        assert calls_in(graphs[0]) == calls, (function.__name__, calls_in(graphs[0]), calls)
    return programs_in(graphs[0])


def last_change():
    """What tutti::graph did to the newest piece, in words."""
    return dist.group.WORLD._get_backend(torch.device("cpu")).pieces()[-1]["changes"]


# ---- Programs


def small_ones(x):
    total = torch.zeros_like(x[0])
    for row in x.unbind():
        y = row * 2
        dist.all_reduce(y)
        total = total + y
    return total


def one_after_the_other(x):
    for factor in range(3):
        x = x * factor + 1
        dist.all_reduce(x)
    return x


def of_each_kind(x):
    n = dist.get_world_size()
    a, b, c, d = x + 1, x * 2, x.to(torch.float64), x * 3
    dist.all_reduce(a)
    dist.all_reduce(c)
    dist.all_reduce(b, op=dist.ReduceOp.MAX)
    dist.all_reduce(d)
    whole, again = x.new_empty(n * 4, 3), x.new_empty(n * 4, 3)
    dist.all_gather_into_tensor(whole, x + 5)
    dist.all_gather_into_tensor(again, x + 6)
    part, exchanged = torch.empty_like(x), torch.empty_like(x)
    dist.reduce_scatter_tensor(part, torch.cat([x + i for i in range(n)]), op=dist.ReduceOp.AVG)
    dist.all_to_all_single(exchanged, x * 7)
    dist.broadcast(x, 1)
    return a, b, c, d, whole, again, part, exchanged, x + 0


def over_a_barrier(x):
    a, b = x + 1, x * 2
    dist.all_reduce(a)
    dist.barrier()
    dist.all_reduce(b)
    return a + b


def over_a_product(x):
    y = x * 2
    dist.all_reduce(y)
    z = y @ x.t()
    dist.all_reduce(z)
    return z


def needed_before_and_after(x):
    y = x * 2
    before = y.sum()
    z, v = y.clone(), x + 1
    dist.all_reduce(z)
    dist.all_reduce(v)
    return before, y + 1, z, v[1:] * 2, v


def into_inputs(x, y):
    dist.all_reduce(x)
    dist.all_reduce(y)
    z = torch.relu(y) - 1
    dist.all_reduce(z, op=dist.ReduceOp.MAX)
    return z


def of_a_view(x):
    y = (x + 1).view(-1)
    dist.all_reduce(y)
    z = y.view(3, 4) * 2
    dist.all_reduce(z)
    dist.all_reduce(x[0])
    return z.view(-1)[2:], z, x


def twice_the_same(x):
    y = x + 1
    dist.all_reduce(y, op=dist.ReduceOp.MAX)
    dist.all_reduce(y, op=dist.ReduceOp.MAX)
    dist.broadcast(y, 1)
    return y


def scattered_and_gathered(x):
    n = dist.get_world_size()
    part, whole = x.new_empty(x.shape[0] // n, x.shape[1]), torch.empty_like(x)
    dist.reduce_scatter_tensor(part, x * 3)
    dist.all_gather_into_tensor(whole, part)
    return whole


def unused(x):
    y, z = x + dist.get_rank(), x * 2
    dist.all_reduce(y)
    dist.all_reduce(z)
    return (y if dist.get_rank() == 0 else x) + 1


def steps_between(x):
    y = x + 0.5
    dist.all_reduce(y)
    for step in (lambda v: v * 3, lambda v: 2 * v, lambda v: v - 1, lambda v: v / 3, lambda v: v + v, lambda v: v * x,
                 lambda v: v - x, lambda v: v / (v + 1), torch.neg, torch.abs, torch.sqrt, torch.tanh, torch.sigmoid, torch.exp,
                 torch.relu, lambda v: torch.maximum(v, x), lambda v: torch.minimum(v, x)):
        y = step(y)
    dist.all_reduce(y)
    return y


# ---- What is tried with them


def puts_together(rank, n):
    x = torch.arange(12.0).reshape(4, 3) + rank
    assert check(small_ones, x, calls=["replay_"]) == [[f"all_reduce w{i} sum" for i in range(4)]]
    expect(last_change(), "4 calls became one")
    check(small_ones, x, calls=["all_reduce_"] * 4, bucket=False)
    check(small_ones, x, calls=["replay_"] * 2, bucket_bytes=2 * 3 * 4)  # two rows
    check(of_each_kind, x, calls=["replay_"])
    expect(last_change(), "2 calls became one: all_reduce of float32", "2 calls became one: all_gather of float32")
    check(over_a_barrier, x, calls=["all_reduce_", "barrier", "all_reduce_"])
    check(over_a_product, x, calls=["all_reduce_", "all_reduce_"])  # a piece holds no product
    check(one_after_the_other, x, calls=["replay_"])
    check(one_after_the_other, x, calls=["all_reduce_"] * 3, bucket_bytes=x.numel() * 4)  # they are not small
    check(unused, x, calls=["replay_"])


def keeps_values(rank, n):
    x = torch.arange(12.0).reshape(4, 3) + rank
    check(needed_before_and_after, x, calls=["replay_"])
    steps, = check(into_inputs, x, x[0] * 2, calls=["replay_"])
    assert steps == ["all_reduce w0 sum", "all_reduce w1 sum", "relu t0 w1", "sub w2 t0 #i1", "all_reduce w2 max"], steps
    check(of_a_view, x)
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        steps, = check(steps_between, (x + 1).to(dtype), calls=["replay_"])
        assert len(steps) > 15, steps
    nan = torch.tensor([float("nan"), -0.0, 1.0, -2.0])
    call, _ = compiled(steps_between)
    assert torch.equal(call(nan).isnan(), steps_between(nan).isnan())
    check(one_after_the_other, torch.arange(6) + rank, calls=["replay_"])  # of integers
    check(one_after_the_other, torch.empty(0, 3), calls=["replay_"])


def leaves_out(rank, n):
    x = torch.arange(12.0).reshape(4, 3) * (1 - 2 * rank)
    steps, = check(twice_the_same, x, calls=["replay_"])
    assert len(steps) == 3, steps
    assert last_change().count("all ranks have") + last_change().count("equal") >= 1, last_change()
    text = tutti.graph.explain()
    expect(text, "3 calls -> 1 call", "replayed 2 times", "broadcast w0 1", "predicted: ")
    check(twice_the_same, x, calls=["replay_"], algebra=False)
    expect(tutti.graph.explain(), "3 calls -> 3 calls")
    check(scattered_and_gathered, x, calls=["replay_"])
    expect(tutti.graph.explain(), "2 calls -> 1 call")


def large_and_small(rank, n):
    """Of tensors that are too large to copy the Executable goes where they are: more places than it remembers."""
    call, graphs = compiled(one_after_the_other, bucket_bytes=1 << 20)
    inputs = [torch.full((8192 + 64 * (i % 2),), float(i)) for i in range(14)]
    kept = []
    for x in [*inputs, *inputs]:
        kept.append(call(x))
        expected = x
        for factor in range(3):
            expected = n * (expected * factor + 1)
        assert torch.equal(kept[-1], expected), (kept[-1], expected)
    assert calls_in(graphs[0]) == ["replay_"]
    told = dist.group.WORLD._get_backend(torch.device("cpu")).pieces()
    assert sum(piece["replays"] for piece in told) == 28 and len(told) == 2, told  # one for each size


def on_other_groups(rank, n):
    """Pieces are tutti's; calls of one kind are put together on other backends too. Groups do not mix in a piece."""
    x = torch.arange(12.0).reshape(4, 3) + rank
    gloo, own = dist.new_group(backend="gloo"), dist.new_group()

    def on_gloo(x):
        a, b, c = x + 1, x * 2, x * 3
        dist.all_reduce(a, group=gloo)
        dist.all_reduce(b, op=dist.ReduceOp.MAX, group=gloo)
        dist.all_reduce(c, group=gloo)
        return a, b, c

    def on_two(x):
        a, b, c, d = x + 1, x * 2, x * 3, x * 4
        dist.all_reduce(a)
        dist.all_reduce(b, group=own)
        dist.all_reduce(c)
        dist.all_reduce(d, group=own)
        return a, b, c, d

    check(on_gloo, x, calls=["all_reduce_", "all_reduce_coalesced_"])
    check(on_two, x, calls=["replay_", "replay_"])
    expect(message_of(tutti.graph.explain, gloo), "expected one with the backend tutti")
    expect(tutti.graph.explain(own), "2 calls -> 1 call")
    expect(message_of(torch.ops.tutti_graph.replay_, [x], [], "all_reduce w0 sum", gloo.group_name), "expected tutti")
    for program, words in (("all_reduce w1 sum", "names tensor 1 of 1"), ("cube t0 w0", "nobody knows the step cube"),
                           ("all_reduce w0 sun", "has the word sun"), ("mul t0 w0 #x", "expected #i"),
                           ("add t0 w0", "expected more")):
        expect(message_of(torch.ops.tutti_graph.replay_, [x], [], program, own.group_name), words)
    dist.destroy_process_group(own)


def with_gradients(rank, n):
    """Forward and backward, whose graphs each have a piece, beside eager ones."""
    from torch.distributed import _functional_collectives as functional

    def loss(w, v, x):
        y = functional.all_reduce(torch.tanh(x @ w), "sum", dist.group.WORLD)
        z = functional.all_reduce(x @ v, "sum", dist.group.WORLD)
        return (y * z).sum()

    torch.manual_seed(rank)
    x, weights = torch.randn(4, 3), torch.full((2, 3, 2), 0.5)

    def gradients(function):
        w, v = (weight.clone().requires_grad_() for weight in weights)
        function(w, v, x).backward()
        return w.grad, v.grad

    call, graphs = compiled(loss)
    for one, other in zip(gradients(call), gradients(loss), strict=True):
        assert torch.allclose(one, other), (one, other)
    assert [calls_in(graph) for graph in graphs] == [["replay_"], ["replay_"]], [calls_in(graph) for graph in graphs]


class Pieces(unittest.TestCase):
    def test_small_calls_become_one(self):
        ranks.run(2, puts_together, limit=120)

    def test_values_are_eagers(self):
        ranks.run(2, keeps_values, limit=120)

    def test_calls_that_give_what_is_there_are_left_out(self):
        ranks.run(2, leaves_out, limit=120)

    def test_tensors_come_from_anywhere(self):
        ranks.run(2, large_and_small, limit=120)

    def test_groups_of_all_backends(self):
        ranks.run(2, on_other_groups, limit=120)

    def test_gradients(self):
        ranks.run(2, with_gradients, limit=120)


setUpModule = ranks.load_compiler

if __name__ == "__main__":
    main("python_torch_graph_pieces")
