#!/usr/bin/env python3
"""Every collective between hosts over links of several kinds, beside Open MPI and Gloo, and the choice beside the best.

Usage: links.py [--tutti build/bin/tutti] [--networks 1g,10g,25g,1g-1ms,1g-20ms,1g-1ms-lossy] [--collectives all_reduce,...]
                [--sizes 8,64K,1M,16M] [--hosts 2] [--ranks-per-host 1] [--rounds 3] [--seconds 0.1] [--json FILE]

Prints a table in Markdown: a line for each collective, a column for each network. A cell has the speed over the fastest
peer's where that is lowest, and of the choice the longest time to the best algorithm's, each with its size. --json writes every
case as {network, collective, bytes, us, peers, regret, chosen, best}. Hosts are network namespaces, see veth.py; needs root and
the programs that `make bench` and `make test` build.
"""
import argparse
import json
import os
import shutil
import signal
import statistics
import sys
import tempfile

import veth

NETWORKS = {  # rate, milliseconds each way, share of frames that get lost
    "1g": ("1 Gbit/s", "1gbit", 0, 0), "10g": ("10 Gbit/s", "10gbit", 0, 0), "25g": ("25 Gbit/s", "25gbit", 0, 0),
    "1g-50us": ("1 Gbit/s, 0.05 ms", "1gbit", 0.05, 0), "1g-1ms": ("1 Gbit/s, 1 ms", "1gbit", 1, 0),
    "1g-20ms": ("1 Gbit/s, 20 ms", "1gbit", 20, 0), "1g-1ms-lossy": ("1 Gbit/s, 1 ms, 0.1 % lost", "1gbit", 1, 0.001)}
COLLECTIVES = ("all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "all_to_all", "gather", "scatter", "scan", "exscan",
               "sendrecv", "barrier")


def measure(options, name, work):
    _, rate, delay, loss = NETWORKS[name]
    with veth.Hosts(options.hosts, 1, rate, delay, loss, veth.carrier_of(options.tutti)) as hosts:
        bench = veth.Bench(options, hosts, work)
        measured, regrets = bench.measured(), bench.regret()
    for collective, size in measured["tutti"]:
        us = {contender: statistics.median(cases[collective, size]) for contender, cases in measured.items()
              if (collective, size) in cases}
        regret, chosen, best = regrets.get((collective, size), (None, None, None))
        yield {"network": name, "collective": collective, "bytes": size, "us": us.pop("tutti"), "peers": us, "regret": regret,
               "chosen": chosen, "best": best}


def cell(rows):
    speeds = [(min(row["peers"].values()) / row["us"], row["bytes"]) for row in rows if row["peers"]]
    regrets = [(row["regret"], row["bytes"]) for row in rows if row["regret"]]
    worst = [*([min(speeds)] if speeds else []), *([max(regrets)] if regrets else [])]
    return "; ".join(f"{value:.2f} ({veth.human(size)})" for value, size in worst) or "-"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tutti", default=os.path.join(veth.ROOT, "build/bin/tutti"))
    parser.add_argument("--networks", default="1g,10g,25g,1g-1ms,1g-20ms,1g-1ms-lossy", help=f"some of {','.join(NETWORKS)}")
    parser.add_argument("--collectives", dest="collective", default=",".join(COLLECTIVES))
    parser.add_argument("--sizes", default="8,64K,1M,16M")
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--ranks-per-host", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.1)
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    options.only, options.named = "tutti,openmpi,gloo", ""
    networks = options.networks.split(",")
    if unknown := [name for name in networks if name not in NETWORKS]:
        parser.error(f"--networks {unknown[0]}: expected some of {','.join(NETWORKS)}")
    if options.hosts != 2 and any(NETWORKS[name][2] for name in networks):
        parser.error(f"--hosts {options.hosts}: expected 2 with a network that has a delay")
    if os.geteuid() != 0 or shutil.which("ip") is None:
        print("links.py: network namespaces need root and the command ip (Debian package iproute2)", file=sys.stderr)
        return 77
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    rows, work = [], tempfile.mkdtemp()
    try:
        for name in networks:
            rows += measure(options, name, work)
            print(f"links.py: {NETWORKS[name][0]} measured", file=sys.stderr, flush=True)
            if options.json:  # a later network may take too long
                with open(options.json, "w") as file:
                    json.dump(rows, file, indent=1)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print("| collective | " + " | ".join(NETWORKS[name][0] for name in networks) + " |")
    print("|---|" + "---|" * len(networks))
    for collective in options.collective.split(","):
        cells = [cell([row for row in rows if (row["network"], row["collective"]) == (name, collective)]) for name in networks]
        print(f"| {collective} | " + " | ".join(cells) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
