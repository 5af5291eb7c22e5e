"""PyTorch's gloo as a contender of init_bench: for each line "RANKS ADDRESS PORT [NAMESPACE...]" it forks that many ranks,
equally many in each network namespace, lets them go at once, and answers {"init_ms": …, "all_ms": …}: when the last one
left init_process_group, and the barrier."""
import ctypes
import json
import os
import struct
import sys
import time


def say(**fields):
    print(json.dumps(fields), flush=True)


CLONE_NEWNET = 0x40000000


def enter(namespace):
    with open(f"/var/run/netns/{namespace}", "rb") as there:
        if ctypes.CDLL(None, use_errno=True).setns(there.fileno(), CLONE_NEWNET) != 0:  # os.setns: Python 3.12
            raise OSError(ctypes.get_errno(), f"cannot enter the network namespace {namespace}")
    os.environ["GLOO_SOCKET_IFNAME"] = "eth0"


def rank_main(rank, ranks, address, port, namespaces, ready, go, out):
    if namespaces:
        enter(namespaces[rank * len(namespaces) // ranks])
    os.write(ready, b"r")
    os.read(go, 1)
    torch.distributed.init_process_group("gloo", init_method=f"tcp://{address}:{port}", rank=rank, world_size=ranks)
    init = time.monotonic_ns()
    torch.distributed.barrier()
    os.write(out, struct.pack("qq", init, time.monotonic_ns()))
    torch.distributed.destroy_process_group()


def run(ranks, address, port, *namespaces):
    ready, go, out = os.pipe(), os.pipe(), os.pipe()
    children = []
    for rank in range(ranks):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                rank_main(rank, ranks, address, port, namespaces, ready[1], go[0], out[1])
                status = 0
            except BaseException as error:  # whatever it is, the parent must hear of it
                print(f"torch_init.py: {error}", file=sys.stderr)
            finally:
                os._exit(status)
        children.append(pid)
    waiting = ranks
    while waiting:
        waiting -= len(os.read(ready[0], waiting))
    time.sleep(0.02)
    start = time.monotonic_ns()
    os.write(go[1], b"g" * ranks)
    good = [os.waitpid(pid, 0)[1] == 0 for pid in children]
    os.close(out[1])
    with os.fdopen(out[0], "rb") as stream:
        times = list(struct.iter_unpack("qq", stream.read()))
    for end in (*ready, *go):
        os.close(end)
    if not all(good) or len(times) != ranks:
        raise RuntimeError("a rank failed")
    say(init_ms=(max(t[0] for t in times) - start) * 1e-6, all_ms=(max(t[1] for t in times) - start) * 1e-6)


try:
    import torch
    import torch.distributed
except ImportError as problem:
    say(why=f"gloo is left out: {sys.executable} cannot import torch ({problem})")
else:
    say(version=torch.__version__)
    for line in sys.stdin:
        ranks, *rest = line.split()
        run(int(ranks), *rest)
