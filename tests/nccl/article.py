"""The program of the article about NCCL's interface, on GPUs, with tutti in place of torch.distributed. Run by tools/test-gpu.

Each rank takes a GPU; its tensors are PyTorch's. Asserts what the article's log shows for four ranks.
"""
import logging
import os

import torch

import tutti.distributed as dist
from tutti.distributed import ReduceOp


def main():
    logging.basicConfig(level=logging.INFO)
    if os.environ.get("GPU_TEST_HOSTS") == "1":  # ranks share a GPU, which this NCCL does not allow within a host
        os.environ["NCCL_HOSTID"] = f"test-host-{os.environ['RANK']}"
    dist.init_process_group("nccl")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", rank)) % torch.cuda.device_count())
    torch.set_default_device("cuda")
    dist.barrier()

    tensor = torch.tensor(rank)
    dist.all_reduce(tensor)
    logging.info("all_reduce, rank: %d, after allreduce tensor: %r", rank, tensor)
    assert tensor.is_cuda and tensor.item() == sum(range(world_size))

    output = torch.empty(1, dtype=torch.int64)
    dist.reduce_scatter(output, [torch.tensor(rank) for _ in range(world_size)], op=ReduceOp.SUM)
    logging.info("reduce_scatter, rank: %d, tensor: %r", rank, output)
    assert output.tolist() == [sum(range(world_size))]

    tensor_list = [torch.zeros(1, dtype=torch.int64) for _ in range(world_size)]
    dist.all_gather(tensor_list, torch.tensor(rank))
    logging.info("allgather, rank: %d, output tensor_list: %r", rank, tensor_list)
    assert [t.item() for t in tensor_list] == list(range(world_size))

    root = torch.tensor(world_size) if rank == 0 else torch.zeros(1, dtype=torch.int64)
    dist.broadcast(root, src=0)
    logging.info("broadcast, rank: %d, after broadcast tensor: %r", rank, root)
    assert root.item() == world_size

    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
