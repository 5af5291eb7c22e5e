#!/usr/bin/env python3
"""The speed that tutti promises, measured beside its peers: the whole table, one line for each target.

Usage: targets.py [--build build] [--repeat 1] [--seconds 0.05] [--torch-python python3] [--only GROUP,...] [--keep] [--save FILE] [-v]

Every figure comes from programs that took turns in one run (tutti bench --against, store_bench, init_bench,
tcp/veth.py, quantize/quantized.py) or of one program (progress_bench, quantize_bench, nccl_bench). A target has cases,
such as a collective and a size; with --repeat N all is measured N times and the median of each case counts. A target
holds when all its cases do; its line shows the case that is furthest from the limit, and -v all of them. What could not
be measured falls short.

Writes BUILD/bench/targets.json: a list of {target, sign, limit, unit, measured, case, holds, cases}. --keep adds to what
earlier runs measured, back to the last one without it (BUILD/bench/measured.json): so groups can be run one by one, or again
with what they had lacked. --save FILE writes the lines with where and when they were measured, for docs/performance.md
(results.py). The exit status tells whether all could be measured, not whether all hold. Ctrl-C ends the measuring; the lines are then of what there is. Needs a quiet machine.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import results
from promises import targets

HERE = pathlib.Path(__file__).resolve().parent
COLLECTIVES = ["all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"]
OTHERS = COLLECTIVES[1:]
ROOTED = ["reduce", "gather", "scatter"]
KB, MB = 1 << 10, 1 << 20
MPI = ("openmpi", "mpich")
BLOCKS = {"all_to_all_v": "balanced", "all_to_all_v_sparse": "sparse", "all_to_all_v_skewed": "skewed"}
BLOCKS_SIZES = [8 * KB, 64 * KB, MB, 16 * MB]  # that a rank sends in all
SPARSE_SIZE = 12 * KB


def human(size):
    for unit, name in ((MB, "MB"), (KB, "KB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


class Bench:
    def __init__(self, options):
        self.options = options
        self.build = pathlib.Path(options.build).resolve()
        self.program = self.build / "bin/tutti"
        self.targets = targets()
        self.failures = {}  # group: why
        self.wrong = []
        done = subprocess.run([str(self.program), "bench", "--help"], capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"targets.py: {self.program} does not run; type: make build")
        self.help = done.stdout
        self.version = subprocess.run([str(self.program), "--version"], capture_output=True, text=True).stdout.split()[-1]

    def rows(self, *command):
        """What a program that takes --json writes."""
        with tempfile.TemporaryDirectory(prefix="tutti-targets-") as folder:
            file = os.path.join(folder, "rows.json")
            done = subprocess.run([str(word) for word in command] + ["--json", file], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE, text=True)
            for line in done.stderr.splitlines():
                print(f"  {line}", file=sys.stderr)
            if not os.path.exists(file) or os.path.getsize(file) == 0:
                raise RuntimeError(f"{' '.join(map(str, command))} failed (exit status {done.returncode})")
            with open(file) as text:
                return json.load(text)

    def tutti(self, collectives, ranks, sizes, *more, seconds=None):
        """{(collective, size): {implementation: row}}; the size of a barrier is 0."""
        found = {}
        for row in self.rows(self.program, "bench", ",".join(collectives), "-n", ranks, "--sizes", ",".join(map(str, sizes)),
                             "--seconds", seconds or self.options.seconds, "--torch-python", self.options.torch_python,
                             *more):
            name = row["implementation"].split()[0]
            if row["wrong"]:
                self.wrong.append(f"{name}: wrong results in {row['collective']} of {human(row['bytes'])}")
            found.setdefault((row["collective"], row["bytes"]), {})[name] = row
        return found

    def note(self, target, case, value):
        self.targets[target].note(case, value)

    def needs(self, flag):
        if flag not in self.help:
            raise RuntimeError(f"tutti bench has no {flag}")

    # ---- groups of targets: each is one turn of a few programs

    def shm(self):
        sizes = [8, 4 * KB, 16 * KB, 64 * KB, 256 * KB, MB]
        found = self.tutti([*COLLECTIVES, "sendrecv", "barrier"], 2, sizes, "--against", "openmpi,mpich,gloo", "--rounds", 3)
        for (collective, size), rows in found.items():
            us, best = self.times(rows)
            case = f"{collective} {human(size)}"
            if size <= 8:
                line_us = rows["tutti"]["line_ns"] / 1000
                if collective in ("all_reduce", "barrier"):
                    self.note("small", collective, us / max(0.5 * best, 2 * line_us))
                elif collective != "sendrecv":
                    self.note("small rooted" if collective in ROOTED else "small others", collective, us / best)
                if collective == "all_reduce":
                    self.note("line", collective, us / line_us)
            elif collective != "sendrecv":
                self.note("medium", case, us / best)
            if collective == "sendrecv" and size in (8, MB):
                self.note("sendrecv", case, us / self.times(rows, MPI)[1])
            if size == MB:
                self.cpu(case, rows)

    def large(self, target="all_reduce", *more):
        sizes = [MB, 4 * MB, 16 * MB, 64 * MB, 256 * MB]
        found = self.tutti(["all_reduce"], 2, sizes, "--against", "openmpi", "--rounds", 3, *more)
        for (_, size), rows in found.items():
            us, best = self.times(rows)
            self.note(target, human(size), best / us)
            if target == "symmetric":
                self.note("traffic", human(size), rows["tutti"]["traffic_bound_us"] / us)
            elif size <= 64 * MB:
                self.cpu(f"all_reduce {human(size)}", rows)

    def symmetric(self):
        self.needs("--symmetric")
        self.large("symmetric", "--symmetric")

    def others(self):
        # Gloo, over loopback, is far from the best at these sizes, and slow to measure.
        sizes = [MB, 4 * MB, 16 * MB, 64 * MB]
        found = self.tutti(OTHERS, 2, sizes, "--against", "openmpi,mpich", "--rounds", 2)
        for (collective, size), rows in found.items():
            us, best = self.times(rows)
            self.note("large", f"{collective} {human(size)}", best / us)
            self.cpu(f"{collective} {human(size)}", rows)

    @staticmethod
    def peers_of(ranks):
        """MPICH's ranks spin: where they outnumber the cores, it takes tens of times as long as Open MPI."""
        return MPI if ranks <= os.cpu_count() else MPI[:1]

    def blocks(self):
        for ranks in (2, 8):
            against = ("--against", ",".join(self.peers_of(ranks)), "--rounds", 3)
            found = self.tutti(["all_to_all_v", "all_to_all_v_skewed"], ranks, BLOCKS_SIZES, *against)
            if ranks == 8:
                found |= self.tutti(["all_to_all_v_sparse"], ranks, [SPARSE_SIZE], *against)
            for (collective, size), rows in found.items():
                us, best = self.times(rows)
                self.note(BLOCKS[collective], f"{human(size)}, {ranks} ranks", best / us)

    def blocks_tcp(self):
        for ranks in (2, 8):
            for collective, target in BLOCKS.items():
                if target == "sparse" and ranks == 2:
                    continue
                sizes = [SPARSE_SIZE] if target == "sparse" else BLOCKS_SIZES
                found = self.veth("--rounds", 3, "--collective", collective, "--hosts", ranks, "--sizes",
                                  ",".join(map(str, sizes)), "--only", ",".join(["tutti", *self.peers_of(ranks)]))
                others = [found[name] for name in MPI if name in found]
                if not others:
                    raise RuntimeError("no peer was measured; make bench installs and builds them")
                for size in sizes:
                    best = min(times[size] for times in others)
                    self.note(f"tcp {target}", f"{human(size)}, {ranks} ranks", best / found["tutti"][size])
        sizes = [128, 512, 1536]  # blocks of up to 21, 85 and 256 B
        found = self.veth("--rounds", 5, "--collective", "all_to_all_v", "--hosts", 8, "--sizes", ",".join(map(str, sizes)),
                          "--only", "tutti,named", "--named", "pairwise")
        for size in sizes:
            self.note("tcp short", f"blocks of {size // 8} B on average", found["pairwise"][size] / found["tutti"][size])

    def plan(self):
        self.needs("--plan")
        row = self.tutti(["all_reduce"], 2, [8], "--plan")["all_reduce", 8]["tutti-plan"]
        self.note("plan", "all_reduce", row["median_us"] * 1000 - row["line_ns"])

    def regret(self):
        self.needs("--regret")
        for row in self.rows(self.program, "bench", "all", "-n", 2, "-b", 8, "-e", "16M", "-f", 8, "--seconds",
                             self.options.seconds / 4, "--rounds", 5, "--no-limits", "--regret"):
            self.note("regret", f"{row['collective']} {human(row['bytes'])}", 1 + row["regret_percent"] / 100)

    def crowd(self):
        for ranks in (4, 8):
            found = self.tutti(["all_reduce"], ranks, [8, 64 * KB], "--against", "openmpi", "--rounds", 5)
            for (_, size), rows in found.items():
                us, best = self.times(rows)
                self.note("crowd", f"{human(size)}, {ranks} ranks on {os.cpu_count()} cores", us / best)
        for ranks, beside in ((2, 4), (2, 8), (4, 4)):
            # Few calls take most of the time, so the mean counts; ranks of a program that waits are not pinned either.
            found = self.tutti(["all_reduce"], ranks, [8], "--against", "gloo,torch", "--rounds", 3, "--beside", beside,
                               "--no-pin", seconds=1)
            for rows in found.values():
                others = [row["mean_us"] for name, row in rows.items() if name != "tutti"]
                if not others:
                    raise RuntimeError("neither gloo nor PyTorch's gloo was measured; --torch-python names an interpreter")
                self.note("beside", f"{ranks} ranks beside {beside}", rows["tutti"]["mean_us"] / min(others))

    def types(self):
        counts = [MB // 2, 2 * MB, 8 * MB, 32 * MB]
        sizes = sorted(count * size for count in counts for size in (2, 4))
        ratios = {}
        for _ in range(5):
            rows = self.rows(self.program, "bench", "all_reduce", "-n", 2, "--sizes", ",".join(map(str, sizes)), "--dtype",
                             "float32,bfloat16,float16", "--seconds", self.options.seconds, "--no-limits")
            time = {(row["dtype"], row["bytes"]): row["median_us"] for row in rows}
            for dtype in ("bfloat16", "float16"):
                for count in counts:
                    ratio = time[dtype, 2 * count] / time["float32", 4 * count]
                    ratios.setdefault(f"{dtype} {human(2 * count)}", []).append(ratio)
        for case, values in ratios.items():
            self.note("types", case, statistics.median(values))

    def progress(self):
        command = (self.program, "run", "-n", 2, "--", self.build / "bench/progress_bench", "--rounds", 11)
        for row in self.rows(*command):
            if row["work"] == "wait":
                self.note("wait", row["case"], row["share"])
            else:
                self.note("overlap", f"{row['mib']} MB", row["together_us"] / row["one_after_other_us"])
        for row in self.rows("env", "TUTTI_PROGRESS_NICE=-5", *command):
            if row["work"] == "overlap":
                self.note("left", f"{row['mib']} MB", row["left"])

    def store(self):
        rows = []
        for work, rounds in (("get,set,add", 2), ("wake", 8)):
            rows += self.rows(self.build / "bench/store_bench", "--against", "redis,torch", "--work", work, "--rounds", rounds,
                              "--milliseconds", 100, "--torch-python", self.options.torch_python)
        table = {(r["work"], r["clients"], r["implementation"].split()[0]): r for r in rows}
        peers = {name for _, _, name in table if name != "tutti"}
        for (work, clients, name), row in table.items():
            if name not in peers:
                continue
            ours = table[work, clients, "tutti"]
            time = ours["median_us"] / row["median_us"]
            case = work if work == "wake" else f"{work}, {clients} client{'s' if clients > 1 else ''}"
            if name == "redis":
                self.note("redis", case, 1 / time if work == "wake" else ours["ops_per_s"] / row["ops_per_s"])
                continue
            self.note({"get": "torch get", "wake": "torch wake"}.get(work, "torch set"), case, time)
            if clients > 1:
                self.note("torch many", case, ours["ops_per_s"] / row["ops_per_s"])
        for name in {"redis", "torch"} - peers:
            raise RuntimeError(f"{name} is not there")

    def start(self):
        rows = self.rows(self.build / "bench/init_bench", "--ranks", 32, "--rounds", 1, "--torch-python",
                         self.options.torch_python)
        times = {r["implementation"].split()[0]: r["median_ms"] for r in rows}
        if "gloo" not in times:
            raise RuntimeError(f"gloo: {self.options.torch_python} cannot import torch; --torch-python names another")
        self.note("start", "init_process_group and barrier", times["gloo"] / times["tutti"])
        if os.geteuid() != 0:
            raise RuntimeError("network namespaces need root")
        rows = self.rows(sys.executable, HERE / "store/hosts.py", "--build", self.build, "--rounds", 1, "--torch-python",
                         self.options.torch_python)
        times = {(r["implementation"].split()[0], r["tls"]): r["median_ms"] for r in rows}
        self.note("start tls", "two hosts, TLS", times["gloo", ""] / times["tutti", "on"])

    def graph(self):
        command = [self.options.torch_python, HERE / "torch/graph_bench.py", "--rounds", 5]
        path = os.pathsep.join(filter(None, [str(self.build / "python"), os.environ.get("PYTHONPATH")]))
        rows = self.rows("env", f"PYTHONPATH={path}", *command)
        time = {(row["case"], row["implementation"]): row["median_us"] for row in rows}
        self.note("graph", "small50", time["small50", "compiled"] / time["small50", "eager"])
        self.note("graph plain", "small50", time["small50", "compiled, no buckets"] / time["small50", "eager"])
        self.note("graph layers", "layers", time["layers", "compiled"] / time["layers", "eager"])
        self.note("graph gloo", "layers", time["layers", "compiled"] / time["layers", "eager gloo"])

    def replay(self):
        rows = self.rows(self.program, "run", "-n", 2, self.build / "bench/graph_bench")
        ratio = {(row["work"], row["case"]): row["ratio"] for row in rows if "case" in row}
        alone = {row["work"]: row for row in rows if "case" not in row}
        self.note("replayed", "independent", ratio["independent", "optimised"])
        self.note("dependent", "dependent", ratio["dependent", "optimised"])
        self.note("empty", "1000 empty steps", alone["empty"]["ns"])
        self.note("proof", "40,000 nodes in all", alone["proof"]["seconds"])
        self.note("peak", "random graphs", alone["memory"]["ratio"])

    def layers(self):
        for row in self.rows(self.program, "run", "-n", 2, self.build / "bench/graph_bench", "--layers"):
            if "ratio" not in row:
                raise RuntimeError(f"needs {row['needs_cores']} cores, one beside each rank's; here are {os.cpu_count()}")
            self.note(row["work"], f"{row['layers']} layers" if row["layers"] > 1 else "one layer", row["ratio"])

    def veth(self, *more):
        if os.geteuid() != 0:
            raise RuntimeError("network namespaces need root")
        rows = self.rows(sys.executable, HERE / "tcp/veth.py", "--tutti", self.program, "--seconds", self.options.seconds,
                         *more)
        found = {}
        for row in rows:
            found.setdefault(row["contender"], {})[row["what"] if row["contender"] == "exchange" else row["case"]] = row[
                "median_us"]
        return found

    def tcp(self):
        sizes = [16 * MB, 64 * MB, 256 * MB]
        found = self.veth("--rounds", 3, "--sizes", ",".join(map(str, [8, *sizes])), "--only",
                          "tutti,encrypted,unchecked,wire,exchange,gloo")
        ours = found["tutti"]
        for size in sizes:
            self.note("tcp", human(size), found["wire"][size] / ours[size])
            self.note("tcp gloo", human(size), found["gloo"][size] / found["unchecked"][size])
            self.note("tcp checked", human(size), found["gloo"][size] / ours[size])
            self.note("tls", human(size), ours[size] / found["encrypted"][size])
        self.note("tls small", "8 B", found["encrypted"][8] / ours[8])
        self.note("tcp small", "8 B", ours[8] / found["exchange"]["exchange"])
        self.note("tcp small gloo", "8 B", ours[8] / found["gloo"][8])
        found = self.veth("--rounds", 2, "--sizes", 64 * MB, "--link-rate", "1gbit", "--only", "tutti,unchecked")
        self.note("checksums", "64 MB", found["tutti"][64 * MB] / found["unchecked"][64 * MB])

    def hosts(self):
        sizes = [64 * KB, MB, 16 * MB, 64 * MB]
        found = self.veth("--rounds", 4, "--sizes", ",".join(map(str, sizes)), "--ranks-per-host", 2, "--only", "tutti,openmpi")
        for size in sizes:
            self.note("hosts", human(size), found["openmpi"][size] / found["tutti"][size])

    def quantized(self):
        for row in self.rows(self.build / "bench/quantize_bench"):
            if row["case"] == "encode float16 int8":
                self.note("quantise", f"{row['elements']} elements", row["of_memcpy"])
        if os.geteuid() != 0:
            raise RuntimeError("network namespaces need root")
        names = {"int8": "int8", "int8 one leg": "one leg", "int4": "int4"}
        for row in self.rows(sys.executable, HERE / "quantize/quantized.py", "--program", self.build / "bench/quantized_bench",
                             "--sizes", "16,32,64"):
            if row["case"] not in names:
                continue
            self.note(names[row["case"]], f"{row['mb']} MB", row["time"])
            if row["case"] != "int8 one leg":
                self.note(f"{row['case']} bytes", f"{row['mb']} MB", row["bytes"])

    def nccl(self):
        library = os.environ.get("TUTTI_NCCL_LIB") or self.build / "lib/libtutti-nccl.so.2"
        for row in self.rows("env", f"TUTTI_NCCL_LIB={library}", self.build / "bench/nccl_bench"):
            if row["case"] == "call":
                self.note("nccl call", "all_reduce", row["plug_in_ns"] - row["raw_ns"])
            else:
                self.note("nccl load", pathlib.Path(library).name, row["ms"])

    # ---- figures of one row

    def times(self, rows, names=None):
        """Ours, and the best of the peers."""
        others = [row["median_us"] for name, row in rows.items() if name != "tutti" and (names is None or name in names)]
        if not others:
            raise RuntimeError("no peer was measured; make bench installs and builds them")
        return rows["tutti"]["median_us"], min(others)

    def cpu(self, case, rows):
        fastest = min((row for name, row in rows.items() if name != "tutti"), key=lambda row: row["median_us"])
        self.note("cpu", case, rows["tutti"]["cpu_us"] / fastest["cpu_us"])

    # ---- the table

    def measure(self):
        """How many turns are whole."""
        for turn in range(self.options.repeat):
            for group in self.options.only:
                print(f"tutti: measuring {group} ({turn + 1} of {self.options.repeat})", flush=True)
                try:
                    getattr(self, group)()
                except KeyboardInterrupt:
                    print(f"tutti: interrupted after {turn} whole turns; what was measured counts", flush=True)
                    return turn
                except (RuntimeError, KeyError, OSError) as error:
                    self.failures[group] = str(error) if not isinstance(error, KeyError) else f"no row for {error}"
        return self.options.repeat

    def keep(self):
        """For a later run with --keep."""
        file = self.build / "bench/measured.json"
        if self.options.keep and file.exists():
            for name, cases in json.loads(file.read_text()).items():
                for case, values in cases.items():
                    before = self.targets[name].cases.get(case, [])
                    self.targets[name].cases[case] = values + before
        file.write_text(json.dumps({name: t.cases for name, t in self.targets.items()}, indent=1) + "\n")

    def line(self, target):
        why = self.failures.get(target.group)
        fields = {"target": target.text, "sign": target.sign, "limit": target.limit, "unit": target.unit}
        if why or not target.cases:
            return {**fields, "measured": None, "case": f"not measured: {why or 'group ' + target.group + ' was not run'}",
                    "holds": False, "cases": {}}
        medians = target.medians()
        worst = target.worst()
        cases = {case: {"measured": round(value, 4), "holds": target.good(value)} for case, value in medians.items()}
        return {**fields, "measured": round(medians[worst], 4), "case": worst, "holds": target.good(medians[worst]),
                "cases": cases}

    def print_line(self, target, line):
        word = "holds" if line["holds"] else "falls short"
        short = [case for case, one in line["cases"].items() if not one["holds"]]
        if len(line["cases"]) > 1 and short:
            word += f" in {len(short)} of {len(line['cases'])}"
        measured = target.show(line["measured"]) if line["measured"] is not None else "-"
        limit = f"{target.sign} {target.show(target.limit)}"
        print(f"{target.text:76} {limit:>11} {measured:>10}  {word:24} {line['case']}")
        if self.options.verbose:
            for case, one in line["cases"].items():
                word = "holds" if one["holds"] else "falls short"
                print(f"    {case:72} {'':>11} {target.show(one['measured']):>10}  {word}")

    def run(self):
        about = results.facts(self.version, self.options.repeat, "python3 bench/targets.py " + " ".join(self.options.words))
        about["turns"] = self.measure()
        out = self.build / "bench"
        out.mkdir(exist_ok=True)
        self.keep()
        lines = []
        print(f"\n{'target':76} {'limit':>11} {'measured':>10}  {'':24} the case furthest from the limit")
        for target in self.targets.values():
            lines.append(self.line(target))
            self.print_line(target, lines[-1])
        (out / "targets.json").write_text(json.dumps(lines, indent=1) + "\n")
        if self.options.save:
            results.save(self.options.save, about, lines)
        print(f"\n{sum(line['holds'] for line in lines)} of {len(lines)} targets hold; {out / 'targets.json'}")
        for group, why in self.failures.items():
            print(f"tutti: not measured: {group}: {why}", file=sys.stderr)
        for words in self.wrong:
            print(f"tutti: {words}", file=sys.stderr)
        return 1 if self.failures or self.wrong else 0


def main():
    groups = list(dict.fromkeys(target.group for target in targets().values()))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.05, help="for each row of tutti bench")
    parser.add_argument("--torch-python", default="python3", help="the interpreter that has torch")
    parser.add_argument("--only", default=",".join(groups), help="groups to measure: " + ",".join(groups))
    parser.add_argument("--keep", action="store_true", help="add to what earlier runs measured, back to the last one without it")
    parser.add_argument("--save", metavar="FILE", help="also write the lines, and where they were measured, to this file")
    parser.add_argument("-v", "--verbose", action="store_true", help="also each case")
    options = parser.parse_args()
    options.words = [f"--repeat {options.repeat}"] + ([f"--only {options.only}"] if options.only != ",".join(groups) else [])
    options.only = [group for group in options.only.split(",") if group]
    for group in options.only:
        if group not in groups:
            parser.error(f"--only {group}: expected some of {','.join(groups)}")
    return Bench(options).run()


if __name__ == "__main__":
    sys.exit(main())
