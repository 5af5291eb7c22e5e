#!/usr/bin/env python3
"""Measures collectives on this host by `tutti bench`, plays the same ones by `tutti simulate`, and compares the times.

Usage: compare.py [--ranks 2,4] [--sizes 8,1K,...] [--transports shm,tcp] [--seconds 0.05] [--bin build/bin/tutti]

Prints a row for each collective, number of ranks and transport: simulated by measured time for each size; then the median error and
the share of cases within 15 %, and first how the numbers of the host were measured. Nothing else should run on the machine meanwhile.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

COLLECTIVES = ["all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "gather", "scatter", "all_to_all", "scan", "exscan",
               "barrier"]
WITHIN = 0.15


def rows(program, arguments):
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "rows.json"
        subprocess.run([program, *arguments, "--json", file], check=True, stdout=subprocess.DEVNULL, timeout=600)
        return json.loads(file.read_text())


def numbers(program):
    """Measures the machine until nothing is assumed and nothing else ran, ten times at most; the last answer's words on that."""
    for _ in range(10):
        said = subprocess.run([program, "explain", "all_reduce", "-n", "2"], env={**os.environ, "TUTTI_TUNE": "remeasure"}, check=True,
                              stdout=subprocess.PIPE, text=True, timeout=60).stdout
        how = " ".join(said[said.index("numbers ("):].split("):")[0].split())
        if "assumed" not in how and "busy" not in how:
            break
    return how.removeprefix("numbers (")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--sizes", default="8,1K,16K,256K,4M,64M")
    parser.add_argument("--transports", default="shm,tcp")
    parser.add_argument("--seconds", default="0.05")
    parser.add_argument("--bin", default="build/bin/tutti")
    options = parser.parse_args()
    sizes = options.sizes.split(",")
    ratios, load = [], os.getloadavg()[0]
    print(f"numbers: {numbers(options.bin)}\n")
    print("| collective | ranks | transport |" + "".join(f" {size} |" for size in sizes))
    print("|---|---|---|" + "---|" * len(sizes))
    for transport in options.transports.split(","):
        for ranks in options.ranks.split(","):
            for collective in COLLECTIVES:
                measured = rows(options.bin, ["bench", collective, "-n", ranks, "--transport", transport, "--sizes", options.sizes,
                                              "--seconds", options.seconds, "--no-limits", "--no-check"])
                line = []
                for row in measured:
                    size = max(4 * int(ranks), row["bytes"])
                    play = rows(options.bin, ["simulate", collective, "-n", ranks, "--transport", transport, "-b", str(size),
                                             "--calls", str(32 if size < 1 << 20 else 4)])["plays"][0]
                    line.append(play["us"] / row["median_us"])
                ratios += line
                print(f"| {collective} | {ranks} | {transport} |" + "".join(f" {ratio:.2f} |" for ratio in line) +
                      " |" * (len(sizes) - len(line)), flush=True)
    errors = [abs(ratio - 1) for ratio in ratios]
    print(f"\n{len(errors)} cases: median error {100 * statistics.median(errors):.0f} %, within {100 * WITHIN:.0f} %: "
          f"{100 * sum(error <= WITHIN for error in errors) / len(errors):.0f} %; load {load:.1f} before, {os.getloadavg()[0]:.1f} after")
    return 0


if __name__ == "__main__":
    sys.exit(main())
