"""The smallest program: tutti run -n 4 python hello.py"""
import asyncio

import numpy as np

import tutti.distributed as dist

dist.init_process_group()  # env://, as tutti run, torchrun, srun and mpirun set it
rank, size = dist.get_rank(), dist.get_world_size()

gradient = np.full(1 << 20, rank, dtype=np.float32)
dist.all_reduce(gradient)  # in place; sum; the same bits on every rank
print(f"rank {rank} of {size}: {gradient[0]:g}")
assert gradient[0] == size * (size - 1) / 2


async def average() -> float:
    x = np.array([float(rank)])
    await dist.all_reduce(x, op=dist.ReduceOp.AVG, async_op=True)
    return float(x[0])


assert asyncio.run(average()) == (size - 1) / 2
dist.destroy_process_group()
