#!/usr/bin/env python3
"""Objects of many parts beside gloo's, in the same run: broadcast_object_list and all_gather_object of two ranks, tutti
and torch.distributed's gloo (which pickles) in turn. Prints a line for each, with the ratio.

Usage: objects.py [--rounds 7]    with a Python that has PyTorch, and the package: PYTHONPATH=build/python/venv/lib/…/site-packages
"""
import argparse
import multiprocessing
import os
import statistics
import time

import numpy as np

CASES = {
    "a million ints": lambda: list(range(1_000_000)),
    "a million floats": lambda: [i * 0.37 for i in range(1_000_000)],
    "300,000 strings": lambda: [f"token {i}" for i in range(300_000)],
    "100,000 tuples": lambda: [(i, i * 0.5) for i in range(100_000)],
    "50,000 small dicts": lambda: [{"id": i, "name": f"item {i}", "score": i * 0.5, "tags": ["a", "b"]} for i in range(50_000)],
    "a dict of 30,000 dicts": lambda: {f"key {i}": {"a": [1, 2, 3], "b": None, "c": True} for i in range(30_000)},
    "an array of 8 MiB": lambda: np.arange(1 << 20, dtype=np.float64),
    "one short dict": lambda: {"epoch": 3, "loss": 0.25, "name": "run"},
}


def rank(index, port, rounds, results):
    import torch.distributed as gloo

    import tutti.distributed as tutti

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    gloo.init_process_group("gloo", rank=index, world_size=2)
    os.environ["MASTER_PORT"] = str(port + 1)
    tutti.init_process_group(rank=index, world_size=2)
    for name, make in CASES.items():
        value = make()

        def broadcast(dist):
            box = [value] if index == 0 else [None]
            dist.broadcast_object_list(box, src=0)
            return box[0]

        def all_gather(dist):
            box = [None, None]
            dist.all_gather_object(box, value)
            return box[1 - index]

        for call in (broadcast, all_gather):
            times = {tutti: [], gloo: []}
            for _ in range(rounds + 1):  # the first one warms up
                for dist in times:
                    gloo.barrier()
                    begin = time.perf_counter()
                    got = call(dist)
                    gloo.barrier()  # until both have it
                    times[dist].append((time.perf_counter() - begin) * 1e3)
                    assert np.array_equal(got, value) if isinstance(value, np.ndarray) else got == value
                    del got
            if index == 0:
                results.put((name, call.__name__, *(statistics.median(times[dist][1:]) for dist in (tutti, gloo))))
    tutti.destroy_process_group()
    gloo.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--port", type=int, default=29631)
    args = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    ranks = [context.Process(target=rank, args=(i, args.port, args.rounds, results)) for i in range(2)]
    for one in ranks:
        one.start()
    for _ in range(2 * len(CASES)):
        name, call, own, other = results.get(timeout=300)
        print(f"{name:24}{call:12} tutti {own:8.2f} ms  gloo {other:8.2f} ms  tutti takes {own / other:.2f} of it", flush=True)
    for one in ranks:
        one.join()


if __name__ == "__main__":
    main()
