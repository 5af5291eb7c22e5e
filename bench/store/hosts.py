#!/usr/bin/env python3
"""init_bench between the network namespaces of two hosts: how long processes that have all started take to the end of
their first barrier, with TLS and without, beside PyTorch's gloo.

Usage: hosts.py [--build build] [--ranks 32] [--rounds 3] [--torch-python python3] [--json FILE]

Needs root and iproute2. Everything is removed at the end, also after a failure.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(os.path.dirname(HERE), "tcp"))
from veth import Hosts  # noqa: E402


def measure(options, hosts, tls):
    """init_bench's rows, with TUTTI_TLS=`tls`."""
    environment = dict(os.environ, TUTTI_TLS=tls, TUTTI_JOB_SECRET=os.urandom(16).hex())
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        subprocess.run([os.path.join(options.build, "bench/init_bench"), "--ranks", str(options.ranks), "--rounds",
                        str(options.rounds), "--torch-python", options.torch_python, "--namespaces", ",".join(hosts.names),
                        "--address", hosts.addresses[0], "--json", file.name],
                       check=True, env=environment, stdout=subprocess.DEVNULL)
        rows = json.load(file)
    for row in rows:
        row["tls"] = tls if row["implementation"].startswith("tutti") else ""
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--ranks", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--torch-python", default="python3", help="a Python that can import torch")
    parser.add_argument("--json", help="writes the figures to this file")
    options = parser.parse_args()
    with Hosts(2, 1, None) as hosts:
        rows = [row for tls in ("on", "off") for row in measure(options, hosts, tls)]
    for row in rows:
        name = row["implementation"] + (f", TLS {row['tls']}" if row["tls"] else "")
        print(f"{row['ranks']:5d}  {name:40s} {row['init_ms']:10.2f} ms  with a barrier {row['median_ms']:10.2f} ms")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
