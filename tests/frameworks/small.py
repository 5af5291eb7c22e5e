"""What the programs of this folder have in common: the model, its data, and what a program tells about its run.

Each program trains on two ranks as its framework is used, and prints one line of JSON. With FRAMEWORKS_HOW=name it runs
the lines between `# lines` and `# end`, which docs/frameworks.md shows; otherwise the framework chooses gloo itself, or
what stands in gloo's place.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import pathlib
import sys

import torch
import torch.distributed as dist
from torch import nn

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from ports import free_port  # noqa: E402,F401  (for the programs)

BY_NAME = os.environ.get("FRAMEWORKS_HOW") == "name"
STEPS = 4


def model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))


def batch(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(8, 16, generator=generator), torch.randn(8, 4, generator=generator)


def dataset(length: int = 64) -> torch.utils.data.TensorDataset:
    generator = torch.Generator().manual_seed(7)
    return torch.utils.data.TensorDataset(torch.randn(length, 16, generator=generator),
                                          torch.randn(length, 4, generator=generator))


def whose(backend: object) -> str:
    """Whose code serves a backend: "tutti" or "gloo"."""
    classes = type(getattr(backend, "wrapped_pg", backend)).__mro__
    return "tutti" if any(cls.__name__ == "ProcessGroupTutti" for cls in classes) else "gloo"


def numbers_of(parameters) -> list[str]:
    return [value.hex() for p in parameters for value in p.detach().double().flatten().tolist()]


def outcome(losses: list[float], parameters, backend: object = None) -> str:
    """One line: the losses and all parameters as exact numbers, and whose code the default group was."""
    if backend is None:
        backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    return json.dumps({"code": whose(backend), "losses": [float(loss).hex() for loss in losses],
                       "parameters": numbers_of(parameters)})


def passed(version: str, what: str) -> str:
    """The one line of a program over libtutti-nccl: whose version it was, and what it has checked."""
    return json.dumps({"version": version, "what": what})


def skipped(why: str) -> str:
    """The same of one that cannot run here."""
    return json.dumps({"skipped": why})


def on_processes(rank_of, ranks: int, argument) -> None:
    """Runs rank_of(rank, argument) in that many forked processes; ends with status 1 unless all of them end with 0."""
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=rank_of, args=(rank, argument), daemon=True) for rank in range(ranks)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=120)
    if any(process.exitcode != 0 for process in processes):
        sys.exit(1)


@contextlib.contextmanager
def refused(kind: type[Exception], words: str):
    """Expects that the body fails so. What docs/frameworks.md says that a framework refuses, its program tries."""
    try:
        yield
    except kind as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"expected {kind.__name__} with {words!r}: KNOWN is out of date")


def train(net: nn.Module, optimizer: torch.optim.Optimizer, rank: int, backward) -> list[float]:
    losses = []
    for step in range(STEPS):
        x, y = batch(rank, step)
        loss = nn.functional.mse_loss(net(x), y)
        optimizer.zero_grad()
        backward(loss)
        optimizer.step()
        losses.append(loss.item())
    return losses
