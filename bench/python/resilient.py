"""How long a training stands still when a rank is killed: from SIGKILL to the next completed step, four ranks on one host.

    python bench/python/resilient.py [--rounds 5] [--torch]

hot spare: another process waits in init_process_group already. fresh process: it is started when the rank is killed, and
imports NumPy (with --torch also PyTorch) first. The program is its own launcher. With --torch also torchrun, and torchft where
it is installed (resilient_others.py). Each row is the median of some rounds, and the longest of them."""
import argparse
import os
import signal
import statistics
import subprocess
import sys
import time

RANKS = 4


def rank():
    import numpy as np
    if os.environ.get("BENCH_TORCH"):
        import torch  # noqa: F401
    import tutti.distributed as dist

    print("up", flush=True)
    dist.init_process_group()
    weights = np.ones(1_000_000, np.float32)

    def step(r):
        x = weights * np.float32(0.1)
        dist.all_reduce(x, group=r.group)
        weights[:] -= np.float32(0.01) * x
        print(r.step, r.recoveries + r.group.is_newcomer(), time.monotonic(), flush=True)
        time.sleep(0.01)

    dist.resilient(step, [weights], steps=100_000)


def start(port, number=None):
    environment = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT="1", TUTTI_LAUNCHER_MASTER_PORT="1",
                       TUTTI_STORE_PORT=str(port), TUTTI_REPLACES="1", BENCH_RANK="1")
    environment.update({"TUTTI_NEWCOMER": "1"} if number is None else {"RANK": str(number), "WORLD_SIZE": str(RANKS)})
    return subprocess.Popen([sys.executable, __file__], env=environment, stdout=subprocess.PIPE, text=True)


def lines_until(process, wanted):
    for line in process.stdout:
        if wanted(line.split()):
            return line.split()
    raise SystemExit("a rank has ended")


def seconds(hot):
    import tutti.distributed as dist

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    ranks = [start(store.port, number) for number in range(RANKS)]
    if hot:
        ranks.append(start(store.port))
    try:
        lines_until(ranks[0], lambda words: words[0] == "10")
        if hot:
            lines_until(ranks[-1], lambda words: words == ["up"])
            while dist.newcomers_waiting(store) == 0:
                time.sleep(0.01)
        begin = time.monotonic()
        ranks[1].send_signal(signal.SIGKILL)
        if not hot:
            ranks.append(start(store.port))
        # The newcomer's first step is one that all of the new group have completed.
        lines_until(ranks[-1], lambda words: words[0] != "up")
        return float(lines_until(ranks[0], lambda words: len(words) == 3 and words[1] != "0")[2]) - begin
    finally:
        for process in ranks:
            process.kill()
            process.wait()
            process.stdout.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--torch", action="store_true")
    options = parser.parse_args()
    if options.torch:
        os.environ["BENCH_TORCH"] = "1"
    rows = [(["a hot spare"], lambda: [seconds(True)]), (["a fresh process"], lambda: [seconds(False)])]
    if options.torch:
        import resilient_others
        rows += resilient_others.rows()
    print(f"{'replaced by':<28}{'median s':>10}{'longest s':>11}")
    for names, measure in rows:
        for name, times in zip(names, zip(*(measure() for _ in range(options.rounds)))):
            print(f"{name:<28}{statistics.median(times):>10.3f}{max(times):>11.3f}", flush=True)


if __name__ == "__main__":
    rank() if os.environ.get("BENCH_RANK") else main()
