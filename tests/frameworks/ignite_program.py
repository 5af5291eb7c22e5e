"""ignite: a trainer in idist.Parallel, with a metric that is reduced over the ranks."""

import ignite.distributed as idist
import small
import torch
from ignite.engine import Engine
from ignite.metrics import Average
from torch import nn

KNOWN = ("`idist.Parallel(backend=\"tutti\")` and `idist.spawn` know gloo, nccl and mpi only, and `idist.auto_model` puts "
         "`DistributedDataParallel` around a model for these alone: by name a program does both itself")


def training(local_rank: int, prepare=idist.auto_model) -> None:
    net = prepare(small.model())
    optimizer = idist.auto_optim(torch.optim.SGD(net.parameters(), lr=0.1))
    losses = []

    def step(engine, batch):
        x, y = batch
        loss = nn.functional.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(idist.all_reduce(loss.item()))
        return loss.item()

    trainer = Engine(step)
    Average().attach(trainer, "average")
    state = trainer.run(idist.auto_dataloader(small.dataset(), batch_size=16), max_epochs=2)
    idist.barrier()
    assert idist.get_world_size() == 2, idist.get_world_size()
    if idist.get_rank() == 0:
        print(small.outcome(losses + [state.metrics["average"]], net.parameters()), flush=True)


if small.BY_NAME:
    # lines
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("tutti")  # idist uses the group that is there
    with idist.Parallel() as parallel:
        parallel.run(training, prepare=DistributedDataParallel)  # instead of idist.auto_model
    # end
    assert "tutti" not in idist.available_backends(), "KNOWN is out of date"
    dist.destroy_process_group()
else:
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(training)
