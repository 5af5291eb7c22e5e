#!/usr/bin/env python3
"""Data-parallel training of a small model, without torch.compile and with it: equal weights in the end. Gradients are
averaged inside of the step, so its communication is part of the compiled graph; this prints what became of it.

    make torch && PYTHONPATH=build/python torchrun --standalone --nproc-per-node 2 examples/torch/compiled.py
"""

import torch
import torch.distributed as dist
from torch import nn

import tutti.graph

STEPS, RATE = 20, 0.1


def make_model() -> nn.Module:
    torch.manual_seed(1)  # all ranks begin with the same weights
    return nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))


def step(gradients: list[torch.Tensor], weights: list[torch.Tensor], loss: torch.Tensor) -> torch.Tensor:
    """Averages gradients and loss over the ranks, one call after the other, as a program writes it; then descends, by less
    where a gradient is large. The broadcast, of what all ranks have, is one that no replay makes."""
    for gradient in gradients:
        dist.all_reduce(gradient, op=dist.ReduceOp.AVG)
    largest = torch.stack([gradient.abs().max() for gradient in gradients]).max()
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    dist.broadcast(largest, 0)
    dist.all_reduce(loss, op=dist.ReduceOp.AVG)
    scale = 1 / torch.clamp(largest, min=1)
    for weight, gradient in zip(weights, gradients):
        weight.sub_(gradient * (RATE * scale))
    return loss


def train(make_step) -> tuple[list[torch.Tensor], float]:
    model, rank = make_model(), dist.get_rank()
    weights = list(model.parameters())
    data = torch.Generator().manual_seed(rank)  # each rank has its own
    descend, loss = make_step(step), torch.zeros(())
    for _ in range(STEPS):
        x = torch.randn(32, 4, generator=data)
        error = (model(x).squeeze(1) - torch.sin(x.sum(1))).square().mean()
        gradients = list(torch.autograd.grad(error, weights))
        with torch.no_grad():
            loss = descend(gradients, [weight.detach() for weight in weights], error.detach().clone())
    return [weight.detach().clone() for weight in weights], loss.item()


def main() -> None:
    dist.init_process_group("tutti")
    tutti.graph.patch_for_hcom()
    eager, eager_loss = train(lambda function: function)
    backend = tutti.graph.get_backend(tutti.graph.CompilerConfig())
    compiled, compiled_loss = train(lambda function: torch.compile(function, backend=backend, fullgraph=True))
    for one, other in zip(eager, compiled):
        torch.testing.assert_close(one, other)
    if dist.get_rank() == 0:
        print(f"{STEPS} steps, loss {eager_loss:.4f} without a compiler and {compiled_loss:.4f} with it: equal weights")
        print(tutti.graph.explain(), end="")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
