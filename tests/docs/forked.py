"""Runs programs that import PyTorch, each with two ranks, in processes that are forked after the import: that takes
seconds, once. Usage: forked.py PROGRAM.py...   The exit status is that of the first program that fails.
"""
import os
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from ports import free_port  # noqa: E402

import torch  # noqa: F401

import torch._inductor.compile_fx  # noqa: F401  for torch.compile, and optimizers want half of it


def run(program, rank, port):
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    exec(compile(pathlib.Path(program).read_text(), program, "exec"), {"__name__": "__main__"})


for name in sys.argv[1:]:
    port, children = free_port(), []
    for number in range(2):
        child = os.fork()
        if child == 0:
            sys.argv = [name]
            run(name, number, port)
            sys.exit(0)
        children.append(child)
    statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    print(f"{name}: the ranks ended with {statuses}", flush=True)
    if any(statuses):
        sys.exit(1)
