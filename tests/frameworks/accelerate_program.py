"""accelerate: its own preparation of model, optimizer and data, gradient clipping and gather."""

import small
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import InitProcessGroupKwargs
from torch import nn

KNOWN = ("on CPUs accelerate takes gloo whatever it is told: `InitProcessGroupKwargs(backend=\"tutti\")` is a ValueError; it "
         "uses a group that is there already")

if small.BY_NAME:
    with small.refused(ValueError, "please use gloo"):
        Accelerator(cpu=True, kwargs_handlers=[InitProcessGroupKwargs(backend="tutti")])
    AcceleratorState._reset_state(reset_partial_state=True)
    # lines
    import torch.distributed as dist

    dist.init_process_group("tutti")  # before the first Accelerator
    accelerator = Accelerator(cpu=True)
    # end
else:
    accelerator = Accelerator(cpu=True)
net = small.model()
loader = torch.utils.data.DataLoader(small.dataset(), batch_size=8)
net, optimizer, loader = accelerator.prepare(net, torch.optim.AdamW(net.parameters(), lr=0.01), loader)
losses = []
for x, y in loader:
    with accelerator.accumulate(net):
        loss = nn.functional.mse_loss(net(x), y)
        optimizer.zero_grad()
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        losses += accelerator.gather(loss.detach()).tolist()
assert accelerator.num_processes == 2, accelerator.num_processes
if accelerator.is_main_process:
    print(small.outcome(losses, net.parameters()), flush=True)
# A gloo that lives until the interpreter's end aborts in some runs.
net, optimizer, loader = accelerator.free_memory(net, optimizer, loader)
accelerator.end_training()
