"""PyTorch's TCPStore (libuv) as a contender of store_bench: it is driven by lines on standard input.

First it writes one line: {"version": …} or {"why": a sentence}. Then for each line "WORK CLIENTS MILLISECONDS" it runs
the work with that many forked clients and answers {"median_us": …, "ops_per_s": …, "overhead_us": …}. What the same
loop costs around an empty call into torch is measured and taken off the time of each operation.
"""
import datetime
import gc
import json
import mmap
import os
import signal
import statistics
import struct
import sys
import time

WARM_UPS = 50
SETTLE = 500e-6
VALUE_BYTES = 64
now = time.perf_counter_ns  # CLOCK_MONOTONIC, the same in all processes


def say(**fields):
    print(json.dumps(fields), flush=True)


def child(work):
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        work()
        status = 0
    except BaseException as error:  # whatever it is, the parent must hear of it
        print(f"torch_store.py: {error}", file=sys.stderr)
    finally:
        os._exit(status)


class Board:
    """A few numbers of 64 bits that the processes share."""

    def __init__(self, count):
        self.memory = mmap.mmap(-1, 8 * count)

    def __getitem__(self, at):
        return struct.unpack_from("q", self.memory, 8 * at)[0]

    def __setitem__(self, at, value):
        struct.pack_into("q", self.memory, 8 * at, value)


def connect(port, master=False):
    return torch.distributed.TCPStore("127.0.0.1", port, is_master=master, use_libuv=True, wait_for_workers=False,
                                      timeout=datetime.timedelta(seconds=60))


def timed(once, seconds, confirm=lambda: None):
    """confirm: a set is only sent; the time ends when the server has done them all."""
    samples = []
    note = samples.append
    start = before = now()
    end = start + int(seconds * 1e9)
    while before < end:
        once()
        after = now()
        note(after - before)
        before = after
    confirm()
    return samples, start, now()


def client(port, work, number, seconds, ready, go, out):
    store = connect(port)
    key = f"key{number}"
    value = chr(97 + number % 26) * VALUE_BYTES
    store.set(key, value)
    once = {"get": lambda: store.get(key), "set": lambda: store.set(key, value),
            "add": lambda: store.add("sum", 1)}[work]
    for _ in range(WARM_UPS):
        once()
    gc.disable()
    os.write(ready, b"r")
    os.read(go, 1)
    samples, start, end = timed(once, seconds, lambda: store.get(key))
    if store.get(key) != value.encode():
        raise RuntimeError("not the value that was set")
    empty, _, _ = timed(lambda: store.has_extended_api(), 0.003)
    result = {"median": statistics.median(samples), "operations": len(samples), "start": start, "end": end,
              "overhead": statistics.median(empty)}
    os.write(out, (json.dumps(result) + "\n").encode())


def run_clients(port, work, clients, seconds):
    ready, go, out = os.pipe(), os.pipe(), os.pipe()
    children = [child(lambda i=i: client(port, work, i, seconds, ready[1], go[0], out[1])) for i in range(clients)]
    waiting = clients
    while waiting:
        waiting -= len(os.read(ready[0], waiting))
    os.write(go[1], b"g" * clients)
    good = [os.waitpid(pid, 0)[1] == 0 for pid in children]
    for end in (*ready, *go, out[1]):
        os.close(end)
    with os.fdopen(out[0]) as lines:
        results = [json.loads(line) for line in lines]
    if not all(good) or len(results) != clients:
        raise RuntimeError("a client failed")
    overhead = statistics.median(r["overhead"] for r in results)
    operations = sum(r["operations"] for r in results)
    elapsed = max(r["end"] for r in results) - min(r["start"] for r in results)
    own = operations * overhead / min(clients, os.cpu_count())
    return {"median_us": (statistics.median(r["median"] for r in results) - overhead) * 1e-3,
            "ops_per_s": operations * 1e9 / (elapsed - own),
            "overhead_us": overhead * 1e-3}


ARMED, WOKEN, SET_AT, OVER = range(4)


def waiter(port, prefix, board, out):
    store = connect(port)
    samples = []
    current = 0
    while True:
        current += 1
        key = f"{prefix}{current}"
        board[ARMED] = current
        store.wait([key])
        after = now()
        if current > 5:
            samples.append(after - board[SET_AT])
        board[WOKEN] = current
        if board[OVER]:
            break
    os.write(out, (json.dumps(statistics.median(samples)) + "\n").encode())


def setter(port, prefix, board, seconds):
    store = connect(port)
    end = time.monotonic() + seconds
    current = 0
    while not board[OVER]:
        current += 1
        while board[ARMED] < current:
            time.sleep(50e-6)
        time.sleep(SETTLE)
        key = f"{prefix}{current}"
        if time.monotonic() >= end and current > 10:
            board[OVER] = 1
        board[SET_AT] = now()
        store.set(key, "1")
        while board[WOKEN] < current:
            time.sleep(50e-6)


def run_wake(port, prefix, seconds):
    board, out = Board(4), os.pipe()
    children = [child(lambda: waiter(port, prefix, board, out[1])),
                child(lambda: setter(port, prefix, board, seconds))]
    good = [os.waitpid(pid, 0)[1] == 0 for pid in children]
    os.close(out[1])
    with os.fdopen(out[0]) as lines:
        text = lines.read()
    if not all(good):
        raise RuntimeError("a client failed")
    nanoseconds = json.loads(text)
    return {"median_us": nanoseconds * 1e-3, "ops_per_s": 1e9 / nanoseconds, "overhead_us": 0}


def serve(answer):
    store = connect(0, master=True)
    os.write(answer, struct.pack("q", store.port))
    os.close(answer)
    signal.pause()


def main():
    port_of_server = os.pipe()
    server = child(lambda: serve(port_of_server[1]))
    port = struct.unpack("q", os.read(port_of_server[0], 8))[0]
    say(version=torch.__version__)
    try:
        for number, line in enumerate(sys.stdin):
            work, clients, milliseconds = line.split()
            seconds = int(milliseconds) * 1e-3
            if work == "wake":
                say(**run_wake(port, f"wake{number}/", seconds))
            else:
                say(**run_clients(port, work, int(clients), seconds))
    finally:
        os.kill(server, signal.SIGKILL)
        os.waitpid(server, 0)


try:
    import torch
    import torch.distributed
except ImportError as problem:
    say(why=f"torch is left out: {sys.executable} cannot import it ({problem})")
else:
    main()
