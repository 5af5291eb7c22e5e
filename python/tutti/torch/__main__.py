"""python -m tutti.torch --replace-gloo [-m MODULE | SCRIPT] [ARGUMENT...]: runs a program with gloo replaced."""

from __future__ import annotations

import os
import runpy
import sys

USAGE = """usage: python -m tutti.torch --replace-gloo [-m MODULE | SCRIPT] [ARGUMENT...]

Runs a Python program in which every use of gloo is tutti's: init_process_group("gloo"), "cpu:gloo,cuda:nccl", the
default backend, new_group(backend="gloo"), ProcessGroupGloo(...); also in the processes that it starts, and under
torchrun: torchrun --nproc-per-node 4 -m tutti.torch --replace-gloo train.py. The same as TUTTI_REPLACE_GLOO=1."""


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE)
        return 0 if arguments else 2
    if arguments[0] != "--replace-gloo" or len(arguments) < 2 or arguments[1:] == ["-m"]:
        print(f"tutti.torch: unexpected arguments {' '.join(arguments)!r}\n{USAGE}", file=sys.stderr)
        return 2
    from tutti import torch as backend

    os.environ[backend._SWITCH] = "1"  # for the processes that the program starts
    backend.replace_gloo()
    if arguments[1] == "-m":
        sys.argv = arguments[2:]
        runpy.run_module(arguments[2], run_name="__main__", alter_sys=True)
        return 0
    script = arguments[1]
    if not os.path.exists(script):
        print(f"tutti.torch: there is no program {script!r}", file=sys.stderr)
        return 2
    sys.argv = arguments[1:]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    runpy.run_path(script, run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
