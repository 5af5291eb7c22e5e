"""What a checker of types says about programs: right ones pass mypy --strict, wrong ones are refused at the line that is
wrong, and what a call returns is known from async_op."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "mypy")
sys.path.insert(0, str(ROOT / "tests/support"))
from rows import main

HEAD = """
import array
from collections.abc import Sequence

import numpy as np
import tutti.distributed as dist
import tutti.graph
import tutti.hfai.distributed as hfai
from tutti.arrays import Array


class Tensor:
    def __dlpack__(self, *, stream: int | None = None) -> object:
        return None

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


x, y, tensor, flag = np.ones(4), np.ones(4), Tensor(), bool(input())
"""
RIGHT = """
dist.all_reduce(x)
dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
dist.all_reduce(bytearray(4))
dist.all_reduce(memoryview(bytearray(4)))
dist.all_reduce(array.array("f", [1.0]))
dist.all_reduce(x, async_op=True).wait()
dist.all_reduce(x, dist.ReduceOp.SUM, None, True).wait()
dist.broadcast(x, src=0, async_op=True).get_future().then(lambda future: future.value()[0])
dist.all_gather([x, y], x)
dist.all_gather((x, tensor), x, async_op=True).wait()
dist.all_gather_coalesced([[x], [y]], [x], async_op=True).result()
dist.reduce_scatter(x, [x, y], async_op=True).wait()
dist.all_to_all([x, y], [y, x], async_op=True).wait()
dist.all_to_all_single(x, y, [2, 2], [2, 2], async_op=True).wait()
dist.all_to_all_v(x, y, send_counts=[2, 2], async_op=True).wait()
dist.barrier(async_op=True).wait()
dist.quantized_all_reduce(x, output=y, async_op=True).wait()
dist.QuantizedReducer().all_reduce(x, async_op=True).wait()
dist.plan.all_reduce(x).run()
dist.send(x, 1)
print(dist.recv(x) + 1)
print(dist.sendrecv(x, 1, y, dist.NO_RANK) + dist.sendrecv_replace(x, 1, 0))
print(dist.probe(tag=1).count + dist.matched_probe(src=0).recv().sum())
message = dist.matched_iprobe()
if message is not None:
    print(message.info.dtype.upper())
hfai.gather(1, [None], async_op=True).wait()
tutti.graph.compute([x], [y], lambda: None)
print(dist.empty_symmetric((2, 3), "float32").sum())
with dist.Window(4, "float32") as window:
    window.put_signal(x, target=0, offset=1)
    window.wait_signal(0, at_least=1)
    print(window.local()[0])
work = dist.all_reduce(x, async_op=flag)
if work is not None:
    work.wait()


def average(gradients: Sequence[Array]) -> None:
    for gradient in gradients:
        dist.all_reduce(gradient, op=dist.ReduceOp.AVG)
"""
# One line each, which is refused when it follows HEAD.
WRONG = """
dist.all_reduce("hello")
dist.all_reduce(1.5)
dist.all_reduce([1.0, 2.0])
dist.all_reduce(None)
dist.all_reduce(x, op="sum")
dist.all_reduce(x, group="world")
dist.all_reduce(x, async_op="yes")
dist.all_reduce(x, timeout=10)
dist.all_reduce(x).wait()
dist.all_reduce(x, async_op=False).wait()
dist.all_reduce(x, async_op=flag).wait()
dist.all_reduce(x, async_op=True).done()
dist.broadcast(x, src="0")
dist.all_gather(x, [x])
dist.all_gather("ab", x)
dist.all_gather_into_tensor(x, [x, y])
dist.all_gather_coalesced([x, y], [x])
dist.reduce_scatter(x, ["a"])
dist.gather(x, [x, "b"])
dist.scatter(x, x, src=0, async_op=True).wait(1)
dist.all_to_all_single(x, y, output_split_sizes="22")
dist.barrier().wait()
dist.quantized_all_reduce("hello")
dist.quantized_all_reduce(x).wait()
dist.plan.all_reduce("hello")
dist.send("hello", 1)
dist.recv([x])
dist.isend("hello", 1)
dist.P2POp(dist.isend, "hello", 1)
hfai.gather(1, [None]).wait()
hfai.pairwise_apply(print, "hello")
tutti.graph.compute(["hello"], [x], lambda: None)
tutti.graph.item("hello")
dist.Window("4", "float32")
dist.Window(4, "float32").put("hello", 0)
dist.Window(4, "float32").get(x)
dist.Window(4, "float32").iput(x, 0).wait()
"""


def faults(program, *options):
    """Numbers of the lines that mypy refuses, from 1, and what it says."""
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "program.py").write_text(program)
        done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", CACHE,
                               *options, "program.py"], capture_output=True, text=True, cwd=folder)
    if done.returncode > 1:
        raise AssertionError(done.stdout + done.stderr)
    said = re.findall(r"^program\.py:(\d+): error: (.*)", done.stdout, re.M)
    return sorted({int(line) for line, _ in said}), said


class Types(unittest.TestCase):
    def test_right_programs_pass(self):
        self.assertEqual(faults(HEAD + RIGHT)[1], [])

    def test_each_wrong_line_is_refused(self):
        program = HEAD + WRONG.lstrip()
        first, count = HEAD.count("\n") + 1, WRONG.strip().count("\n") + 1
        refused, said = faults(program)
        lines = program.split("\n")
        self.assertEqual([lines[n - 1] for n in range(first, first + count) if n not in refused], [], "mypy accepts them")
        self.assertEqual([n for n in refused if n < first], [], said)

    def test_the_examples_pass(self):
        for example in sorted((ROOT / "examples/python").glob("*.py")):
            with self.subTest(example=example.name):
                self.assertEqual(faults(example.read_text())[1], [])


if __name__ == "__main__":
    main("python_" + pathlib.Path(__file__).stem)
