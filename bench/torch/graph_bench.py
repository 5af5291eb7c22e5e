#!/usr/bin/env python3
"""What a compiled graph with collectives takes beside the same calls without one, two ranks, in turn in one run.

usage: graph_bench.py [--rounds 5] [--seconds 0.3] --json FILE

Rows: {case, implementation, median_us}. small50: one tensor of 50 rows of 16 floats; each row is doubled, summed over the
ranks, and added to the rest. layers: two gated layers (norm, three matrices, an all_reduce) that the ranks share.
Implementations: eager (tutti), compiled, compiled without buckets, eager gloo.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import tempfile
from typing import Any, Callable

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

import torch
import torch.distributed as dist
from torch import nn

import tutti.graph
import tutti.torch  # noqa: F401
from timing import timed


def small50(x: torch.Tensor) -> torch.Tensor:
    total = torch.zeros_like(x[0])
    for row in x.unbind():
        y = row * 2
        dist.all_reduce(y)
        total = total + y
    return total


class Layer(nn.Module):
    """The gated layer of today's language models; of each matrix this rank's part."""

    def __init__(self, size: int, hidden: int, group: Any) -> None:
        super().__init__()
        self.group = group
        self.scale = nn.Parameter(torch.ones(size))
        self.gate, self.up = nn.Linear(size, hidden, bias=False), nn.Linear(size, hidden, bias=False)
        self.down = nn.Linear(hidden, size, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normal = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.scale
        y = self.down(nn.functional.silu(self.gate(normal)) * self.up(normal))
        dist.all_reduce(y, group=self.group)
        return x + y


def layers(group: Any = None) -> nn.Module:
    return nn.Sequential(Layer(256, 384, group), Layer(256, 384, group))


def measure(rank: int, path: str, options: argparse.Namespace, results: Any) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("tutti", init_method=f"file://{path}", rank=rank, world_size=2)
    torch.manual_seed(0)
    x, model, batch = torch.ones(50, 16), layers(), torch.randn(64, 256)
    on_gloo = layers(dist.new_group(backend="gloo"))
    whole = torch.compile(model, backend=tutti.graph.get_backend(), fullgraph=True)
    calls = {("small50", "eager"): lambda: small50(x), ("layers", "eager"): lambda: model(batch),
             ("layers", "compiled"): lambda: whole(batch), ("layers", "eager gloo"): lambda: on_gloo(batch)}
    plain = tutti.graph.CompilerConfig(bucket=False)
    for name, config in (("compiled", None), ("compiled, no buckets", plain)):
        function = torch.compile(small50, backend=tutti.graph.get_backend(config), fullgraph=True)
        calls["small50", name] = lambda function=function: function(x)
    with torch.no_grad():
        for call in calls.values():
            call()
        for _ in range(options.rounds):
            for (case, name), call in calls.items():
                us = timed(call, options.seconds, warm=5, least=10)
                if rank == 0:
                    results.put((case, name, us))
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3, help="for each round of a row")
    parser.add_argument("--json", required=True)
    options = parser.parse_args()
    context = multiprocessing.get_context("fork")
    times: dict[tuple[str, str], list[float]] = {}
    results = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        processes = [context.Process(target=measure, args=(rank, os.path.join(folder, "store"), options, results))
                     for rank in range(2)]
        for process in processes:
            process.start()
        for _ in range(options.rounds * 6):
            case, name, us = results.get(timeout=600)
            times.setdefault((case, name), []).append(us)
        for process in processes:
            process.join(timeout=60)
    rows = [{"case": case, "implementation": name, "median_us": statistics.median(values)}
            for (case, name), values in times.items()]
    with open(options.json, "w") as file:
        json.dump(rows, file, indent=1)
    for row in rows:
        print(f"{row['case']:10} {row['implementation']:22} {row['median_us']:10.1f} us")


if __name__ == "__main__":
    main()
