#!/usr/bin/env python3
"""The speed that tutti promises, measured beside its peers: a line for each target.

Usage: targets.py [--build build] [--repeat 1] [--seconds 0.2] [--torch-python python3] [--only shm,crowd,types,store,start,tcp]

Every ratio comes from programs that took turns in one run (tutti bench --against, store_bench, init_bench, tcp/veth.py);
with --repeat N the whole is done N times and the median ratio counts. Writes BUILD/bench/targets.json, a list of
{target, limit, measured, holds}, and the report of tutti bench to BUILD/bench/report. The exit status tells whether all
could be measured, not whether all hold. Needs a quiet machine.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
COLLECTIVES = ["all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"]


class Bench:
    def __init__(self, options):
        self.options = options
        self.build = pathlib.Path(options.build).resolve()
        self.measured = {}  # target: (limit text, whether smaller is better, limit, ratios)
        self.failed = []

    def rows(self, *command):
        """What a program that takes --json writes."""
        with tempfile.TemporaryDirectory(prefix="tutti-targets-") as folder:
            file = os.path.join(folder, "rows.json")
            done = subprocess.run([str(word) for word in command] + ["--json", file], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE, text=True)
            for line in done.stderr.splitlines():
                print(f"  {line}", file=sys.stderr)
            if not os.path.exists(file):
                raise RuntimeError(f"{' '.join(map(str, command))} failed (exit status {done.returncode})")
            with open(file) as text:
                return json.load(text)

    def tutti(self, collectives, ranks, sizes, *more):
        """{(collective, size, implementation): median us}, tutti's and its peers'."""
        found = {}
        for size in sizes:
            rows = self.rows(self.build / "bin/tutti", "bench", ",".join(collectives), "-n", ranks, "-b", size, "-e", size,
                             "--seconds", self.options.seconds, "--no-limits", "--torch-python", self.options.torch_python,
                             *more)
            for row in rows:
                if row["wrong"]:
                    self.failed.append(f"{row['implementation']}: wrong results in {row['collective']} of {size}")
                found[row["collective"], size, row["implementation"].split()[0]] = row["median_us"]
        return found

    def note(self, target, ratio, limit, smaller=True):
        self.measured.setdefault(target, (limit, smaller, []))[2].append(ratio)

    # ---- groups of targets

    def shm(self):
        peers = "openmpi,mpich,gloo"
        small = self.tutti(COLLECTIVES + ["barrier", "sendrecv"], 2, ["8"], "--against", peers)
        self.beside(small, ["all_reduce", "barrier"], "8", 0.5)
        self.beside(small, [c for c in COLLECTIVES if c != "all_reduce"], "8", 0.8)
        self.beside(small, ["sendrecv"], "8", 1.0)
        for size in ("4K", "64K", "1M"):
            found = self.tutti(COLLECTIVES + ["sendrecv"], 2, [size], "--against", peers)
            self.beside(found, COLLECTIVES, size, 0.9)
            if size == "1M":
                self.beside(found, ["sendrecv"], size, 1.0)
        for size in ("1M", "16M", "64M", "256M"):
            found = self.tutti(["all_reduce"], 2, [size], "--against", "openmpi")
            self.note(f"all_reduce {size}: speed over Open MPI", self.ratio(found, "all_reduce", size, ["openmpi"], 1), 2,
                      False)
            found = self.tutti(["all_reduce"], 2, [size], "--against", "openmpi", "--symmetric")
            self.note(f"all_reduce {size}, symmetric memory: speed over Open MPI",
                      self.ratio(found, "all_reduce", size, ["openmpi"], 1), 3, False)
        for size in ("4M", "64M"):
            others = [c for c in COLLECTIVES if c != "all_reduce"]
            found = self.tutti(others, 2, [size], "--against", peers)
            for collective in others:
                self.note(f"{collective} {size}: speed over the best", self.ratio(found, collective, size, None, 1), 1.3, False)

    def crowd(self):
        for ranks in (4, 8):
            found = self.tutti(["all_reduce"], ranks, ["8", "64K"], "--against", "openmpi")
            for size in ("8", "64K"):
                self.note(f"all_reduce {size}, {ranks} ranks on {os.cpu_count()} cores: time to Open MPI's",
                          self.ratio(found, "all_reduce", size, ["openmpi"]), 0.7)

    def types(self):
        for count in (1 << 18, 1 << 24):
            wide = self.tutti(["all_reduce"], 2, [str(4 * count)])
            for dtype in ("bfloat16", "float16"):
                narrow = self.tutti(["all_reduce"], 2, [str(2 * count)], "--dtype", dtype)
                self.note(f"all_reduce of {count} {dtype}: time to float32's",
                          narrow["all_reduce", str(2 * count), "tutti"] / wide["all_reduce", str(4 * count), "tutti"], 0.6)

    def store(self):
        rows = self.rows(self.build / "bench/store_bench", "--against", "redis", "torch", "--torch-python", self.options.torch_python)
        table = {(r["work"], r["clients"], r["implementation"].split()[0]): r for r in rows}
        for (work, clients, name), row in sorted(table.items()):
            ours = table.get((work, clients, "tutti"))
            if name in ("tutti", "tcp") or ours is None:
                continue
            limit = 1.0 if name == "redis" or work in ("set", "add") else 0.5
            if clients == 1 or "wake" in work or "wait" in work:
                self.note(f"store {work}, {clients} client(s): time to {name}'s", ours["median_us"] / row["median_us"], limit)
            else:
                self.note(f"store {work}, {clients} clients: throughput over {name}", ours["ops_per_s"] / row["ops_per_s"],
                          1.0 if name == "redis" else 1.5, False)

    def start(self):
        rows = self.rows(self.build / "bench/init_bench", "--ranks", 32, "--torch-python", self.options.torch_python)
        by_name = {r["implementation"].split()[0]: r["median_ms"] for r in rows}
        for name, time in by_name.items():
            if name != "tutti":
                self.note(f"32 processes to their first barrier: speed over {name}", time / by_name["tutti"], 10, False)

    def tcp(self):
        if os.geteuid() != 0:
            raise RuntimeError("network namespaces need root")
        rows = self.rows(sys.executable, HERE / "tcp/veth.py", "--tutti", self.build / "bin/tutti", "--sizes", "8,16M,64M,256M",
                         "--seconds", self.options.seconds)
        times = {(r["contender"], r["case"]): r["median_us"] for r in rows}
        limits = {"wire": (0.8, False), "gloo": (3, False)}
        for (name, case), time in times.items():
            if name == "tutti" or ("tutti", case) not in times:
                continue
            ratio = times["tutti", case] / time
            if case <= 8:
                self.note(f"TCP all_reduce 8: time to {name}'s", ratio, {"gloo": 0.4, "exchange": 1.3}.get(name, 1.0))
            elif name in limits:
                self.note(f"TCP all_reduce {case >> 20}M: speed over {name}", 1 / ratio, *limits[name])

    # ---- ratios

    def ratio(self, found, collective, size, names=None, power=-1):
        """Ours to the best of the peers: time (power -1), or speed (1)."""
        times = [time for (c, s, name), time in found.items()
                 if c == collective and s == size and name != "tutti" and (names is None or name in names)]
        if not times:
            raise RuntimeError(f"no peer was measured for {collective}; make bench installs and builds them")
        return (found[collective, size, "tutti"] / min(times)) ** -power

    def beside(self, found, collectives, size, limit):
        for collective in collectives:
            # A barrier has no size of its own.
            self.note(f"{collective} {size}: time to the best's", self.ratio(found, collective, size), limit)

    def run(self):
        groups = self.options.only.split(",")
        for turn in range(self.options.repeat):
            for group in groups:
                print(f"tutti: measuring {group} ({turn + 1} of {self.options.repeat})", flush=True)
                try:
                    getattr(self, group)()
                except (RuntimeError, KeyError, OSError) as error:
                    self.failed.append(f"{group}: {error}")
        lines = []
        print(f"\n{'target':64} {'limit':>8} {'measured':>9}")
        for target, (limit, smaller, ratios) in self.measured.items():
            value = statistics.median(ratios)
            holds = value <= limit if smaller else value >= limit
            print(f"{target:64} {'<=' if smaller else '>='} {limit:5.2f} {value:9.2f}  {'holds' if holds else 'falls short'}")
            lines.append({"target": target, "limit": f"{'<=' if smaller else '>='} {limit}", "measured": round(value, 4),
                          "holds": holds})
        out = self.build / "bench"
        out.mkdir(exist_ok=True)
        (out / "targets.json").write_text(json.dumps(lines, indent=1) + "\n")
        print(f"\n{sum(line['holds'] for line in lines)} of {len(lines)} targets hold; {out / 'targets.json'}")
        for failure in self.failed:
            print(f"tutti: not measured: {failure}", file=sys.stderr)
        return 1 if self.failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.2)
    parser.add_argument("--torch-python", default="python3")
    parser.add_argument("--only", default="shm,crowd,types,store,start,tcp")
    return Bench(parser.parse_args()).run()


if __name__ == "__main__":
    sys.exit(main())
