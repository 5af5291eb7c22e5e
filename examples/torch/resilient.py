#!/usr/bin/env python3
"""A PyTorch training that outlives its ranks: rank 1 is killed in step 50, a spare takes its place, and the last loss is that of
an undisturbed run, bit for bit.

    python examples/torch/resilient.py

The program starts its four ranks and a spare itself, twice. tutti reduces PyTorch's own tensors, without `tutti.torch`: the
gradients lie in one buffer, so there is one all_reduce a step, and nothing belongs to a group that would have to be made anew.
"""

import multiprocessing
import os
import signal

import torch
from torch import nn

import tutti.distributed as dist

RANKS, STEPS, VICTIM = 4, 120, 1


def train(store: dist.TCPStore, process: int, disturbed: bool) -> "tuple[float, float]":
    torch.set_num_threads(1)
    os.environ["TUTTI_DETERMINISM"] = "run_to_run"  # whatever a new group measures, it chooses the same algorithms
    torch.manual_seed(0)  # a newcomer has the same shapes; the values come from the others
    if process < RANKS:
        dist.init_process_group(store=store, rank=process, world_size=RANKS)
    else:
        dist.set_default_group(dist.join(store))
    model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    parameters = list(model.parameters())
    gradients = torch.zeros(sum(p.numel() for p in parameters))
    for p, part in zip(parameters, gradients.split([p.numel() for p in parameters])):
        p.grad = part.view_as(p)
    optimizer.step()  # with gradients of zero: makes the optimiser's state, changes no weight
    losses = torch.zeros(STEPS)
    moments = [value for p in parameters for value in optimizer.state[p].values()]
    state = [p.detach() for p in parameters] + moments + [losses]

    def step(r: dist.Resilience) -> None:
        if disturbed and process == VICTIM and r.step == 50:
            os.kill(os.getpid(), signal.SIGKILL)
        generator = torch.Generator().manual_seed(r.step * RANKS + r.group.rank())
        points = torch.rand(64, 2, generator=generator) * 2 - 1
        gradients.zero_()
        loss = nn.functional.mse_loss(model(points), points.prod(dim=1, keepdim=True))
        loss.backward()
        mean = loss.detach().reshape(1).clone()
        dist.all_reduce(gradients, op=dist.ReduceOp.AVG, group=r.group)
        dist.all_reduce(mean, op=dist.ReduceOp.AVG, group=r.group)
        optimizer.step()
        losses[r.step] = mean[0]

    dist.resilient(step, state, steps=STEPS, place=store)
    dist.destroy_process_group()
    return float(losses.sum()), float(losses[-1])


def rank(port: "multiprocessing.Queue[int]", results: "multiprocessing.Queue[tuple[float, float]]", process: int,
         disturbed: bool) -> None:
    results.put(train(dist.TCPStore("127.0.0.1", port.get()), process, disturbed))


def run(disturbed: bool) -> "set[tuple[float, float]]":
    context = multiprocessing.get_context("spawn")
    port, results = context.Queue(), context.Queue()
    processes = [context.Process(target=rank, args=(port, results, process, disturbed))
                 for process in range(RANKS + disturbed)]
    for process in processes:
        process.start()
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    for _ in processes:
        port.put(store.port)
    ends = {results.get(timeout=60) for _ in range(RANKS)}
    for process in processes:
        process.join()
    return ends


if __name__ == "__main__":
    undisturbed, disturbed = run(False), run(True)
    if undisturbed != disturbed or len(undisturbed) != 1:
        raise SystemExit(f"the runs differ: {undisturbed}, {disturbed}")
    print(f"last loss of both runs: {undisturbed.pop()[1]:.9f}")
