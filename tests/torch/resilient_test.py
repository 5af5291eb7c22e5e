"""Trainings that outlive their ranks: DistributedDataParallel's and fully_shard's, with newcomers and with fewer ranks."""

from __future__ import annotations

import hashlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest
from datetime import timedelta

import ranks
import torch
import torch.distributed as dist
import training
import tutti.torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

try:
    import tutti.distributed as tutti_dist
except ImportError:
    tutti_dist = None  # libtutti's package: tools/torch-tests says where it is taken from

BUILD = pathlib.Path(os.environ.get("TUTTI_BUILD_DIR", pathlib.Path(__file__).resolve().parents[2] / "build"))
EXAMPLE = str(pathlib.Path(__file__).resolve().parents[2] / "examples/torch/resilient.py")
LONG = os.environ.get("TUTTI_TORCH_TESTS") == "all"  # else some of the cases
LONG_SAYS = "takes long: TUTTI_TORCH_TESTS=all runs it"
STEPS, SIZE = 12, 4


def make(kind: str):
    net = training.model()
    if kind == "ddp":
        net = nn.parallel.DistributedDataParallel(net)
    elif kind == "fsdp2":
        net = fully_shard(net)
    else:  # sharded in pairs, replicated between them
        net = fully_shard(net, mesh=init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard")))
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    return net, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 3)


def train(process: int, place, kind: str, deaths: dict[int, tuple[int, str]], wait: float | None, distance: int | None):
    """What a process does that may be killed: `deaths` says of some in which step, and where in it."""
    losses = torch.zeros(STEPS, dtype=torch.float64)
    seen = []

    def step(r, net, optimizer, scheduler):
        dying = deaths.get(process, (-1, ""))
        if r.step == dying[0] and dying[1] == "begin":
            os.kill(os.getpid(), signal.SIGKILL)
        seen.append((r.step, dist.get_world_size()))
        x, y = training.batch(dist.get_rank(), r.step)
        loss = nn.functional.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        if r.step == dying[0] and dying[1] == "middle":
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.step()
        scheduler.step()
        mean = loss.detach().double().reshape(1)
        dist.all_reduce(mean)
        losses[r.step] = mean[0]
        if r.step == dying[0] and dying[1] == "end":
            os.kill(os.getpid(), signal.SIGKILL)

    group = tutti_dist.join(place) if process >= SIZE else None
    if group is None:
        tutti_dist.init_process_group(store=place, rank=process, world_size=SIZE, timeout=timedelta(seconds=30))
    else:
        tutti_dist.set_default_group(group)
    net, optimizer, scheduler = tutti.torch.resilient(
        lambda: make(kind), step, steps=STEPS, state=[losses], place=place, distance=distance,
        wait=None if wait is None else timedelta(seconds=wait))
    state = [getattr(p, "full_tensor", lambda p=p: p)().detach().numpy().tobytes() for p in net.parameters()]
    outcome = losses.tolist(), hashlib.sha256(b"".join(state)).hexdigest(), scheduler.get_last_lr(), dist.get_world_size()
    dist.destroy_process_group()
    tutti_dist.destroy_process_group()
    return outcome, seen


def run_process(process: int, count: int, path: str, kind: str, deaths: dict, wait: float | None, distance: int | None):
    os.environ["TUTTI_DETERMINISM"] = "run_to_run"
    if process in deaths:  # killed, and only this process sees it
        child = os.fork()
        if child:
            return None if os.waitpid(child, 0)[1] == signal.SIGKILL else "not killed"
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        os.environ.pop(name, None)
    return train(process, tutti_dist.FileStore(path), kind, deaths, wait, distance)


@unittest.skipIf(tutti_dist is None, "needs the package libtutti beside tutti.torch: make python")
class Resilient(unittest.TestCase):
    def run_job(self, kind: str, deaths: dict, newcomers: int, wait: float | None = None, distance: int | None = None):
        with tempfile.TemporaryDirectory() as folder:
            found = ranks.run(SIZE + newcomers, run_process, os.path.join(folder, "place"), kind, deaths, wait, distance,
                              backend=None, limit=90)
        self.assertEqual([found[process] for process in deaths], [None] * len(deaths))
        left = [one for one in found if one is not None]
        self.assertTrue(all(outcome == left[0][0] for outcome, _ in left), [outcome for outcome, _ in left])
        return left[0][0], [seen for _, seen in left]

    def test_a_newcomer_takes_over_and_the_bits_are_those_of_an_undisturbed_run(self) -> None:
        begin, early, late, two = {1: (5, "begin")}, {0: (0, "middle")}, {3: (4, "end")}, {1: (6, "middle"), 2: (8, "end")}
        some = (("ddp", (early,)), ("fsdp2", (two,)))
        for kind, cases in (("ddp", (early, two)), ("fsdp2", (begin, early, late, two)), ("hsdp", (begin, late))) if LONG else some:
            undisturbed, _ = self.run_job(kind, {}, 0)
            self.assertEqual(undisturbed[3], SIZE)
            for deaths in cases:
                with self.subTest(kind=kind, deaths=deaths):
                    self.assertEqual(self.run_job(kind, deaths, len(deaths))[0], undisturbed)

    def test_two_ranks_end_at_once(self) -> None:
        deaths = {0: (5, "begin"), 2: (5, "begin")}
        undisturbed, _ = self.run_job("fsdp2", {}, 0)
        self.assertEqual(self.run_job("fsdp2", deaths, 2)[0], undisturbed)
        with self.assertRaisesRegex(AssertionError, r"the state of ranks \[0, 2\] is lost: each ended together with the rank 2"):
            self.run_job("fsdp2", deaths, 2, distance=2)

    @unittest.skipUnless(LONG, LONG_SAYS)
    def test_without_a_newcomer_fewer_ranks_go_on(self) -> None:
        for kind in ("ddp", "fsdp2"):
            outcome, seen = self.run_job(kind, {2: (5, "middle")}, 0, wait=0.0)
            self.assertEqual(outcome[3], SIZE - 1)
            self.assertEqual([step for step, size in seen[0] if size == SIZE - 1], list(range(5, STEPS)))
            undisturbed, _ = self.run_job(kind, {}, 0)
            self.assertEqual(outcome[0][:5], undisturbed[0][:5])
            # A step with fewer ranks has other batches: close by, and not equal.
            for fewer, all_ranks in zip(outcome[0][5:], undisturbed[0][5:]):
                self.assertAlmostEqual(fewer / 3, all_ranks / 4, delta=0.3)

    def test_arguments(self) -> None:
        with self.assertRaisesRegex(ValueError, "distance is 0; expected at least 1"):
            tutti.torch.resilient(make, print, steps=1, distance=0)
        with self.assertRaisesRegex(ValueError, "TUTTI_STORE_PORT is not set; expected a launcher"):
            tutti.torch.resilient(make, print, steps=1)
        with self.assertRaisesRegex(ValueError, "place is a HashStore; expected"):
            tutti.torch.resilient(make, print, steps=1, place=tutti_dist.HashStore())

    @unittest.skipUnless(LONG, LONG_SAYS)
    def test_the_example_under_tutti_run(self) -> None:
        def said(*arguments: str) -> str:
            job = subprocess.run([str(BUILD / "bin/tutti"), "run", "--timeout", "100", "-n", "4", *arguments], capture_output=True,
                                 text=True, env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHON_EXEC": sys.executable}, timeout=120)
            self.assertEqual(job.returncode, 0, job.stdout + job.stderr)
            return job.stdout

        for kind, how in (("ddp", ["--spares", "1"]), ("fsdp2", ["--replace"])):
            self.assertEqual(said(*how, EXAMPLE, kind, "--steps", "30", "--kill", "10"), said(EXAMPLE, kind, "--steps", "30"))


if __name__ == "__main__":
    unittest.main()
