"""Runs a function on several ranks: forked processes, so that PyTorch is loaded once.

    def check(rank, world_size): ...
    ranks.run(2, check)

Raises AssertionError with the tracebacks of all ranks that failed, died or took too long.

    ranks.torchrun("program.py", timeout=60)

Or two ranks of a program, under torchrun.
"""

from __future__ import annotations

import multiprocessing
import os
import pathlib
import subprocess
import sys
import tempfile
import traceback
from typing import Any, Callable

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # threads would not live on in forked ranks

import torch
import torch.distributed as dist

import tutti.torch

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from ports import free_port  # noqa: E402  (also for the tests)

BACKEND = os.environ.get("TUTTI_TEST_BACKEND", "tutti")


def torchrun(*command: str, timeout: float, **environment: str) -> subprocess.CompletedProcess:
    with tempfile.TemporaryDirectory() as logs:  # its own it would leave behind
        return subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
                               "--log-dir", logs, *command], capture_output=True, text=True, timeout=timeout,
                              env=os.environ | {"OMP_NUM_THREADS": "1"} | environment)


def _child(function: Callable, rank: int, world_size: int, path: str, backend: str | None, results: Any, args: tuple) -> None:
    torch.set_num_threads(1)
    try:
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world_size))
        if backend:
            dist.init_process_group(backend, init_method=f"file://{path}", rank=rank, world_size=world_size)
        value = function(rank, world_size, *args)
        if backend and dist.is_initialized():
            dist.destroy_process_group()
        results.put((rank, None, value))
    except BaseException:  # noqa: BLE001: whatever it is, the parent reports it
        results.put((rank, traceback.format_exc(), None))
    results.close()
    results.join_thread()


def load_compiler() -> None:
    """Loads all that torch.compile loads at its first use, so that forked ranks need not."""
    torch.compile(lambda x: x + 1, fullgraph=True)(torch.ones(2))
    torch._dynamo.reset()


def run(world_size: int, function: Callable, *args: Any, backend: str | None = BACKEND, limit: float = 60) -> list[Any]:
    """What `function(rank, world_size, *args)` returned on each rank. backend=None: it makes its group itself."""
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        results = context.Queue()
        path = os.path.join(folder, "store")
        processes = [
            context.Process(target=_child, args=(function, rank, world_size, path, backend, results, args), daemon=True)
            for rank in range(world_size)
        ]
        for process in processes:
            process.start()
        found: dict[int, tuple[str | None, Any]] = {}
        problem = ""
        while len(found) < world_size and not problem:
            try:
                rank, error, value = results.get(timeout=limit)
                found[rank] = (error, value)
                limit = min(limit, 20) if error else limit
            except Exception:  # noqa: BLE001: queue.Empty
                missing = [rank for rank in range(world_size) if rank not in found]
                problem = f"no answer from ranks {missing} (exit codes {[processes[r].exitcode for r in missing]})\n"
        for process in processes:
            if problem:
                process.kill()
            process.join(timeout=20)
    errors = [f"rank {rank}:\n{error}" for rank, (error, _) in sorted(found.items()) if error]
    codes = [process.exitcode for process in processes]
    assert not problem and not errors, problem + "\n".join(errors)
    assert codes == [0] * world_size, f"exit codes {codes}"
    return [found[rank][1] for rank in range(world_size)]
