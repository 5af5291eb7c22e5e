"""The rows of resilient.py for others: torchrun, which starts all ranks again, and torchft, whose survivors go on.

The state is the same, 4 MB, and so is the step. torchrun's program keeps a checkpoint in memory (/dev/shm), which its rank 0
writes after each step; torchft's replicas have one rank each."""
import importlib.util
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

RANKS = 4


def started(*command, **environment):
    return subprocess.Popen(command, env=dict(os.environ, OMP_NUM_THREADS="1", **environment), stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, text=True, start_new_session=True)


def line_with(process, wanted):
    for line in process.stdout:
        if wanted(line.split()):
            return line.split()
    raise SystemExit("a rank has ended")


def kill_all(processes):
    for process in processes:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        process.stdout.close()


def torchrun_rank():
    import torch
    import torch.distributed as dist

    dist.init_process_group("tutti")  # gloo's ranks could not connect after a restart (PyTorch 2.13)
    rank, attempt = dist.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    checkpoint = pathlib.Path(os.environ["BENCH_CHECKPOINT"])
    first, weights = torch.load(checkpoint) if checkpoint.exists() else (0, torch.ones(1_000_000))
    print(f"pid {rank} {os.getpid()} {attempt}\n", end="", flush=True)
    for step in range(first, 100_000):
        x = weights * 0.1
        dist.all_reduce(x)
        weights -= 0.01 * x
        if rank == 0:
            torch.save((step + 1, weights), checkpoint.with_suffix(".new"))
            checkpoint.with_suffix(".new").rename(checkpoint)
            print(f"step {step} {attempt} {time.monotonic()}\n", end="", flush=True)
        time.sleep(0.01)


def torchrun():
    folder = pathlib.Path(tempfile.mkdtemp(dir="/dev/shm"))
    job = started(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS), "--max-restarts", "3",
                  "--log-dir", str(folder / "logs"), __file__, BENCH_OTHER="torchrun_rank", BENCH_CHECKPOINT=str(folder / "checkpoint"))
    pids = {}

    def is_running(words):
        if words[0] == "pid":
            pids[words[1]] = int(words[2])
        return words[0] == "step" and int(words[1]) >= 10

    try:
        line_with(job, is_running)
        begin = time.monotonic()
        os.kill(pids["1"], signal.SIGKILL)
        return [float(line_with(job, lambda words: words[0] == "step" and words[2] == "1")[3]) - begin]
    finally:
        job.send_signal(signal.SIGTERM)  # its ranks are in sessions of their own
        try:
            job.wait(20)
        except subprocess.TimeoutExpired:
            pass
        kill_all([job])
        shutil.rmtree(folder)


def torchft_rank():
    import logging
    from datetime import timedelta

    import torch
    import torch.distributed as dist

    logging.disable(logging.CRITICAL)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(store.port))
    import torchft

    weights = torch.ones(1_000_000)
    manager = torchft.Manager(pg=torchft.ProcessGroupGloo(timeout=timedelta(seconds=30)), min_replica_size=2,
                              replica_id=f"replica_{os.environ['BENCH_REPLICA']}", rank=0, world_size=1,
                              load_state_dict=lambda state: weights.copy_(state["weights"]), state_dict=lambda: {"weights": weights})
    while manager.current_step() < 100_000:
        manager.start_quorum()
        x = weights * 0.1
        manager.allreduce(x).wait()
        if manager.should_commit():
            weights -= 0.01 * x
            print(f"step {manager.current_step()} {manager.num_participants()} {time.monotonic()}\n", end="", flush=True)
        time.sleep(0.01)


def torchft_lighthouse():  # in a process of its own, which says much
    from torchft.coordination import LighthouseServer

    lighthouse = LighthouseServer(bind="127.0.0.1:0", min_replicas=2)
    print(f"address {lighthouse.address()}\n", end="", flush=True)
    signal.pause()


def torchft():
    lighthouse = started(sys.executable, __file__, BENCH_OTHER="torchft_lighthouse")
    address = line_with(lighthouse, lambda words: words[:1] == ["address"])[1]

    def start(number):
        return started(sys.executable, __file__, BENCH_OTHER="torchft_rank", BENCH_REPLICA=str(number), TORCHFT_LIGHTHOUSE=address)

    ranks = [start(number) for number in range(RANKS)]
    try:
        line_with(ranks[0], lambda words: int(words[1]) >= 10 and words[2] == str(RANKS))
        begin = time.monotonic()
        ranks[1].send_signal(signal.SIGKILL)
        ranks.append(start(RANKS))
        alone = float(line_with(ranks[0], lambda words: words[2] != str(RANKS))[3]) - begin
        return [alone, float(line_with(ranks[0], lambda words: words[2] == str(RANKS))[3]) - begin]
    finally:
        kill_all([*ranks, lighthouse])


def rows():
    """Names of rows, and the function that returns a time for each."""
    found = [(["torchrun --max-restarts"], torchrun)]
    if importlib.util.find_spec("torchft") is not None:
        found.append((["torchft, survivors alone", "torchft, all ranks again"], torchft))
    return found


if __name__ == "__main__":
    globals()[os.environ["BENCH_OTHER"]]()
