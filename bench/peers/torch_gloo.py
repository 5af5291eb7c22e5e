#!/usr/bin/env python3
"""PyTorch's gloo as a peer: the same flags, sizes, sampling and rows as the C++ peers (peer.cpp, sampling.hpp)."""
import argparse
import json
import os
import sys
import time

import torch
import torch.distributed as dist

BUS = {"all_reduce": lambda n: 2 * (n - 1) / n, "broadcast": lambda n: 1, "reduce": lambda n: 1, "sendrecv": lambda n: 1,
       "barrier": lambda n: 0}
BLOCKS = {"all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"}
OPS = {"sum": dist.ReduceOp.SUM, "prod": dist.ReduceOp.PRODUCT, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX}


def inputs(rank, start, count, dtype):
    i = torch.arange(start, start + count, dtype=torch.int64)
    return (1 + ((i * 7 + (i >> 9)) % 5 + rank * 3) % 5 % 2).to(dtype)


def combined(op, start, count, ranks, dtype):
    parts = torch.stack([inputs(r, start, count, torch.float64) for r in range(ranks)])
    how = {"sum": lambda p: p.sum(0), "prod": lambda p: p.prod(0), "min": lambda p: p.amin(0), "max": lambda p: p.amax(0)}
    return how[op](parts).to(dtype)


def make(name, count, dtype, op, rank, ranks):
    """The first contents, the call, the output and what it should be (None: anything)."""
    def fresh(n):
        return torch.zeros(n, dtype=dtype)

    mine = inputs(rank, 0, count, dtype)
    every = torch.cat([inputs(r, 0, count, dtype) for r in range(ranks)]) if name in ("all_gather", "gather") else None
    whole = inputs(rank, 0, count * ranks, dtype) if name in BLOCKS - {"all_gather", "gather"} else None
    if name == "all_reduce":
        return lambda: dist.all_reduce(mine, OPS[op]), mine, combined(op, 0, count, ranks, dtype)
    if name == "broadcast":
        return lambda: dist.broadcast(mine, 0), mine, inputs(0, 0, count, dtype)
    if name == "reduce":
        want = combined(op, 0, count, ranks, dtype) if rank == 0 else None
        return lambda: dist.reduce(mine, 0, OPS[op]), mine, want
    if name == "all_gather":
        out = fresh(count * ranks)
        return lambda: dist.all_gather_into_tensor(out, mine), out, every
    if name == "reduce_scatter":
        out = fresh(count)
        return lambda: dist.reduce_scatter_tensor(out, whole, OPS[op]), out, combined(op, rank * count, count, ranks, dtype)
    if name == "all_to_all":
        out = fresh(count * ranks)
        want = torch.cat([inputs(r, rank * count, count, dtype) for r in range(ranks)])
        return lambda: dist.all_to_all_single(out, whole), out, want
    if name == "gather":
        out = fresh(count * ranks) if rank == 0 else fresh(0)
        parts = list(out.split(count)) if rank == 0 else None
        return lambda: dist.gather(mine, parts, 0), out, every if rank == 0 else None
    if name == "scatter":
        out = fresh(count)
        parts = list(whole.split(count)) if rank == 0 else None
        return lambda: dist.scatter(out, parts, 0), out, inputs(0, rank * count, count, dtype)
    if name == "sendrecv":
        out = fresh(count)

        def exchange():
            works = [dist.isend(mine, (rank + 1) % ranks), dist.irecv(out, (rank - 1) % ranks)]
            for work in works:
                work.wait()
        return exchange, out, inputs((rank - 1) % ranks, 0, count, dtype)
    return dist.barrier, fresh(0), None


def sample(a, call):
    """Times of single calls, sorted, their mean, and the user and system time of one call of all ranks."""
    clock = time.perf_counter
    for _ in range(a.warmup):
        call()
    dist.barrier()
    start = clock()
    for _ in range(3):
        call()

    def agree(value):
        value = torch.tensor([value], dtype=torch.float64)
        dist.broadcast(value, 0)
        return value.item()

    one = agree((clock() - start) * 1e6 / 3)
    batch = min(256, max(1, int(20 / max(one, 0.05))))
    count = a.iters or min(2000, max(5, int(a.seconds * 1e6 / max(one * batch, 1.0) / (50 if a.fill else 1))))
    times = []
    dist.barrier()
    cpu = time.process_time()
    begin = clock()
    while True:
        for _ in range(count):
            start = clock()
            for _ in range(batch):
                call()
            times.append((clock() - start) * 1e6 / batch)
        if not a.fill or len(times) >= 200_000 or agree(clock() - begin) >= a.seconds:
            break
    times.append((time.process_time() - cpu) * 1e6 / (batch * len(times)))
    times = torch.tensor(times, dtype=torch.float64)
    dist.all_reduce(times)
    singles = times[:-1] / dist.get_world_size()
    return singles.sort().values, singles.mean().item(), times[-1].item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("collectives")
    for name, kind, default in (("sizes", str, "8"), ("dtype", str, "float32"),
                                ("op", str, "sum"), ("iters", int, 0), ("warmup", int, 24), ("seconds", float, 0.3),
                                ("json", str, "")):
        parser.add_argument(f"--{name}", type=kind, default=default)
    parser.add_argument("--pin", action="store_true")
    parser.add_argument("--no-check", action="store_true")
    parser.add_argument("--fill", action="store_true")
    a = parser.parse_args()
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    cpus = sorted(os.sched_getaffinity(0))
    if a.pin and len(cpus) >= ranks:
        os.sched_setaffinity(0, {cpus[rank]})
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method="file://" + os.environ["TUTTI_PEER_MEETING"] + "/torch", rank=rank,
                            world_size=ranks)
    dtype = getattr(torch, a.dtype)
    rows = []
    for name in a.collectives.split(","):
        if name.startswith("all_to_all_v") or name in ("gather_v", "scatter_v"):
            continue  # blocks have no places of their own there
        last = None
        for size in a.sizes.split(","):
            count = int(size) // dtype.itemsize
            count = 0 if name == "barrier" else max(1, count // ranks) if name in BLOCKS else count
            total = count * dtype.itemsize * (ranks if name in BLOCKS else 1)
            if total == last:
                continue
            last = total
            call, out, want = make(name, count, dtype, a.op, rank, ranks)
            wrong = torch.zeros(1, dtype=torch.int64)
            if not a.no_check:
                call()
                if want is not None:
                    wrong[0] = int((~torch.isclose(out, want, rtol=1e-6, atol=0)).sum())
                dist.all_reduce(wrong)
            times, mean, cpu_us = sample(a, call)
            median, p10, p90 = (times.quantile(q).item() for q in (0.5, 0.1, 0.9))
            rows.append({"collective": name, "bytes": total, "dtype": a.dtype,
                         "op": a.op if name in ("all_reduce", "reduce", "reduce_scatter") else "none", "ranks": ranks,
                         "implementation": f"torch {torch.__version__} gloo", "median_us": median, "p10_us": p10,
                         "p90_us": p90, "mean_us": mean, "busbw_gbps": total / median / 1000 * BUS.get(name, lambda n: (n - 1) / n)(ranks),
                         "cpu_us": cpu_us, "wrong": int(wrong)})
    if rank == 0:
        with open(a.json, "w") as out:
            json.dump(rows, out)
    dist.barrier()
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
