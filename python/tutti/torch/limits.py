"""distributed_c10d._set_pg_timeout for groups of tutti's: PyTorch's own knows no backend but gloo and nccl."""

from __future__ import annotations

import functools
import sys
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import distributed_c10d

_installed = False


def _backends(group: Any) -> set[Any]:
    """One for each device of the group, without the wrapper of TORCH_DISTRIBUTED_DEBUG=DETAIL."""
    found = (group._get_backend(torch.device(device)) for device in group._device_types)
    return {getattr(backend, "wrapped_pg", backend) for backend in found}


def install() -> None:
    """Makes the function serve groups of tutti's too. Once."""
    global _installed
    theirs = distributed_c10d._set_pg_timeout
    if _installed:
        return

    @functools.wraps(theirs)
    def _set_pg_timeout(timeout: timedelta, group: Any = None) -> None:
        module = sys.modules.get("tutti.torch._backend")  # not loaded: no group is ours
        members = distributed_c10d._get_default_group() if group is None else group
        if module is None or not isinstance(members, distributed_c10d.ProcessGroup):
            return theirs(timeout, group)
        backends = _backends(members)
        ours = {backend for backend in backends if isinstance(backend, module.ProcessGroupTutti)}
        for backend in ours:
            backend._set_default_timeout(timeout)
        if ours != backends:
            theirs(timeout, group)

    distributed_c10d._set_pg_timeout = _set_pg_timeout
    _installed = True
