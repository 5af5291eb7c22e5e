"""Runs a test's function on n ranks, in processes of their own, and hands back what they return."""
import faulthandler
import multiprocessing
import os
import pathlib
import sys
import tempfile
import traceback

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from ports import free_port  # noqa: E402  (also for the tests)


def _run(function, rank, size, port, args, init, pipe):
    faulthandler.dump_traceback_later(60, exit=True)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(size))
    try:
        import tutti.distributed as dist

        if init:
            dist.init_process_group()
        result = function(rank, *args)
        if init and dist.is_initialized():
            dist.destroy_process_group()
        pipe.send((True, result))
    except BaseException:
        pipe.send((False, traceback.format_exc()))


def run_ranks(function, size=2, args=(), init=True, timeout=60):
    """[function(0, *args), function(1, *args), ...], each with its default group made and destroyed around it."""
    context = multiprocessing.get_context("fork")
    port, ranks = free_port(), []
    for rank in range(size):
        here, there = context.Pipe()
        process = context.Process(target=_run, args=(function, rank, size, port, args, init, there))
        process.start()
        there.close()
        ranks.append((process, here))
    results = []
    for rank, (process, pipe) in enumerate(ranks):
        try:
            good, value = pipe.recv() if pipe.poll(timeout) else (False, f"no answer in {timeout} s")
        except EOFError:
            process.join(timeout)
            good, value = False, f"died with status {process.exitcode}"
        results.append((good, f"rank {rank}: {value}" if not good else value))
    for process, _ in ranks:
        process.join(10)
        if process.exitcode is None:
            process.kill()
    failures = [value for good, value in results if not good]
    if failures:
        raise AssertionError("\n".join(failures))
    return [value for _, value in results]


def run_script(text, size=1, timeout=60, env=None):
    """Runs a program as rank 0 of 1; its standard output."""
    import subprocess

    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(text)
        file.flush()
        done = subprocess.run([sys.executable, file.name], capture_output=True, text=True, timeout=timeout,
                              env={**os.environ, **(env or {})})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
