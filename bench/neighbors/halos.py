#!/usr/bin/env python3
"""Halos of 16^3 to 128^3 doubles beside Open MPI, in turns; medians of what was quickest, and how many times as long MPI's best way takes.

Usage: halos.py [--build build] [--ranks 2,4] [--repeat 5]      after `make bench`
"""
import argparse
import pathlib
import statistics
import subprocess

parser = argparse.ArgumentParser()
parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2] / "build")
parser.add_argument("--ranks", default="2,4")
parser.add_argument("--repeat", type=int, default=5)
options = parser.parse_args()
MPIRUN = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]

for ranks in options.ranks.split(","):
    times = {}
    for _ in range(options.repeat):
        for who, command in (("tutti", [options.build / "bin/tutti", "run", "-n", ranks, options.build / "bench/halo_bench"]),
                             ("openmpi", [*MPIRUN, "-n", ranks, options.build / "bench/halos_openmpi"])):
            done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
            for line in done.stdout.splitlines():
                what, size, us = line.split()[-3:]
                times.setdefault((int(size), who, what), []).append(float(us))
    for size in sorted({key[0] for key in times}):
        row = {(who, what): statistics.median(us) for (of, who, what), us in times.items() if of == size}
        best = min(us for (who, _), us in row.items() if who == "openmpi")
        print(f"{ranks} ranks, {size}^3: " + ", ".join(f"{who} {what} {us:.1f} us" for (who, what), us in row.items())
              + f"; MPI's best / tutti's plan: {best / row['tutti', 'plan']:.2f}")
