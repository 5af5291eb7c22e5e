#!/usr/bin/env python3
"""Atomic calls inside a host beside Open MPI's, in turns: the best of some rounds of each, and their ratio.

    bench/window/against_mpi.py build [--rounds 5]

Open MPI's component osc/sm, its quickest here, has to be named: by itself 4.1.4 takes osc/rdma, whose compare-and-swap ends
the program, and whose fetch_and_op takes three times as long.
"""
import argparse
import re
import subprocess

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("build")
parser.add_argument("--rounds", type=int, default=5)
options = parser.parse_args()
commands = {
    "tutti": [f"{options.build}/bin/tutti", "run", "-n", "2", f"{options.build}/bench/window_bench"],
    "openmpi": ["mpirun", "--allow-run-as-root", "--mca", "osc", "sm", "-n", "2",
                f"{options.build}/bench/window_bench_openmpi"],
}
best = {}
for _ in range(options.rounds):
    for name, command in commands.items():
        text = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
        for call, ns in re.findall(rf"{name} (.+) ([0-9.]+) ns", text):
            best.setdefault(call, {})
            best[call][name] = min(float(ns), best[call].get(name, float("inf")))
for call, row in best.items():
    print(f"{call:40} tutti {row['tutti']:7.1f} ns   openmpi {row['openmpi']:7.1f} ns   {row['tutti'] / row['openmpi']:.2f}")
