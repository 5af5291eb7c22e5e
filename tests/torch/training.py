"""Small trainings, one for each way that PyTorch trains on several ranks. Each returns numbers that must not depend on the
backend. Under torchrun, or with RANK and the rest in the environment:

    torchrun --standalone --nproc-per-node 2 training.py ddp           # the backend: tutti, or TUTTI_TEST_BACKEND
"""

from __future__ import annotations

import os
import sys
import tempfile

import torch
import torch.distributed as dist
from torch import nn

STEPS = 4


def model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))


def batch(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(8, 16, generator=generator), torch.randn(8, 4, generator=generator)


def train(net: nn.Module, optimizer: torch.optim.Optimizer, rank: int, steps: int = STEPS) -> list[float]:
    losses = []
    for step in range(steps):
        x, y = batch(rank, step)
        loss = nn.functional.mse_loss(net(x).float(), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def total(parameters) -> float:
    return sum(float(p.detach().double().abs().sum()) for p in parameters)


def ddp(rank: int, n: int) -> list[float]:
    from torch.nn.parallel import DistributedDataParallel as DDP

    numbers = []
    for options in ({}, {"static_graph": True}, {"find_unused_parameters": True}, {"gradient_as_bucket_view": True}):
        net = DDP(model(), bucket_cap_mb=0.002, **options)
        numbers += train(net, torch.optim.SGD(net.parameters(), lr=0.1), rank)
        numbers.append(total(net.parameters()))
    return numbers


def ddp_hooks(rank: int, n: int) -> list[float]:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    from torch.nn.parallel import DistributedDataParallel as DDP

    numbers = []
    for hook in (default_hooks.allreduce_hook, default_hooks.fp16_compress_hook):
        net = DDP(model())
        net.register_comm_hook(None, hook)
        numbers += train(net, torch.optim.SGD(net.parameters(), lr=0.1), rank)
    return numbers


def power_sgd(rank: int, n: int) -> list[float]:
    """Its hook waits for a future inside a continuation. Not compared with gloo's, which may abort the process then."""
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
    from torch.nn.parallel import DistributedDataParallel as DDP

    net = DDP(model())
    net.register_comm_hook(powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2), powerSGD_hook.powerSGD_hook)
    train(net, torch.optim.SGD(net.parameters(), lr=0.1), rank)
    return [total(net.parameters())]


def ddp_unused(rank: int, n: int) -> list[float]:
    """Each rank leaves out another layer."""
    from torch.nn.parallel import DistributedDataParallel as DDP

    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(2)
            self.branches = nn.ModuleList([nn.Linear(16, 4) for _ in range(n + 1)])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.branches[rank](x)

    net = DDP(Branches(), find_unused_parameters=True)
    return train(net, torch.optim.SGD(net.parameters(), lr=0.1), rank) + [total(net.parameters())]


def ddp_bf16(rank: int, n: int) -> list[float]:
    from torch.nn.parallel import DistributedDataParallel as DDP

    net = DDP(model().bfloat16())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(STEPS):
        x, y = batch(rank, step)
        optimizer.zero_grad()
        nn.functional.mse_loss(net(x.bfloat16()), y.bfloat16()).backward()
        optimizer.step()
    return [round(total(net.parameters()), 1)]


def join(rank: int, n: int) -> list[float]:
    """Ranks have different numbers of batches."""
    from torch.distributed.algorithms.join import Join
    from torch.nn.parallel import DistributedDataParallel as DDP

    net = DDP(model())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with Join([net]):
        numbers = train(net, optimizer, rank, STEPS + rank)
    return numbers + [total(net.parameters())]


def zero(rank: int, n: int) -> list[float]:
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.nn.parallel import DistributedDataParallel as DDP

    net = DDP(model())
    optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam, lr=0.01)
    numbers = train(net, optimizer, rank)
    optimizer.consolidate_state_dict(0)
    return numbers + [total(net.parameters())]


def fsdp2(rank: int, n: int) -> list[float]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    numbers = []
    meshes = [init_device_mesh("cpu", (n,))]
    if n == 4:  # sharded in pairs, replicated between them
        meshes.append(init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard")))
    for mesh in meshes:
        for policy in (MixedPrecisionPolicy(), MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)):
            net = model()
            for layer in net:
                if isinstance(layer, nn.Linear):
                    fully_shard(layer, mesh=mesh, mp_policy=policy)
            fully_shard(net, mesh=mesh, mp_policy=policy)
            numbers += train(net, torch.optim.AdamW(net.parameters(), lr=0.01), rank)
            norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            numbers.append(float(norm.full_tensor()))
            numbers.append(total(p.full_tensor() for p in net.parameters()))
    return numbers


def dtensor(rank: int, n: int) -> list[float]:
    """Tensor and sequence parallelism."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module

    mesh = init_device_mesh("cpu", (n,))
    net = model()
    parallelize_module(net, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    numbers = train(net, torch.optim.SGD(net.parameters(), lr=0.1), 0)
    norm = nn.LayerNorm(8)
    parallelize_module(norm, mesh, SequenceParallel())
    out = norm(distribute_tensor(torch.arange(2.0 * 4 * n * 8).reshape(2, 4 * n, 8), mesh, [Shard(1)]))
    numbers.append(float(out.full_tensor().abs().sum()))
    torch.manual_seed(3)
    a, b = torch.randn(8 * n, 6), torch.randn(6, 4)
    product = distribute_tensor(a, mesh, [Shard(0)]) @ distribute_tensor(b, mesh, [Replicate()])
    numbers.append(float((product.redistribute(mesh, [Shard(1)]).full_tensor() - a @ b).abs().max() < 1e-5))
    return numbers


def functional(rank: int, n: int) -> list[float]:
    """Functional collectives, traced by torch.compile."""
    import torch.distributed._functional_collectives as funcol

    def step(x: torch.Tensor) -> torch.Tensor:
        y = funcol.all_reduce(x * 2, "sum", dist.group.WORLD)
        z = funcol.all_gather_tensor(y, 0, dist.group.WORLD)
        return funcol.reduce_scatter_tensor(z + 1, "sum", 0, dist.group.WORLD)

    x = torch.arange(8.0) + rank
    plain = step(x)
    compiled = torch.compile(step, backend="aot_eager", fullgraph=True)(x)
    return [float(plain.sum()), float(compiled.sum())]


def checkpoint(rank: int, n: int) -> list[float]:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    folder = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folder, src=0)
    mesh = init_device_mesh("cpu", (n,))
    net = fully_shard(model(), mesh=mesh)
    train(net, torch.optim.SGD(net.parameters(), lr=0.1), rank)
    dcp.save(net.state_dict(), checkpoint_id=os.path.join(folder[0], "model"))
    other = fully_shard(model(), mesh=mesh)
    state = other.state_dict()
    dcp.load(state, checkpoint_id=os.path.join(folder[0], "model"))
    other.load_state_dict(state)
    equal = all(torch.equal(a.full_tensor(), b.full_tensor()) for a, b in zip(net.parameters(), other.parameters()))
    dist.barrier()
    if rank == 0:
        import shutil

        shutil.rmtree(folder[0])
    return [float(equal), total(p.full_tensor() for p in net.parameters())]


def pipeline(rank: int, n: int) -> list[float]:
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    torch.manual_seed(4)
    layers = [nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(n)]
    stage = PipelineStage(layers[rank], rank, n, torch.device("cpu"))
    schedule = Schedule1F1B(stage, n_microbatches=2 * n, loss_fn=nn.functional.mse_loss)
    torch.manual_seed(5)
    x, y = torch.randn(4 * n, 16), torch.randn(4 * n, 16)
    losses: list[torch.Tensor] = []
    if rank == 0:
        schedule.step(x)
    elif rank == n - 1:
        schedule.step(target=y, losses=losses)
    else:
        schedule.step()
    return [float(sum(losses, torch.zeros(()))), total(p.grad for p in layers[rank].parameters())]


ALL = [ddp, ddp_hooks, ddp_unused, ddp_bf16, join, zero, fsdp2, dtensor, functional, checkpoint, pipeline]
PARTS = ALL + [power_sgd]


def main() -> None:
    backend = os.environ.get("TUTTI_TEST_BACKEND", "tutti")
    dist.init_process_group(backend)
    wanted = sys.argv[1:] or [part.__name__ for part in PARTS]
    for part in PARTS:
        if part.__name__ in wanted:
            numbers = part(dist.get_rank(), dist.get_world_size())
            if dist.get_rank() == 0:
                print(part.__name__, *[f"{number:.6g}" for number in numbers], flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
