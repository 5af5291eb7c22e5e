#!/usr/bin/env python3
"""Where hfai.distributed.pairwise_apply overlaps, and from which size on: its time with the arrays coming one after the
other, each while the function works on the one before, beside an all_gather of all of them and the function afterwards.

Usage: pairwise.py BUILD [--ranks 2] [--sizes 64K,256K,1M,4M,16M] [--rounds 5] [--link 1gbit] [--json FILE]
       with the Python that has the package: BUILD/python/venv/bin/python bench/python/pairwise.py BUILD

Ways: shared memory; TCP over loopback; and with --link, as root, TCP between network namespaces, a rank each, whose
devices `tc` limits to that rate. Both turn by turn; medians over the rounds. A ratio below 1 is a gain: overlap hides the
way of all arrays but the first behind the function, where that way is not the same cores' work.
"""
import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent


def bytes_of(text):
    return int(text[:-1]) << {"K": 10, "M": 20}[text[-1]] if text[-1] in "KM" else int(text)


def human(size):
    return f"{size >> 20} MB" if size >= 1 << 20 else f"{size >> 10} KB"


def work(x, y):
    """A little arithmetic on each pair of elements."""
    import numpy as np

    return float(np.sqrt(x * x + y * y).sum())


def rank(sizes, rounds, path):
    import numpy as np

    import tutti.distributed as dist
    from tutti.hfai import distributed as hfai

    dist.init_process_group()
    me, n = dist.get_rank(), dist.get_world_size()
    rows = []
    for size in sizes:
        x = np.full(size // 4, me + 1.0, dtype=np.float32)
        expected = None
        times = {"after": [], "overlapped": []}
        for turn in range(rounds + 1):  # the first warms up
            for how, least in (("after", 1 << 62), ("overlapped", 0)):
                hfai.OVERLAPS_FROM = least
                dist.barrier()
                begin = time.perf_counter()
                result = hfai.pairwise_apply(work, x)
                took = np.array([time.perf_counter() - begin])
                expected = expected or result
                assert result == expected, (result, expected)
                dist.all_reduce(took, dist.ReduceOp.MAX)
                if turn > 0:
                    times[how].append(took[0] * 1e6)
        begin = time.perf_counter()
        for _ in range(n):
            work(x, x)
        alone = (time.perf_counter() - begin) * 1e6
        after, overlapped = (statistics.median(times[how]) for how in ("after", "overlapped"))
        rows.append({"bytes": size, "ranks": n, "function_us": alone, "after_us": after, "overlapped_us": overlapped})
    dist.destroy_process_group()
    if me == 0:
        pathlib.Path(path).write_text(json.dumps(rows))


def free_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def measure(options, prefixes, address, port, path, **environment):
    """Rows of one way; rank i is started with prefixes[i] in front."""
    command = [sys.executable, __file__, options.build, "--rank", str(path), "--sizes", options.sizes, "--rounds",
               str(options.rounds)]
    started = [subprocess.Popen([*prefix, *command], env={**os.environ, **environment, "RANK": str(i), "MASTER_ADDR": address,
                                                          "WORLD_SIZE": str(len(prefixes)), "MASTER_PORT": str(port)})
               for i, prefix in enumerate(prefixes)]
    try:
        statuses = [one.wait(300) for one in started]
    finally:
        for one in started:
            if one.poll() is None:
                one.kill()
    if any(statuses):
        raise SystemExit(f"pairwise.py: ranks ended with status {statuses}")
    rows = json.loads(pathlib.Path(path).read_text())
    pathlib.Path(path).unlink()
    return rows


def between_namespaces(options, path):
    sys.path.insert(0, str(HERE.parent / "tcp"))
    from veth import Hosts

    with Hosts(options.ranks, 1, options.link) as hosts:
        return measure(options, [["ip", "netns", "exec", name] for name in hosts.names], hosts.addresses[0], 29650, path,
                       TUTTI_JOB_SECRET=os.urandom(16).hex())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--sizes", default="64K,256K,1M,4M,16M")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--link", default="")
    parser.add_argument("--json", default="")
    parser.add_argument("--rank", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        return rank([bytes_of(size) for size in options.sizes.split(",")], options.rounds, options.rank)
    path = pathlib.Path(options.build).resolve() / "bench" / f"pairwise-{os.getpid()}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = [[]] * options.ranks
    ways = {"shared memory": lambda: measure(options, plain, "127.0.0.1", free_port(), path, TUTTI_TRANSPORT="shm"),
            "loopback": lambda: measure(options, plain, "127.0.0.1", free_port(), path, TUTTI_TRANSPORT="tcp")}
    if options.link:
        ways[options.link] = lambda: between_namespaces(options, path)
    table = []
    print(f"{'way':14} {'array of a rank':>15} {'function us':>12} {'afterwards us':>14} {'overlapped us':>14} {'ratio':>6}")
    for way, run in ways.items():
        gains = []
        for row in run():
            ratio = row["overlapped_us"] / row["after_us"]
            gains.append((row["bytes"], ratio < 0.97))
            table.append({"way": way, "ratio": ratio, **row})
            print(f"{way:14} {human(row['bytes']):>15} {row['function_us']:12.0f} {row['after_us']:14.0f} "
                  f"{row['overlapped_us']:14.0f} {ratio:6.2f}", flush=True)
        first = next((size for i, (size, _) in enumerate(gains) if all(gain for _, gain in gains[i:])), None)
        print(f"{way:14} overlaps {'from ' + human(first) + ' on' if first else 'at none of these sizes'}")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(table, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
