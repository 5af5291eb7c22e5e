"""DeepSpeed: ZeRO of the stages 1, 2 and 3."""

import os

os.environ["DS_ACCELERATOR"] = "cpu"
os.environ["DS_BUILD_OPS"] = "0"

import deepspeed
import small
import torch
import torch.distributed as dist
from torch import nn

# An operator of its own, for inference on one host, that would be compiled now. Trainings do without.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
if small.BY_NAME:
    # lines
    deepspeed.init_distributed(dist_backend="tutti")
    # end
else:
    deepspeed.init_distributed(dist_backend="gloo")
losses, parameters = [], []
for stage in (1, 2, 3):
    net = small.model()
    config = {"train_micro_batch_size_per_gpu": 8, "zero_optimization": {"stage": stage}, "gradient_clipping": 1.0,
              "zero_allow_untested_optimizer": True}
    engine, *_ = deepspeed.initialize(model=net, optimizer=torch.optim.AdamW(net.parameters(), lr=0.01), config=config)
    for step in range(small.STEPS):
        x, y = small.batch(dist.get_rank(), step)
        loss = nn.functional.mse_loss(engine(x), y)
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    with deepspeed.zero.GatheredParameters(list(net.parameters())):
        parameters += [p.detach().clone() for p in net.parameters()]
if dist.get_rank() == 0:
    print(small.outcome(losses, parameters), flush=True)
dist.destroy_process_group()
