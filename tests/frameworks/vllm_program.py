"""vLLM's own communicator over NCCL's interface, PyNcclCommunicator, on libtutti-nccl: every call of it on four ranks whose
tensors lie in host memory.
"""

import contextlib
import types
from importlib.metadata import version

import small
import torch
import torch.distributed as dist

KNOWN = ("vLLM takes CUDA's current device and stream for granted: the program has stand-ins for both, and tensors in host "
         "memory")
RANKS = 4


def rank_of(rank: int, port: int) -> None:
    # What it needs of CUDA: a current device, and a stream, for which the null stream stands.
    torch.cuda.device = lambda _: contextlib.nullcontext()
    from vllm.distributed.device_communicators import pynccl

    null_stream = types.SimpleNamespace(cuda_stream=0, synchronize=lambda: None)
    pynccl.current_stream = lambda: null_stream
    store = dist.TCPStore("127.0.0.1", port, RANKS, rank == 0)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=RANKS)
    nccl = pynccl.PyNcclCommunicator(dist.group.WORLD, "cpu")  # of VLLM_NCCL_SO_PATH
    assert nccl.available and not nccl.disabled

    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int64):
        x = torch.arange(1000, dtype=dtype) % 7 + rank
        expected = sum(torch.arange(1000, dtype=dtype) % 7 + other for other in range(RANKS))
        assert torch.equal(nccl.all_reduce(x), expected), dtype
    one = torch.full((3,), float(rank))
    everybody = torch.empty(3 * RANKS)
    nccl.all_gather(everybody, one)
    assert everybody.tolist() == [float(other) for other in range(RANKS) for _ in range(3)]
    sums = torch.empty(3)
    nccl.reduce_scatter(sums, everybody)
    assert sums.tolist() == [float(RANKS * rank)] * 3
    sizes = [1, 4, 2, 3]
    uneven = torch.empty(sum(sizes))
    nccl.all_gatherv(uneven, torch.full((sizes[rank],), float(rank)), sizes)
    assert uneven.tolist() == [float(other) for other in range(RANKS) for _ in range(sizes[other])]
    part = torch.empty(sizes[rank])
    nccl.reduce_scatterv(part, uneven, sizes)
    assert part.tolist() == [float(RANKS * rank)] * sizes[rank]
    weights = torch.full((5,), float(rank))
    nccl.broadcast(weights, src=2)
    assert weights.tolist() == [2.0] * 5
    mine, came = torch.full((1,), float(rank)), torch.empty(1)
    nccl.group_start()
    nccl.send(mine, (rank + 1) % RANKS)
    nccl.recv(came, (rank - 1) % RANKS)
    nccl.group_end()
    assert came.item() == (rank - 1) % RANKS
    window = nccl.register_comm_window(weights)
    nccl.deregister_comm_window(window)
    if rank == 0:
        print(small.passed(version("vllm"), "all_reduce of 4 types, all_gather(v), reduce_scatter(v), broadcast, send and recv, "
                           f"windows; NCCL {nccl.nccl.ncclGetVersion()} by its name"), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    small.on_processes(rank_of, RANKS, small.free_port())
