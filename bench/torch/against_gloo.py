#!/usr/bin/env python3
"""tutti beside gloo of the same PyTorch, in one run, in turn: what torch.distributed's calls cost.

usage: against_gloo.py [--repeat 5] [--only NAME] [--json FILE]

Each row is the median over the rounds of a round's median time; rounds alternate between the backends. Ranks have one thread
each, and are forked; those whose init_process_group is timed are fresh processes, as launchers start them (the copying of
pages that a fork makes would be half of the time, for any backend). What communication adds to a training step is the step
less the same step on one rank alone. The target is the ratio that the project has set itself.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from typing import Any, Callable

import torch
import torch._dynamo  # noqa: F401: so that no rank loads it
import torch.distributed as dist
import torch.distributed.fsdp
from torch import nn

import tutti.torch  # noqa: F401
from timing import timed

BACKENDS = ("tutti", "gloo")


def all_reduce(size: int, dtype: torch.dtype = torch.float32) -> Callable[[], float]:
    def run() -> float:
        x = torch.zeros(max(1, size // dtype.itemsize), dtype=dtype)
        return timed(lambda: dist.all_reduce(x))

    return run


def gather_or_scatter(name: str) -> Callable[[], float]:
    def run() -> float:
        n = dist.get_world_size()
        large, small = torch.zeros(1 << 18), torch.zeros((1 << 18) // n)
        calls = {"all_gather_into_tensor": (large, small), "reduce_scatter_tensor": (small, large),
                 "all_to_all_single": (large, torch.zeros(1 << 18))}
        return timed(lambda: getattr(dist, name)(*calls[name]))

    return run


def mlp() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*[layer for _ in range(4) for layer in (nn.Linear(256, 256), nn.ReLU())])


def step_time(net: nn.Module) -> float:
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    x = torch.randn(16, 256)

    def step() -> None:
        optimizer.zero_grad()
        net(x).sum().backward()
        optimizer.step()

    return timed(step, 1.0)


def training(kind: str) -> Callable[[], float]:
    """The step, less the same step where the only member of each group is this rank."""

    def wrapped(group: Any, mesh: Any) -> nn.Module:
        if kind == "ddp":
            return nn.parallel.DistributedDataParallel(mlp(), process_group=group)
        net = mlp()
        for layer in net:
            if isinstance(layer, nn.Linear):
                torch.distributed.fsdp.fully_shard(layer, mesh=mesh)
        return torch.distributed.fsdp.fully_shard(net, mesh=mesh)

    def run() -> float:
        from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

        n = dist.get_world_size()
        mesh = init_device_mesh("cpu", (n,))
        alone = init_device_mesh("cpu", (n, 1), mesh_dim_names=("ranks", "one"))["one"]
        assert isinstance(alone, DeviceMesh)
        return step_time(wrapped(dist.group.WORLD, mesh)) - step_time(wrapped(alone.get_group(), alone))

    return run


# name, ranks, what returns microseconds (None: init_process_group itself), target
ROWS: list[tuple[str, int, Callable[[], float] | None, float]] = [
    ("all_reduce 4 B", 2, all_reduce(4), 1 / 12),
    ("all_reduce 4 KB", 2, all_reduce(4 << 10), 0.25),
    ("all_reduce 64 KB", 2, all_reduce(64 << 10), 0.25),
    ("all_reduce 1 MB", 2, all_reduce(1 << 20), 0.25),
    ("all_reduce 64 MB", 2, all_reduce(64 << 20), 0.4),
    ("all_reduce 64 MB bf16", 2, all_reduce(64 << 20, torch.bfloat16), 0.25),
    ("all_gather_into_tensor 1 MB", 2, gather_or_scatter("all_gather_into_tensor"), 0.5),
    ("reduce_scatter_tensor 1 MB", 2, gather_or_scatter("reduce_scatter_tensor"), 0.5),
    ("all_to_all_single 1 MB", 2, gather_or_scatter("all_to_all_single"), 0.5),
    ("DDP step, what is added", 2, training("ddp"), 0.35),
    ("FSDP2 step, what is added", 2, training("fsdp2"), 0.35),
    ("all_reduce 4 B, 4 ranks", 4, all_reduce(4), 0.1),
    ("init of 8 ranks", 8, None, 0.5),
]


def _child(backend: str, rank: int, n: int, path: str, rows: list[int], results: Any, start: Any) -> None:
    torch.set_num_threads(1)
    start.wait()
    began = time.perf_counter()
    dist.init_process_group(backend, init_method=f"file://{path}", rank=rank, world_size=n)
    joined = (time.perf_counter() - began) * 1e6
    took = {}
    for row in rows:
        name, _, function, _ = ROWS[row]
        took[name] = function() if function else joined
        dist.barrier()
    results.put((rank, took))
    results.close()
    results.join_thread()
    dist.destroy_process_group()


def measure(backend: str, n: int, rows: list[int]) -> dict[str, float]:
    """The slowest rank's times."""
    context = multiprocessing.get_context("fork" if all(ROWS[row][2] for row in rows) else "spawn")
    with tempfile.TemporaryDirectory() as folder:
        results, start = context.Queue(), context.Barrier(n)
        ranks = [context.Process(target=_child, args=(backend, rank, n, os.path.join(folder, "store"), rows, results, start))
                 for rank in range(n)]
        for process in ranks:
            process.start()
        took = [results.get(timeout=300)[1] for _ in ranks]
        for process in ranks:
            process.join(timeout=60)
    return {name: max(one[name] for one in took) for name in took[0]}


def main() -> int:
    parser = argparse.ArgumentParser(description="tutti beside gloo of the same PyTorch.")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", default="", metavar="NAME", help="only rows whose name contains NAME")
    parser.add_argument("--json", help="file for the times")
    options = parser.parse_args()
    chosen = [(index, row) for index, row in enumerate(ROWS) if options.only in row[0]]
    if not chosen:
        parser.error(f"--only {options.only!r}: no row has this in its name; there are: {', '.join(row[0] for row in ROWS)}")
    times: dict[str, dict[str, list[float]]] = {row[0]: {backend: [] for backend in BACKENDS} for _, row in chosen}
    for _ in range(options.repeat):
        for n in sorted({row[1] for _, row in chosen}):
            rows = [index for index, row in chosen if row[1] == n]
            for backend in BACKENDS:
                for name, took in measure(backend, n, rows).items():
                    times[name][backend].append(took)
    met = 0
    print(f"PyTorch {torch.__version__}, {os.cpu_count()} processors, median of {options.repeat} rounds\n")
    print(f"{'':30}{'tutti us':>12}{'gloo us':>12}{'ratio':>8}{'target':>8}")
    for _, (name, _, _, target) in chosen:
        ours, theirs = (statistics.median(times[name][backend]) for backend in BACKENDS)
        ratio = ours / theirs
        met += ratio <= target
        print(f"{name:30}{ours:12.1f}{theirs:12.1f}{ratio:8.3f}{target:8.3f}{'' if ratio <= target else '  not met'}")
    print(f"\n{met} of {len(chosen)} targets met")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(times, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
