"""torch.distributed.checkpoint: a model of fully_shard is saved, also in the background, and read again."""

import os
import shutil
import tempfile

import small
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

if small.BY_NAME:
    # lines
    dist.init_process_group("tutti")
    # end
else:
    dist.init_process_group("gloo")
folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
dist.broadcast_object_list(folder, src=0)
mesh = init_device_mesh("cpu", (2,))
net = fully_shard(small.model(), mesh=mesh)
losses = small.train(net, torch.optim.AdamW(net.parameters(), lr=0.01), dist.get_rank(), lambda loss: loss.backward())
dcp.save(net.state_dict(), checkpoint_id=os.path.join(folder[0], "now"))
dcp.async_save(net.state_dict(), checkpoint_id=os.path.join(folder[0], "later")).result(timeout=60)
for name in ("now", "later"):
    other = fully_shard(small.model(), mesh=mesh)
    state = other.state_dict()
    dcp.load(state, checkpoint_id=os.path.join(folder[0], name))
    other.load_state_dict(state)
    for mine, saved in zip(other.parameters(), net.parameters()):
        assert torch.equal(mine.full_tensor(), saved.full_tensor()), name
whole = [p.full_tensor() for p in net.parameters()]
if dist.get_rank() == 0:
    shutil.rmtree(folder[0])
    print(small.outcome(losses, whole), flush=True)
dist.destroy_process_group()
