"""torchft: two replica groups of one rank each, whose gradients torchft's Manager averages. Started without torchrun."""

import multiprocessing
import os
import sys
from datetime import timedelta

import small
import torch
import torch.distributed as dist
from torch import nn


def replica(index: int, lighthouse: str, said) -> None:
    import logging

    logging.disable(logging.INFO)
    torch.set_num_threads(1)
    os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", TORCHFT_LIGHTHOUSE=lighthouse)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    os.environ["MASTER_PORT"] = str(store.port)
    import torchft

    if small.BY_NAME:
        # lines
        import tutti.torch
        from torch.distributed import ProcessGroup

        class ProcessGroupTutti(torchft.ProcessGroupGloo):
            def _create_pg(self, store, rank, world_size):
                group = ProcessGroup(store, rank, world_size)
                group._set_default_backend(ProcessGroup.BackendType.CUSTOM)
                backend = tutti.torch.ProcessGroupTutti(store, rank, world_size, self._timeout)
                group._register_backend(torch.device("cpu"), ProcessGroup.BackendType.CUSTOM, backend)
                return group

        group = ProcessGroupTutti(timeout=timedelta(seconds=30))
        # end
    else:
        group = torchft.ProcessGroupGloo(timeout=timedelta(seconds=30))
    net = small.model()
    manager = torchft.Manager(pg=group, min_replica_size=2, replica_id=f"replica_{index}", store_addr="127.0.0.1",
                              store_port=store.port, rank=0, world_size=1, load_state_dict=net.load_state_dict,
                              state_dict=net.state_dict, timeout=timedelta(seconds=60))
    ddp = torchft.DistributedDataParallel(manager, net)
    optimizer = torchft.Optimizer(manager, torch.optim.SGD(net.parameters(), lr=0.1))
    losses, step = [], 0
    while manager.current_step() < small.STEPS:
        x, y = small.batch(index, step)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(ddp(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        step += 1
    assert manager.num_participants() == 2, manager.num_participants()
    backend = group._pg._get_backend(torch.device("cpu"))
    said.put((index, small.outcome(losses, net.parameters(), backend)))
    manager.shutdown(wait=False)


def main() -> int:
    from torchft.coordination import LighthouseServer

    lighthouse = LighthouseServer(bind="127.0.0.1:0", min_replicas=2, join_timeout_ms=20000)
    context = multiprocessing.get_context("spawn")
    said = context.Queue()
    replicas = [context.Process(target=replica, args=(index, lighthouse.address(), said), daemon=True) for index in range(2)]
    for process in replicas:
        process.start()
    said_by = dict(said.get(timeout=150) for _ in replicas)
    for process in replicas:
        process.join(timeout=30)
        if process.is_alive():
            process.kill()
    lighthouse.shutdown()
    print(said_by[0], flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
