"""PyTorch's programs under tutti run, as under torchrun: with gloo, with gloo replaced, with tutti by name, and beside tutti's
own library in one process; on one node and on two, and started again after a failure."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import ranks

BUILD = pathlib.Path(os.environ.get("TUTTI_BUILD_DIR", pathlib.Path(__file__).resolve().parents[2] / "build"))
TUTTI = BUILD / "bin/tutti"

PROGRAM = """
import os, sys
from datetime import timedelta
import torch, torch.distributed as dist
backend, attempt = sys.argv[1], int(os.environ["TORCHELASTIC_RESTART_COUNT"])
assert dist.is_torchelastic_launched()
dist.init_process_group(backend, timeout=timedelta(seconds=60))
x = torch.full((1000,), 1.0 + dist.get_rank())
dist.all_reduce(x)
if attempt < int(os.environ.get("FAILING", "0")) and dist.get_rank() == 1:
    sys.exit(5)
dist.barrier()
print(f"rank {dist.get_rank()} of {dist.get_world_size()}, attempt {attempt}: {x[0].item():g}", flush=True)
dist.destroy_process_group()
"""


class UnderTuttiRun(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.program = pathlib.Path(folder.name) / "program.py"
        self.program.write_text(PROGRAM)

    def start(self, *arguments: object, **environment: str) -> subprocess.Popen:
        return subprocess.Popen([str(TUTTI), "run", "--timeout", "120", "--no-prefix", *map(str, arguments)],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHON_EXEC": sys.executable} | environment)

    def said(self, *jobs: subprocess.Popen) -> list[str]:
        lines = []
        for job in jobs:
            out, error = job.communicate(timeout=150)
            self.assertEqual(job.returncode, 0, out + error)
            lines += out.splitlines()
        return sorted(lines)

    def expected(self, size: int, attempt: int = 0) -> list[str]:
        return [f"rank {rank} of {size}, attempt {attempt}: {size * (size + 1) // 2}" for rank in range(size)]

    def test_with_gloo_with_gloo_replaced_and_with_tutti(self) -> None:
        for backend, replaced in (("gloo", "0"), ("gloo", "1"), ("tutti", "0")):
            with self.subTest(backend=backend, replaced=replaced):
                self.assertEqual(self.said(self.start("-n", 2, self.program, backend, TUTTI_REPLACE_GLOO=replaced)),
                                 self.expected(2))

    def test_started_again_after_a_failure_at_a_port_that_was_named(self) -> None:
        job = self.start("-n", 2, "--max-restarts", 1, "--master-port", ranks.free_port(), self.program, "gloo", FAILING="1")
        self.assertEqual(self.said(job), self.expected(2, attempt=1))

    def test_on_two_nodes_and_started_again(self) -> None:
        port = ranks.free_port()
        nodes = [self.start("--nnodes", 2, "--node-rank", k, "--master-addr", "127.0.0.1", "--master-port", port,
                            "--max-restarts", 1, self.program, "tutti", FAILING="1") for k in (1, 0)]
        self.assertEqual(self.said(*nodes), self.expected(2, attempt=1))

    def test_beside_tutti_s_own_library_in_one_process(self) -> None:
        """Both join by env://: PyTorch's store is rank 0's at MASTER_PORT, tutti's is the launcher's."""
        library = BUILD / "lib/libtutti.so"
        self.program.write_text(f"""
import ctypes, torch, torch.distributed as dist
tutti = ctypes.CDLL({str(library)!r})
dist.init_process_group("gloo")
assert tutti.tutti_init_process_group(None) == 0, "tutti_init_process_group"
x = torch.ones(3)
dist.all_reduce(x)
print("both", int(x[0].item()), dist.get_rank())
dist.barrier()
tutti.tutti_destroy_process_group(None)
dist.destroy_process_group()
""")
        self.assertEqual(self.said(self.start("-n", 2, self.program)), ["both 2 0", "both 2 1"])


if __name__ == "__main__":
    unittest.main()
