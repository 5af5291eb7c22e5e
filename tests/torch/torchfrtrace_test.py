"""PyTorch's torchfrtrace reads what ranks leave: through tutti.torch, and as any program of tutti's library does."""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import pathlib
import pickle
import re
import subprocess
import sys
import tempfile
import time
import unittest
from datetime import timedelta
from typing import Any

import ranks
import torch
import torch.distributed as dist

BUILD = pathlib.Path(os.environ.get("TUTTI_BUILD_DIR", pathlib.Path(__file__).resolve().parents[2] / "build"))
TUTTI, PROGRAM = BUILD / "bin/tutti", BUILD / "tests/flight_program"


def everything(rank: int, n: int, folder: str, case: str) -> None:
    """Each kind of operation, then what `case` does wrong; leaves the files of all ranks."""
    import tutti.torch

    os.environ["TORCH_FR_BUFFER_SIZE"] = "1000"
    dist.init_process_group("tutti", rank=rank, world_size=n, timeout=timedelta(seconds=60))
    for sizes in ((3,), (50, 50), ()):
        dist.all_reduce(torch.ones(sizes))
    dist.broadcast(torch.ones(4), 1)
    dist.reduce(torch.ones(4), 0)
    dist.all_gather([torch.empty(2, 2) for _ in range(n)], torch.ones(2, 2))
    dist.all_gather([torch.empty(other + 1) for other in range(n)], torch.ones(rank + 1))
    dist.all_gather_into_tensor(torch.empty(n * 3), torch.ones(3))
    dist.reduce_scatter(torch.empty(3), [torch.ones(3) for _ in range(n)])
    dist.reduce_scatter_tensor(torch.empty(3), torch.ones(n * 3))
    dist.gather(torch.ones(2), [torch.empty(2) for _ in range(n)] if rank == 0 else None, 0)
    dist.scatter(torch.empty(2), [torch.ones(2) for _ in range(n)] if rank == 0 else None, 0)
    counts = [[(i + 2 * j) % 5 + 1 for j in range(n)] for i in range(n)]
    sent, received = counts[rank], [counts[i][rank] for i in range(n)]
    dist.all_to_all_single(torch.empty(sum(received), 2), torch.ones(sum(sent), 2), received, sent)
    dist.all_to_all([torch.empty(count) for count in received], [torch.ones(count) for count in sent])
    dist.all_to_all_single(torch.empty(n), torch.ones(n))
    dist.barrier()
    objects = [None] * n
    dist.all_gather_object(objects, {"rank": rank})
    pair = dist.new_group([0, n - 1])
    if rank in (0, n - 1):
        dist.all_reduce(torch.ones(3), group=pair)
    right, left = (rank + 1) % n, (rank - 1) % n
    for _ in range(2):
        work = dist.isend(torch.ones(3), right)
        dist.recv(torch.empty(3), left)
        work.wait()
    if rank == 0:
        for _ in range(1, n):
            dist.recv(torch.empty(3))
    else:
        dist.send(torch.ones(3), 0)
    dist.barrier()  # or rank 0 may hear of the mistake while it still receives
    last = n - 1
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=3), dist.group.WORLD)
    try:
        if case == "sizes":
            dist.all_reduce(torch.ones(4 + rank // last))
        elif case == "absent" and rank != last:
            dist.all_reduce(torch.ones(4))
        elif case == "message" and rank == 0:
            dist.recv(torch.empty(3), 1)
        assert case == "clean" or (case == "absent" and rank == last) or (case == "message" and rank != 0)
    except RuntimeError as error:
        assert case != "clean", error
    assert tutti.torch.dump_flight_recorder(folder) == f"{folder}/rank_{rank}"
    end = time.monotonic() + 30  # nobody leaves before all have written
    while not all(os.path.exists(f"{folder}/rank_{other}") for other in range(n)) and time.monotonic() < end:
        time.sleep(0.01)


def torchfrtrace(arguments: list[str], output: str) -> None:
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    from torch.distributed.flight_recorder import fr_trace

    fr_trace.main(arguments)


class Torchfrtrace(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name) / "flight"

    def read(self, *options: str, folder: pathlib.Path | None = None) -> tuple[int, str, Any]:
        """Its status, what it says and, where it makes one, its data base. A fork, as PyTorch is loaded here already."""
        base, said = self.folder.parent / "base", self.folder.parent / "said"
        base.unlink(missing_ok=True)
        process = multiprocessing.get_context("fork").Process(
            target=torchfrtrace, args=([str(folder or self.folder), "-o", str(base), *options], str(said)))
        process.start()
        process.join(120)
        return process.exitcode, said.read_text(), pickle.loads(base.read_bytes())[1] if base.exists() else None

    def check_clean(self, folder: pathlib.Path | None = None) -> None:
        status, said, base = self.read(folder=folder)
        self.assertEqual(status, 0, said)
        self.assertNotIn("mismatch", said.lower())
        self.assertNotIn("errors", said)
        self.assertNotIn("Not all ranks", said)
        wrong = [each for each in base.collectives if not each.pass_check or each.missing_ranks]
        self.assertEqual(wrong, [], said)
        self.assertGreater(len(base.collectives), 15)

    def check_verdict(self, case: str, folder: pathlib.Path | None = None) -> None:
        status, said, _ = self.read(folder=folder)
        self.assertEqual(status, 0, said)
        expected = {"sizes": ("has errors", "Error type: SIZE_OR_SYNTAX_MISMATCH", "[[4]]", "[[5]]"),
                    "types": ("has errors", "Error type: COLLECTIVE_TYPE_MISMATCH", "'broadcast'", "'all_reduce'"),
                    "splits": ("has errors", "COLLECTIVE_STATE_MISMATCH", "gloo:all_to_all"),  # for two ranks it was over
                    "absent": ("Not all ranks joining collective", "missing ranks: {2}"),
                    "message": ("Not all ranks joining collective", "from 1 to 0", "missing ranks: {1}")}[case]
        for words in expected:
            self.assertIn(words, said)
        # Nothing but the mistake.
        self.assertEqual(len(re.findall("sequence number: ", said)), 1, said)

    # Through tutti.torch, with shapes and stacks.

    def torch_job(self, case: str, n: int = 3) -> None:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(ranks.free_port()))
        ranks.run(n, everything, str(self.folder), case, backend=None)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), [f"rank_{rank}" for rank in range(n)])

    def test_tutti_torch_clean(self) -> None:
        self.torch_job("clean")
        self.check_clean()
        trace = pickle.loads((self.folder / "rank_1").read_bytes())
        self.assertEqual(trace["version"], "2.11")
        self.assertTrue(trace["comm_lib_version"].startswith("tutti "))
        uneven = next(entry for entry in trace["entries"] if "input_split_sizes" in entry)
        self.assertEqual((uneven["input_split_sizes"], uneven["output_split_sizes"]), ([4, 8, 2], [6, 8, 10]))
        self.assertTrue(uneven["frames"][0]["filename"])

    @unittest.skipUnless(os.environ.get("TUTTI_TORCH_TESTS") == "all", "make test-torch tries more mistakes")
    def test_tutti_torch_what_goes_wrong(self) -> None:
        for case in ("sizes", "message"):
            with self.subTest(case=case):
                self.setUp()
                self.torch_job(case)
                self.check_verdict(case)

    def test_tutti_torch_without_a_rank_or_its_file(self) -> None:
        self.torch_job("absent")
        self.check_verdict("absent")
        (self.folder / "rank_1").unlink()
        status, said, _ = self.read()
        self.assertNotEqual(status, 0)
        self.assertIn("Missing dump files from ranks {1}", said)
        status, said, _ = self.read("--allow-incomplete-ranks")
        self.assertEqual(status, 0, said)
        self.assertIn("missed FR dumps from ranks ({1})", said)

    # As every program of the library: this one is in C++.

    def library_job(self, case: str) -> subprocess.CompletedProcess:
        return subprocess.run([str(TUTTI), "run", "-n", "3", "--timeout", "60", str(PROGRAM), case],
                              capture_output=True, text=True, timeout=90,
                              env=os.environ | {"TUTTI_TRACE_DIR": str(self.folder), "TUTTI_TRACE_FORMAT": "torch",
                                                "TUTTI_TIMEOUT_MS": "2000" if case in ("absent", "message") else "30000"})

    def test_library_clean(self) -> None:
        done = self.library_job("clean")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.check_clean()
        # From the other dumps, which lie beside these, tutti trace makes the same.
        other = self.folder.parent / "made"
        subprocess.run([str(TUTTI), "trace", str(self.folder), "--torch", str(other)], check=True, capture_output=True)
        self.assertEqual(sorted(path.name for path in other.iterdir()),
                         sorted(path.name for path in self.folder.glob("flight_*")))
        self.check_clean(other)
        for path in other.iterdir():
            here, there = (pickle.loads(file.read_bytes())["entries"] for file in (path, self.folder / path.name))
            self.assertEqual([entry["profiling_name"] for entry in here], [entry["profiling_name"] for entry in there])

    @unittest.skipUnless(importlib.util.find_spec("tabulate"), "torchfrtrace prints entries by the package tabulate")
    def test_library_entries_are_printed_by_the_command(self) -> None:
        self.library_job("clean")
        done = subprocess.run([sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", str(self.folder), "-j"],
                              capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("all_to_all(", done.stdout + done.stderr)

    def test_library_what_goes_wrong(self) -> None:
        for case, error in (("sizes", "rank 2 called all_reduce"), ("types", "rank 2 called broadcast"),
                            ("splits", "rank 0 sends float32 × 3 to rank 2, which expects 1"),
                            ("absent", "timed out after"), ("message", "timed out after")):
            with self.subTest(case=case):
                self.setUp()
                done = self.library_job(case)
                self.assertIn(error, done.stdout + done.stderr)
                if case == "splits":  # schema 2.11 has what it takes to name the pair
                    last = [pickle.loads(next(self.folder.glob(f"flight_*_rank_{rank}")).read_bytes())["entries"][-1]
                            for rank in (0, 2)]
                    self.assertEqual((last[0]["input_split_sizes"], last[1]["output_split_sizes"]), ([2, 2, 3], [1, 2, 2]))
                self.check_verdict(case)


if __name__ == "__main__":
    unittest.main()
