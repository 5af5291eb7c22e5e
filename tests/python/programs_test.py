"""The examples in Python, under tutti run, and forks: an inherited group refuses everything in the child."""
import os
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/support"))
import numpy as np
from ranks import run_ranks
from rows import main, rows

import tutti.distributed as dist


def forked(rank):
    x = np.ones(1)
    dist.all_reduce(x)
    child = os.fork()
    if child == 0:
        try:
            dist.all_reduce(x)
            os._exit(1)
        except dist.InvalidArgument:
            os._exit(0)
    status = os.waitpid(child, 0)[1]
    dist.all_reduce(x)
    return status, float(x[0])


class Programs(unittest.TestCase):
    @unittest.skipUnless("PROGRAM_UNDER_TEST" in os.environ, "PROGRAM_UNDER_TEST names no tutti")
    @rows("S14-012", "S1-032", "S1-040", "S3-003", "S3-004")
    def test_the_examples_run_under_the_launcher(self):
        for example in sorted((ROOT / "examples/python").glob("*.py")):
            with self.subTest(example=example.name):
                done = subprocess.run(
                    [os.environ["PROGRAM_UNDER_TEST"], "run", "-n", "3", "--timeout", "60", sys.executable, str(example)],
                    capture_output=True, text=True, timeout=90)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_a_forked_child_cannot_use_its_parents_group(self):
        self.assertEqual(run_ranks(forked), [(0, 4.0), (0, 4.0)])


if __name__ == "__main__":
    main("python_" + pathlib.Path(__file__).stem)
