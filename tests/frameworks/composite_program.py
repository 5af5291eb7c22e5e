"""What torchtitan composes, in one program: a pipeline of two stages, each sharded by FSDP2 over two ranks whose layers are
shared by two (tensor and sequence parallelism), a clipped gradient, and a checkpoint of DCP that is read again. Eight ranks.
"""

import os
import shutil
import tempfile

import small
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInputOutput, RowwiseParallel, SequenceParallel,
                                               parallelize_module)

if small.BY_NAME:
    # lines
    dist.init_process_group("tutti")
    mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("pp", "dp", "tp"))
    # end
else:
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("pp", "dp", "tp"))
torch.set_num_threads(1)
WIDTH, LENGTH, MICROBATCHES = 16, 4, 4


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def stage_of(seed: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    net = nn.Sequential(Block(), Block())
    for block in net:
        parallelize_module(block, mesh["tp"], {"norm": SequenceParallel(), "up": ColwiseParallel(input_layouts=Shard(1)),
                                               "down": RowwiseParallel(output_layouts=Shard(1))})
        parallelize_module(block, mesh["tp"], PrepareModuleInputOutput(
            input_layouts=Replicate(), desired_input_layouts=Shard(1), use_local_input=True,
            output_layouts=Shard(1), desired_output_layouts=Replicate()))
        fully_shard(block, mesh=mesh["dp"])
    fully_shard(net, mesh=mesh["dp"])
    return net, torch.optim.AdamW(net.parameters(), lr=0.01)


pp, dp = mesh["pp"].get_local_rank(), mesh["dp"].get_local_rank()
net, optimizer = stage_of(1 + pp)
schedule = Schedule1F1B(PipelineStage(net, pp, 2, torch.device("cpu"), group=mesh["pp"].get_group()), MICROBATCHES,
                        loss_fn=nn.functional.mse_loss)
losses = []
for step in range(small.STEPS):
    generator = torch.Generator().manual_seed(100 * step + dp)
    x, y = (torch.randn(8, LENGTH, WIDTH, generator=generator) for _ in range(2))
    optimizer.zero_grad()
    said: list[torch.Tensor] = []
    schedule.step(*([x] if pp == 0 else []), **({"target": y, "losses": said} if pp == 1 else {}))
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    loss = torch.stack(said).mean().detach() if said else torch.zeros(())
    dist.broadcast(loss, group=mesh["pp"].get_group(), group_src=1)
    dist.all_reduce(loss, group=mesh["dp"].get_group())
    losses.append(loss.item())

folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
dist.broadcast_object_list(folder, src=0)
model_state, optimizer_state = get_state_dict(net, optimizer)
dcp.save({f"{pp}.model": model_state, f"{pp}.optimizer": optimizer_state}, checkpoint_id=os.path.join(folder[0], "saved"))
other, other_optimizer = stage_of(3)
model_state, optimizer_state = get_state_dict(other, other_optimizer)
state = {f"{pp}.model": model_state, f"{pp}.optimizer": optimizer_state}
dcp.load(state, checkpoint_id=os.path.join(folder[0], "saved"))
set_state_dict(other, other_optimizer, model_state_dict=state[f"{pp}.model"], optim_state_dict=state[f"{pp}.optimizer"])
whole = []
for mine, saved in zip(other.parameters(), net.parameters()):
    whole.append(saved.full_tensor().detach())
    assert torch.equal(mine.full_tensor(), whole[-1])
stages = [None] * 2
dist.all_gather_object(stages, whole, group=mesh["pp"].get_group())
dist.barrier()
if dist.get_rank() == 0:
    shutil.rmtree(folder[0])
    print(small.outcome(losses, [p for stage in stages for p in stage]), flush=True)
dist.destroy_process_group()
