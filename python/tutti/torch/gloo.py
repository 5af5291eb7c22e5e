"""Gloo's names for tutti's groups: what --replace-gloo does."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

replaced = False


def _create(options: Any, backend_options: Any) -> Any:
    from . import _timeout
    from ._module import backend

    module = backend()
    own = module.ProcessGroupTutti.Options(timeout=_timeout(options))
    own.group_name = options.group_id
    own.global_ranks_in_group = options.global_ranks_in_group or list(range(options.group_size))
    return module.ProcessGroupGloo(options.store, options.group_rank, options.group_size, own)


def replace() -> None:
    """See tutti.torch.replace_gloo."""
    global replaced
    if replaced:
        return
    from ._module import backend

    ours = backend().ProcessGroupGloo
    theirs = getattr(torch._C._distributed_c10d, "ProcessGroupGloo", None)
    # What a program may use of the class besides groups: devices choose gloo's network interface, and mean nothing here.
    for name in ("_Options", "Device", "create_device", "create_default_device"):
        if theirs is not None and hasattr(theirs, name):
            setattr(ours, name, getattr(theirs, name))
    ours.__module__ = "torch.distributed.distributed_c10d"
    for module in (torch._C._distributed_c10d, distributed_c10d, dist):
        module.ProcessGroupGloo = ours
    # The name keeps its type and its devices: PyTorch's own checks for gloo stay true.
    plugins = dist.Backend._plugins
    plugins["GLOO"] = dist.Backend._BackendPlugin(_create, True)
    replaced = True
