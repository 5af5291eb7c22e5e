#!/usr/bin/env python3
"""Quantised all_reduces over a slow network, beside float16's: two ranks in two network namespaces, with a limited link.

Usage: quantized.py [--program build/bench/quantized_bench] [--rate 1gbit] [--sizes 16,64] [--rounds 5] [--json FILE]
Needs root (network namespaces) and tc. All cases take turns in one run; times are compared with float16's all_reduce in
it, and shown beside what the link needs for the bytes. Exit status 77: it cannot run here.

--rate    of the link in each direction, as tc takes it.
--sizes   of the float16 tensor, in MB.
"""
import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tcp"))
from veth import Hosts, finish  # noqa: E402


def bits_of(rate):
    """Bits a second, of a number with kbit, mbit or gbit behind it."""
    units = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
    return float(rate[:-4]) * units[rate[-4:].lower()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(HERE.parents[1] / "build/bench/quantized_bench"))
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--sizes", default="16,64")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("tc") is None:
        print("quantized.py: network namespaces need root, and the commands ip and tc (Debian package iproute2)",
              file=sys.stderr)
        return 77
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    secret = os.urandom(16).hex()
    with tempfile.TemporaryDirectory() as work, Hosts(2, 1, options.rate) as hosts:
        report = os.path.join(work, "rows.json")
        command = [options.program, report, str(options.rounds), *options.sizes.split(",")]
        finish([hosts.start(rank, command, RANK=rank, WORLD_SIZE=2, MASTER_ADDR=hosts.addresses[0], MASTER_PORT=29650,
                            TUTTI_JOB_SECRET=secret)
                for rank in range(2)], limit=400)
        with open(report) as file:
            rows = json.load(file)
    plain = {row["mb"]: row for row in rows if row["case"] == "float16"}
    def wire_ms(sent):
        """What the link needs at best: packets carry 1448 of 1514 bytes."""
        return sent * 1514 / 1448 * 8 / bits_of(options.rate) * 1000
    print(f"{'case':20} {'MB':>4} {'median ms':>10} {'of float16':>10} {'MB sent':>9} {'of float16':>10} {'link ms':>8}")
    for row in rows:
        base = plain[row["mb"]]
        row["time"] = row["median_ms"] / base["median_ms"]
        row["bytes"] = row["sent_bytes"] / base["sent_bytes"]
        print(f"{row['case']:20} {row['mb']:>4} {row['median_ms']:>10.1f} {row['time']:>10.3f} "
              f"{row['sent_bytes'] / 1e6:>9.2f} {row['bytes']:>10.3f} {wire_ms(row['sent_bytes']):>8.1f}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
