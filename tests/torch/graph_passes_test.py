"""get_backend: what its passes make of a graph, what ranks are told whose graphs differ, the programs of the documents, and
frameworks' wrappers."""

import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

import ranks
import torch
import torch.distributed as dist
from failures_test import expect, message_of
from rows import main, rows

import tutti.graph
import tutti.torch
from tutti.graph import CompilerConfig, get_backend

HERE = pathlib.Path(__file__).resolve()
LONG = os.environ.get("TUTTI_TORCH_TESTS") == "all"
LONG_SAYS = "takes long: TUTTI_TORCH_TESTS=all runs it"


def code_of(function, *arguments, **config):
    """What inductor makes of it with our passes, and its result."""
    from torch._inductor.utils import run_and_get_code

    torch._dynamo.reset()
    compiled = torch.compile(function, backend=get_backend(CompilerConfig(**config)), fullgraph=True)
    result, codes = run_and_get_code(compiled, *arguments)
    return result, "\n".join(codes)


def calls_in(code):
    """The collectives that it calls, in order."""
    names = []
    for line in code.splitlines():
        for namespace in ("tutti_graph.", "_c10d_functional."):
            if "torch.ops." + namespace in line and ".default(" in line and not line.lstrip().startswith("#"):
                names.append(line.split(namespace)[1].split(".")[0])
    return names


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


def into_inputs(x, y):
    dist.all_reduce(x)
    dist.all_reduce(y)


def read_before_and_after(x):
    y = x * 2
    before = y.sum()
    z = y.clone()
    dist.all_reduce(z)
    return before, y + 1, z


def makes_code_of_pieces(rank, n):
    x = torch.arange(12.0).reshape(4, 3) + rank
    expected = 2 * sum(torch.arange(12.0).reshape(4, 3) + r for r in range(n)).sum(0)
    result, code = code_of(small_ones, x)
    assert calls_in(code) == ["replay_"], calls_in(code)
    assert torch.equal(result, expected), result
    result, code = code_of(small_ones, x, bucket=False, in_place=False, overlap=False)
    assert "wait_tensor" in calls_in(code), code  # as PyTorch does it
    assert torch.equal(result, expected), result


def copies_nothing(rank, n):
    x, y = torch.full((4,), rank + 1.0), torch.full((2,), rank + 2.0)
    _, code = code_of(into_inputs, x, y)
    assert calls_in(code) == ["replay_"], calls_in(code)
    assert "cpp_fused" not in code and "empty_strided" not in code.split("def call")[1], code  # neither a clone nor a copy back
    assert x.eq(n * (n + 1) / 2).all() and y.eq(n * (n + 3) / 2).all(), (x, y)

    x = torch.arange(4.0) + rank
    (before, after, reduced), code = code_of(read_before_and_after, x)
    expected = read_before_and_after(x)
    for one, other in zip((before, after, reduced), expected):
        assert torch.equal(one, other), (one, other)


def long_ones(x, w):
    y = x * 2
    z = w @ w
    dist.all_reduce(y)
    for _ in range(3):
        z = z @ w
    return y + 1, z


def begins_early(rank, n):
    x, w = torch.full((1 << 20,), rank + 1.0), torch.eye(64) * 0.5
    (y, z), code = code_of(long_ones, x, w, overlap_us=0.0)
    assert calls_in(code) == ["all_reduce_", "wait_tensor"], calls_in(code)
    body = code.split("def call")[1]
    begun, waited = body.index("_c10d_functional.all_reduce_"), body.index("wait_tensor")
    products = [i for i in range(len(body)) if body.startswith("extern_kernels.mm", i)]
    assert len(products) == 4 and all(begun < product < waited for product in products), (begun, products, waited)
    assert y.eq(n * (n + 1) + 1).all() and torch.equal(z, torch.eye(64) * 0.5 ** 5)
    _, code = code_of(long_ones, x, w, overlap_us=1e9)
    assert calls_in(code) == ["all_reduce_"] and "wait_tensor" not in code, calls_in(code)


def sizes_of_buckets(rank, n):
    """Equal on all ranks, and larger where the network is slower."""
    from tutti.graph import backend

    mine = torch.tensor([backend.bucket_bytes(dist.group.WORLD.group_name)])
    everyones = torch.empty(n, dtype=torch.int64)
    dist.all_gather_into_tensor(everyones, mine)
    assert everyones.eq(mine).all() and 1 << 10 < mine.item() < 64 << 20, everyones


class Passes(unittest.TestCase):
    def test_small_calls_become_one(self):
        ranks.run(2, makes_code_of_pieces, limit=300)

    def test_nothing_is_copied(self):
        ranks.run(2, copies_nothing, limit=300)

    def test_long_calls_begin_early_and_end_late(self):
        ranks.run(2, begins_early, limit=300)

    def test_sizes_of_buckets_are_measured_and_agreed(self):
        ranks.run(2, sizes_of_buckets)

    def test_a_wrong_configuration_is_refused(self):
        expect(message_of(CompilerConfig, bucket_bytes=-1), "bucket_bytes is -1")
        expect(message_of(get_backend, {"bucket": True}), "expected a tutti.graph.CompilerConfig")


def training(rank, n):
    """A layer whose sums and gradients go through compiled collectives, beside itself without a compiler."""
    from torch.distributed import _functional_collectives as functional

    torch.manual_seed(rank)
    x, weights = torch.randn(4, 3), torch.full((3, 2), 0.5)

    def step(w):
        y = functional.all_reduce(torch.tanh(x @ w), "sum", dist.group.WORLD)
        return (y * y).sum()

    def gradient(function):
        w = weights.clone().requires_grad_()
        loss = function(w)
        loss.backward()
        return torch.cat([loss.detach().reshape(1), w.grad.reshape(-1)])

    expected = gradient(step)
    found = gradient(torch.compile(step, backend=get_backend(), fullgraph=True))
    assert torch.allclose(found, expected), (found, expected)


class Training(unittest.TestCase):
    @unittest.skipUnless(LONG, LONG_SAYS)
    def test_forward_and_backward(self):
        ranks.run(2, training, limit=300)


# ---- Ranks whose graphs differ: an error that names both sides, on all of them, at once


def other_bucket(x, rank):
    """As many elements on both ranks, but cut differently."""
    parts = x.split([3, 5] if rank == 0 else [4, 4])
    parts = [part * 2 for part in parts]
    for part in parts:
        dist.all_reduce(part)
    return parts


def other_collective(x, rank):
    y = x + 1
    if rank == 0:
        dist.all_reduce(y)
    else:
        dist.broadcast(y, 0)
    return y


def one_more(x, rank):
    y, z = x + 1, x * 2
    dist.all_reduce(y, op=dist.ReduceOp.MAX)
    if rank == 0:
        dist.all_reduce(z)
    return y, z


def differs(rank, n, name, words):
    text = ""
    try:
        compiled = torch.compile(globals()[name], backend=get_backend(), fullgraph=True)
        compiled(torch.arange(8.0), rank)
        dist.barrier()  # a rank whose graph has fewer calls meets the other rank's further one here
    except dist.DistBackendError as error:
        text = str(error)
    expect(text, *words)


def differs_over_tcp(rank, n, path):
    options = tutti.torch.Options(transport="tcp")
    dist.init_process_group("tutti", init_method=f"file://{path}", rank=rank, world_size=n, pg_options=options)
    differs(rank, n, "other_bucket", ["rank 0", "rank 1", "a graph that begins with all_reduce of float32"])
    dist.destroy_process_group()


def recompiles_alone(rank, n):
    """A shape that no collective sees: one rank compiles again, the others wait for it. One that a collective sees: an
    error with both sizes."""
    compiled = torch.compile(sum_of_squares, backend=get_backend(), fullgraph=True)
    for step in range(3):
        rows_here = 4 + step * rank
        total = compiled(torch.ones(rows_here, 2))
        assert total.item() == 2 * sum(4 + step * r for r in range(n)), total
    torch._dynamo.reset()
    direct = torch.compile(all_of_it, backend=get_backend(), fullgraph=True)
    direct(torch.ones(4))
    text = message_of(direct, torch.ones(4 + rank))
    expect(text, "all_reduce of float32 × 4", "all_reduce of float32 × 5", "rank 0", "rank 1")


def sum_of_squares(x):
    total = (x * x).sum()
    dist.all_reduce(total)
    return total


def all_of_it(x):
    y = x * 2
    dist.all_reduce(y)
    return y


def beside_eager(rank, n):
    """A graph and the same calls without one, on two ranks; but what is put together is not what single calls are."""
    call = torch.compile(one_after_the_other, backend=get_backend(), fullgraph=True) if rank == 0 else one_after_the_other
    found = call(torch.arange(4.0))
    assert torch.equal(found, torch.tensor([7.0, 7.0, 7.0, 7.0]) * 0 + found[0]), found
    call = torch.compile(small_ones, backend=get_backend(), fullgraph=True) if rank == 0 else small_ones
    expect(message_of(call, torch.ones(4, 3)), "a graph that begins with all_reduce of float32", "all_reduce of float32 × 3")


class Guards(unittest.TestCase):
    def test_buckets_of_other_parts(self):
        ranks.run(2, differs, "other_bucket", ["rank 0", "rank 1", "a graph that begins with all_reduce of float32"], limit=300)

    @unittest.skipUnless(LONG, LONG_SAYS)
    def test_buckets_of_other_parts_over_tcp(self):
        with tempfile.TemporaryDirectory() as folder:
            ranks.run(2, differs_over_tcp, os.path.join(folder, "store"), backend=None, limit=300)

    @unittest.skipUnless(LONG, LONG_SAYS)
    def test_other_collectives(self):
        ranks.run(2, differs, "other_collective", ["rank 0", "rank 1", "all_reduce of float32 × 8", "broadcast of float32 × 8"],
                  limit=300)

    @unittest.skipUnless(LONG, LONG_SAYS)
    def test_a_collective_that_one_rank_lacks(self):
        ranks.run(2, differs, "one_more", ["rank 0", "rank 1", "barrier", "all_reduce of float32 × 8, sum"], limit=300)

    def test_a_rank_that_compiles_again_alone(self):
        ranks.run(2, recompiles_alone, limit=300)

    @unittest.skipUnless(LONG, LONG_SAYS)
    def test_ranks_with_and_without_a_graph(self):
        ranks.run(2, beside_eager, limit=300)


# ---- The documents' programs

SCHEME = textwrap.dedent("""
    import os
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as mp
    {imports}


    class AllReduce(torch.nn.Module):
        def __init__(self):
            super().__init__()

        def forward(self, x, y):
            x = x + y
            torch.distributed.all_reduce(x, op=dist.ReduceOp.SUM)
            return x


    def example(rank, world_size):
        torch.manual_seed(0)
        dist.init_process_group("tutti", rank=rank, world_size=world_size)
        x = torch.ones((2, 2), dtype=torch.int32)
        y = torch.ones((2, 2), dtype=torch.int32)
        mod = AllReduce()
        config = torchair.CompilerConfig()
        backend = torchair.get_npu_backend(compiler_config=config)
        mod = torch.compile(mod, backend=backend, dynamic=False, fullgraph=True)
        ret = mod(x, y)
        assert x.tolist() == [[1, 1], [1, 1]], x
        print("result", ret.tolist())
        dist.destroy_process_group()


    if __name__ == "__main__":
        {patch}
        world_size = 2
        os.environ["MASTER_ADDR"] = "localhost"
        os.environ["MASTER_PORT"] = "{port}"
        mp.spawn(example, args=(world_size,), nprocs=world_size, join=True)
""")


class Documents(unittest.TestCase):
    def check(self, imports, patch):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder, "program.py")
            program.write_text(SCHEME.format(imports=imports, patch=patch, port=ranks.free_port()))
            done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        # Two processes write to one pipe: the words of both may meet in a line.
        self.assertEqual((done.stdout.count("result"), done.stdout.count("[[4, 4], [4, 4]]")), (2, 2), done.stdout)

    @rows("S20-017", "E-301", "S20-012", "S20-016")
    def test_the_program_of_the_first_scheme(self):
        self.check("import tutti.graph as torchair", "torchair.patch_for_hcom()")

    @rows("S20-014", "S20-015")
    def test_the_program_of_the_second_scheme(self):
        self.check("import tutti.graph as torchair\nfrom tutti.graph import patch_for_hcom_allreduce", "pass")

    def test_the_second_scheme_without_a_graph(self):
        ranks.run(2, second_scheme, limit=120)

    def test_without_pytorch_the_first_use_says_so(self):
        where = next(path for path in sys.path if os.path.isdir(os.path.join(path, "tutti", "graph")))
        program = ("import sys; sys.modules['torch'] = None\n"
                   "import tutti.graph\n"
                   "for name in ('get_backend', 'patch_for_hcom'):\n"
                   "    try:\n        getattr(tutti.graph, name)()\n    except ImportError as error:\n        print(error)")
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60,
                              env=os.environ | {"PYTHONPATH": where})
        said = "tutti.graph needs PyTorch, with torch.distributed; type: pip install torch"
        self.assertEqual(done.stdout.count(said), 2, done.stdout + done.stderr)


def second_scheme(rank, n):
    import tutti.graph.patch_for_hcom_allreduce as patched

    assert dist.all_reduce is patched.all_reduce
    for op, expected in ((dist.ReduceOp.SUM, n * (n + 1) / 2), (dist.ReduceOp.MAX, n)):
        x = torch.full((3,), rank + 1.0)
        assert dist.all_reduce(x, op) is None
        assert x.eq(expected).all(), x
    x = torch.full((3,), rank + 1.0)
    dist.all_reduce(x, async_op=True).wait()
    assert x.eq(n * (n + 1) / 2).all(), x
    leaf = torch.ones(2, requires_grad=True)
    dist.all_reduce(leaf)
    assert leaf.detach().eq(n).all()


class Example(unittest.TestCase):
    def test_the_example_is_one_graph(self):
        done = ranks.torchrun(str(HERE.parents[2] / "examples/torch/graph.py"), timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        self.assertIn("two layers, 1 graph", done.stdout)

    def test_the_training_with_and_without_a_compiler_gives_equal_weights(self):
        done = ranks.torchrun(str(HERE.parents[2] / "examples/torch/compiled.py"), timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        expect(done.stdout, "equal weights", "calls became one: all_reduce of float32", "algebra: ", "replayed 20 times")


# ---- DeepSpeed's wrappers


def of_deepspeed(rank, n):
    """The real package. What it would do without a graph needs its own initialisation, which compiles C++; so the expected
    values are torch.distributed's."""
    tutti.graph.patch_for_hcom()
    from deepspeed import comm  # patched while it is imported

    def function(x, calls, maximum):
        y, z, v = x + 1, x * 2, x * 3
        calls.all_reduce(y)
        calls.all_reduce(z, op=maximum)
        (calls.inference_all_reduce if calls is comm else calls.all_reduce)(v)
        whole = x.new_empty(n * 4)
        calls.all_gather_into_tensor(whole, v)
        part = torch.empty_like(x)
        calls.reduce_scatter_tensor(part, whole)
        calls.broadcast(part, 0)
        parts = [torch.empty_like(x) for _ in range(n)]
        calls.all_gather(parts, x)
        exchanged = torch.empty_like(x)
        calls.all_to_all_single(exchanged, x)
        return y, z, v, whole, part, *parts, exchanged

    x = torch.arange(4.0) + rank
    expected = function(x, dist, dist.ReduceOp.MAX)
    found = torch.compile(lambda x: function(x, comm, comm.ReduceOp.MAX), backend="aot_eager", fullgraph=True)(x)
    assert len(found) == len(expected)
    for one, other in zip(found, expected):
        assert torch.equal(one, other), (one, other)


class Frameworks(unittest.TestCase):
    @rows("S20-013")
    @unittest.skipUnless(importlib.util.find_spec("deepspeed"), "pip cannot install deepspeed")
    def test_deepspeeds_wrappers_are_traceable(self):
        ranks.run(2, of_deepspeed, limit=300)


setUpModule = ranks.load_compiler

if __name__ == "__main__":
    main("python_torch_graph_passes")
