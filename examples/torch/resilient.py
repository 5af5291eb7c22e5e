#!/usr/bin/env python3
"""A PyTorch training that outlives its ranks, with DistributedDataParallel or with fully_shard (FSDP2).

    tutti run -n 4 --spares 1 examples/torch/resilient.py ddp --kill 50
    tutti run -n 4 --spares 1 examples/torch/resilient.py fsdp2 --kill 50

Rank 1 is killed in step 50, the spare takes its place, and the line at the end is that of a run without --kill: the losses and
the weights are the same, bit for bit. It needs libtutti and tutti.torch.
"""

import argparse
import hashlib
import os
import signal

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import tutti.torch

parser = argparse.ArgumentParser()
parser.add_argument("kind", choices=["ddp", "fsdp2"])
parser.add_argument("--steps", type=int, default=120)
parser.add_argument("--kill", type=int, default=-1, metavar="STEP", help="rank 1 is killed in this step")
options = parser.parse_args()

torch.set_num_threads(1)
os.environ["TUTTI_DETERMINISM"] = "run_to_run"  # whatever a new group measures, it chooses the same algorithms
losses = torch.zeros(options.steps)


def make() -> "tuple[nn.Module, torch.optim.Optimizer]":
    torch.manual_seed(0)  # in a new group the values are replaced
    model = nn.Sequential(nn.Linear(2, 33), nn.Tanh(), nn.Linear(33, 1))
    model = DistributedDataParallel(model) if options.kind == "ddp" else fully_shard(model)
    return model, torch.optim.Adam(model.parameters(), lr=0.01)


@tutti.torch.resilient(make, steps=options.steps, state=[losses])
def train(r, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    rank = dist.get_rank()
    if r.step == options.kill and rank == 1 and "TUTTI_NEWCOMER" not in os.environ:
        os.kill(os.getpid(), signal.SIGKILL)
    generator = torch.Generator().manual_seed(r.step * 1000 + rank)  # random numbers follow from the step
    points = torch.rand(64, 2, generator=generator) * 2 - 1
    loss = nn.functional.mse_loss(model(points), points.prod(dim=1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    mean = loss.detach().reshape(1)
    dist.all_reduce(mean, op=dist.ReduceOp.AVG)
    losses[r.step] = mean[0]


model, optimizer = train()
weights = [getattr(p, "full_tensor", lambda p=p: p)().detach().numpy().tobytes() for p in model.parameters()]
if dist.get_rank() == 0:
    print(f"{dist.get_world_size()} ranks, last loss {losses[-1]:.9f}, losses and weights "
          f"{hashlib.sha256(losses.numpy().tobytes() + b''.join(weights)).hexdigest()[:16]}")
dist.destroy_process_group()
