#!/usr/bin/env python3
"""Two processes share the layers of a model; its collectives are part of the graph that torch.compile makes.

    make torch && PYTHONPATH=build/python torchrun --standalone --nproc-per-node 2 examples/torch/graph.py
"""

import torch
import torch.distributed as dist
from torch import nn

import tutti.graph


class Layer(nn.Module):
    """A matrix of which each rank has some columns, and one of which it has the rows that belong to them: the ranks' results
    add up to what one process would have."""

    def __init__(self, size: int, hidden: int) -> None:
        super().__init__()
        rank, n = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(1)  # all ranks draw the same matrices, and keep their parts
        first, second = torch.randn(hidden, size) / size**0.5, torch.randn(size, hidden) / hidden**0.5
        self.first, self.second = nn.Parameter(first.chunk(n, 0)[rank]), nn.Parameter(second.chunk(n, 1)[rank])
        self.whole = first, second

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x @ self.first.t()) @ self.second.t()
        dist.all_reduce(y)
        return x + y

    def alone(self, x: torch.Tensor) -> torch.Tensor:
        first, second = self.whole
        return x + torch.relu(x @ first.t()) @ second.t()


def main() -> None:
    dist.init_process_group("tutti")
    tutti.graph.patch_for_hcom()
    model = nn.Sequential(Layer(16, 64), Layer(16, 64))
    graphs = 0

    def counted(graph, inputs):
        nonlocal graphs
        graphs += 1
        return tutti.graph.get_backend(tutti.graph.CompilerConfig())(graph, inputs)

    compiled = torch.compile(model, backend=counted, fullgraph=True)
    with torch.no_grad():
        for batch in (8, 8, 8):
            x = torch.randn(batch, 16, generator=torch.Generator().manual_seed(batch))
            found, expected = compiled(x), model[1].alone(model[0].alone(x))
            assert torch.allclose(found, expected, atol=1e-5), (found - expected).abs().max()
    if dist.get_rank() == 0:
        print(f"two layers, {graphs} graph: the ranks together have what one process has")
    assert graphs == 1
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
