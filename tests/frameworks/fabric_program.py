"""Lightning Fabric: DDP, all_gather, and a broadcast of an object."""

import small
import torch
from lightning.fabric import Fabric
from lightning.fabric.strategies import DDPStrategy

if small.BY_NAME:
    # lines
    fabric = Fabric(accelerator="cpu", devices=2, strategy=DDPStrategy(process_group_backend="tutti"))
    fabric.launch()
    # end
else:
    fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
    fabric.launch()
net = small.model()
net, optimizer = fabric.setup(net, torch.optim.AdamW(net.parameters(), lr=0.01))
losses = small.train(net, optimizer, fabric.global_rank, fabric.backward)
assert fabric.world_size == 2 and fabric.broadcast({"from": fabric.global_rank}) == {"from": 0}
losses = fabric.all_gather(torch.tensor(losses)).flatten().tolist()
if fabric.is_global_zero:
    print(small.outcome(losses, net.parameters()), flush=True)
