"""A program as trainers write them: knows gloo alone, and nothing of who started it. Run by launched_test.py.

usage: launched_program.py train | accelerate | accelerate-launcher | backward
"""

import sys

import torch
import torch.distributed as dist


def whose() -> str:
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    return "tutti" if any("tutti" in cls.__module__ for cls in type(backend).__mro__) else "gloo"


def step(net: torch.nn.Module) -> float:
    loss = net(torch.full((2, 4), 1.0 + dist.get_rank())).sum()
    loss.backward()
    return float(sum(parameter.grad.abs().sum() for parameter in net.parameters()))


def train() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
    print(f"rank {dist.get_rank()} of {dist.get_world_size()}: {whose()} {step(net):.4f}\n", end="", flush=True)
    dist.destroy_process_group()


def accelerate() -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    net = accelerator.prepare(torch.nn.Linear(4, 2))
    gathered = accelerator.gather(torch.tensor([accelerator.process_index]))
    assert gathered.tolist() == list(range(accelerator.num_processes))
    print(f"rank {dist.get_rank()} of {dist.get_world_size()}: {whose()} {step(net):.4f}\n", end="", flush=True)
    accelerator.end_training()


def accelerate_launcher() -> None:
    """accelerate's own way to start ranks that have no GPU."""
    from accelerate import debug_launcher

    debug_launcher(accelerate, num_processes=2)


def backward() -> None:
    """An exception in rank 1's backward, after which it ends."""
    dist.init_process_group("gloo")
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
    loss = net(torch.ones(2, 4)).sum()

    def fail(grad: torch.Tensor) -> torch.Tensor:
        raise ValueError("backward of rank 1")

    if dist.get_rank() == 1:
        loss.register_hook(fail)
    try:
        loss.backward()
    except Exception as error:  # noqa: BLE001
        print(f"rank {dist.get_rank()}: {type(error).__name__}: {error}\n", end="", flush=True)
        sys.exit(3)


def from_function(*_: object) -> None:
    train()


if __name__ == "__main__":
    {"train": train, "accelerate": accelerate, "accelerate-launcher": accelerate_launcher, "backward": backward}[sys.argv[1]]()
