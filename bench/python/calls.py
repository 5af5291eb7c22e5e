#!/usr/bin/env python3
"""What Python adds to a call: 8-byte all_reduce between two processes, plain and planned, beside the same from C++, and
the time of `import tutti`. Prints a line for each, with its limit.

Usage: calls.py BUILD    with the Python that has the package: BUILD/python/venv/bin/python bench/python/calls.py BUILD
"""
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROUNDS, CALLS = 31, 2000


def quiet_us(call):
    """Of many rounds the time that a tenth of them stay below: what others do on the machine is not Python's."""
    times = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        for _ in range(CALLS):
            call()
        times.append((time.perf_counter() - begin) / CALLS * 1e6)
    return statistics.quantiles(times, n=10)[0]


def rank(index, path):
    import numpy as np

    import tutti.distributed as dist

    dist.init_process_group(rank=index, world_size=2)
    x = np.zeros(1)
    step = dist.plan.all_reduce(x)
    results = {"plain": quiet_us(lambda: dist.all_reduce(x)), "plan": quiet_us(step.run),
               "lambda": quiet_us(lambda: None)}
    dist.destroy_process_group()
    if index == 0:
        pathlib.Path(path).write_text(json.dumps(results))


def in_cpp(build):
    """Microseconds a call, plain and planned, as `tutti bench` measures them."""
    text = subprocess.run([build / "bin/tutti", "bench", "all_reduce", "-n", "2", "-b", "8", "-e", "8", "--plan",
                           "--no-limits"], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in text.splitlines() if re.match(r"\s+all_reduce", line)]
    return [float(row[-8]) for row in rows]


def import_ms():
    def once(what):
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", what], check=True)
        return (time.perf_counter() - begin) * 1e3

    return statistics.median(once("import tutti") - once("pass") for _ in range(11))


def main():
    build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build").resolve()
    import tutti

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29617")
    with tempfile.NamedTemporaryFile() as file:
        tutti.multiprocessing.spawn(rank, (file.name,), nprocs=2)
        python = json.loads(pathlib.Path(file.name).read_text())
    plain, planned = in_cpp(build)[:2]
    print(f"import tutti: {import_ms():.1f} ms (limit 60)")
    for name, cpp, limit in (("plain", plain, 2.0), ("plan", planned, 0.5)):
        print(f"8 B all_reduce, {name}: {python[name]:.2f} us from Python, {cpp:.2f} us from C++, "
              f"{python[name] - cpp:.2f} us more (limit {limit})")


if __name__ == "__main__":
    main()
