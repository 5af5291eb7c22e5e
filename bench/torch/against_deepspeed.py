#!/usr/bin/env python3
"""The all_reduces of a tensor-parallel transformer: tutti beside gloo and beside DeepSpeed's, which is made for them.

usage: against_deepspeed.py [--ranks 2] [--rounds 5] [--json FILE]

DeepSpeed's `deepspeed.comm.inference_all_reduce` goes through shared memory where all ranks are on one host; it compiles that
operator when it is first used (a minute, with a C++ compiler and ninja). All three serve the same ranks, one after the other
in each round, and every result is checked. A row is the slowest rank's median over the rounds, each a median of calls. Ranks
have one thread each.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import socket
import statistics
import sys
from typing import Any

os.environ |= {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}

import deepspeed
import deepspeed.comm
import torch
import torch.distributed as dist
from deepspeed.accelerator import get_accelerator

import tutti.torch  # noqa: F401
from timing import timed

NAMES = ("tutti", "gloo", "DeepSpeed")
#: The buffers that are added up, their elements and dtype: one token, a batch of 16, prompts of 128 and 512 tokens.
ROWS = [("a token, width 512, float32 (examples/transformer)", 512, torch.float32),
        ("a token, width 4096, bfloat16", 4096, torch.bfloat16),
        ("16 tokens, width 4096, bfloat16", 16 * 4096, torch.bfloat16),
        ("128 tokens, width 4096, bfloat16", 128 * 4096, torch.bfloat16),
        ("512 tokens, width 4096, bfloat16", 512 * 4096, torch.bfloat16),
        ("512 tokens, width 4096, float32", 512 * 4096, torch.float32)]


def _child(rank: int, n: int, port: int, rounds: int, results: Any) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(n), "LOCAL_SIZE": str(n),
                   "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    if deepspeed.comm.comm.cdb.shm_comm_op is None:
        raise RuntimeError("DeepSpeed has no operator for shared memory here")
    ours = dist.new_group(backend="tutti")
    calls = {"tutti": lambda x: dist.all_reduce(x, group=ours), "gloo": dist.all_reduce,
             "DeepSpeed": deepspeed.comm.inference_all_reduce}
    took: list[dict[str, list[float]]] = [{name: [] for name in NAMES} for _ in ROWS]
    for _ in range(rounds):
        for times, (what, elements, dtype) in zip(took, ROWS):
            for name in NAMES:
                x = torch.full((elements,), float(rank + 1), dtype=dtype)
                calls[name](x)
                if not bool((x == n * (n + 1) / 2).all()):
                    raise RuntimeError(f"{name}, {what}: {x}")
                x.zero_()
                times[name].append(timed(lambda: calls[name](x)))
    results.put([{name: statistics.median(each) for name, each in times.items()} for times in took])
    dist.destroy_process_group()


def main() -> int:
    parser = argparse.ArgumentParser(description="tutti beside gloo and DeepSpeed's all_reduce for inference.")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", help="file for the times")
    options = parser.parse_args()
    get_accelerator().create_op_builder("ShareMemCommBuilder").load(verbose=False)  # once, before there are ranks
    context = multiprocessing.get_context("fork")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    results = context.Queue()
    ranks = [context.Process(target=_child, args=(rank, options.ranks, port, options.rounds, results), daemon=True)
             for rank in range(options.ranks)]
    for process in ranks:
        process.start()
    said = [results.get(timeout=540) for _ in ranks]
    for process in ranks:
        process.join(timeout=60)
    slowest = [{name: max(one[row][name] for one in said) for name in NAMES} for row in range(len(ROWS))]
    print(f"PyTorch {torch.__version__}, DeepSpeed {deepspeed.__version__}, {options.ranks} ranks, {os.cpu_count()} processors,"
          f" median of {options.rounds} rounds, microseconds\n")
    print(f"{'':52}{'bytes':>9}" + "".join(f"{name:>11}" for name in NAMES) + f"{'/ gloo':>9}{'/ DeepSpeed':>13}")
    for (what, elements, dtype), times in zip(ROWS, slowest):
        print(f"{what:52}{elements * dtype.itemsize:9}" + "".join(f"{times[name]:11.1f}" for name in NAMES) +
              f"{times['tutti'] / times['gloo']:9.3f}{times['tutti'] / times['DeepSpeed']:13.3f}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(dict(zip((row[0] for row in ROWS), slowest)), file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
