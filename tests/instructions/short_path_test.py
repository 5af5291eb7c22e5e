#!/usr/bin/env python3
"""Instructions of the shortest calls, counted by valgrind's callgrind: none may take many more than it does now.

A count that has grown over its limit means that the short path does more than it did: run this file with --show to see
where (the functions below the measured one, most expensive first). When the growth is worth it, write the new count
here. Counts do not depend on the machine's speed; they do on its vector unit (what callgrind offers of it) and on the
C library, so each limit leaves a sixth.

Usage: short_path_test.py PROGRAM [--show]
"""
import concurrent.futures
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

CALLS = 200
TRIES = 3  # a rank that looks again and again while the other one is kept from its core adds to a count: the least one counts
# What is run, the function in which instructions are counted, how many it takes now for one call.
COUNTS = [
    ("plan", "measured_plan", 497),
    ("all_reduce", "measured_all_reduce", 674),
    ("barrier", "measured_barrier", 494),
    ("message", "measured_send", 588),
    ("message", "measured_recv", 708),
]


def limit_of(now: int) -> float:
    return now * 7 / 6


def count(program: str, what: str, function: str, folder: pathlib.Path, show: bool) -> float:
    out = folder / f"{function}.out"
    run = subprocess.run(
        ["valgrind", "--tool=callgrind", f"--toggle-collect={function}", f"--callgrind-out-file={out}",
         program, what, str(CALLS)], capture_output=True, text=True, timeout=120)
    found = re.search(r"Collected\s*:\s*(\d+)", run.stderr)
    if run.returncode != 0 or not found:
        sys.exit(f"{program} {what} under callgrind: exit status {run.returncode}\n{run.stdout}{run.stderr}")
    if show:
        text = subprocess.run(["callgrind_annotate", "--inclusive=yes", str(out)], capture_output=True, text=True)
        print(f"-- {function}, {CALLS} calls\n" + "\n".join(text.stdout.splitlines()[:60]))
    return int(found.group(1)) / CALLS


def main() -> int:
    program, show = sys.argv[1], "--show" in sys.argv[2:]
    if shutil.which("valgrind") is None:
        sys.exit("valgrind is not installed; type: tools/install-deps")
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(count, program, what, function, pathlib.Path(folder), show)
                for what, function, _ in COUNTS]
        counted = [job.result() for job in jobs]
        for i, (what, function, now) in enumerate(COUNTS):
            for _ in range(1, TRIES):
                if counted[i] > limit_of(now):
                    counted[i] = min(counted[i], count(program, what, function, pathlib.Path(folder), show))
    failed = False
    for (_, function, now), found in zip(COUNTS, counted):
        limit = limit_of(now)
        good = 0 < found <= limit
        failed |= not good
        print(f"{function}: {found:.0f} instructions a call; {now} when this was written, limit {limit:.0f}"
              + ("" if good else "  <- over the limit" if found > limit else "  <- nothing was counted"))
    if failed:
        print(f"to see where they are spent: {sys.argv[0]} {program} --show")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
