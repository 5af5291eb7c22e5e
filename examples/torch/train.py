#!/usr/bin/env python3
"""Four processes train one model with DistributedDataParallel over tutti; then all of them have the same weights.

    make torch && PYTHONPATH=build/python torchrun --standalone --nproc-per-node 4 examples/torch/train.py
"""

import torch
import torch.distributed as dist
from torch import nn


def main() -> None:
    dist.init_process_group("tutti")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(rank)  # each rank sees other points of x * y
    for step in range(301):
        points = torch.rand(64, 2, generator=generator) * 2 - 1
        loss = nn.functional.mse_loss(model(points), points.prod(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()  # gradients are averaged over the ranks while others are computed
        optimizer.step()
        if step % 100 == 0:
            mean = loss.detach().clone()
            dist.all_reduce(mean, op=dist.ReduceOp.AVG)
            if rank == 0:
                print(f"step {step}: loss {mean.item():.5f}")
    sums = [None] * dist.get_world_size()
    dist.all_gather_object(sums, sum(float(p.sum()) for p in model.parameters()))
    if rank == 0:
        print("all ranks have the same weights" if len(set(sums)) == 1 else f"the weights differ: {sums}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
