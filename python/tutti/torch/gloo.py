"""Gloo's names for tutti's groups: what --replace-gloo does."""

from __future__ import annotations

import functools
import inspect
import threading
from typing import Any, Callable

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

replaced = False
_meant = threading.local()


def meant() -> tuple[str, list[int]]:
    """The name and the members' global ranks of the group that PyTorch is making on this thread: it tells gloo of both
    after the group is made. Empty where a program makes a ProcessGroupGloo itself."""
    group: tuple[str, list[int]] = getattr(_meant, "group", ("", []))
    return group


def _telling(make: Callable[..., Any]) -> Callable[..., Any]:
    """PyTorch's function that makes groups; meant() knows which one as long as it runs."""
    signature = inspect.signature(make)

    @functools.wraps(make)
    def telling(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        members = given.get("global_ranks_in_group") or range(given.get("group_size", 0))
        _meant.group = (str(given.get("group_name") or ""), list(members))
        try:
            return make(*args, **kwargs)
        finally:
            del _meant.group

    return telling


def _create(options: Any, backend_options: Any) -> Any:
    from . import _describe
    from ._module import backend

    module = backend()
    own = module.ProcessGroupTutti.Options()
    _describe(own, options)
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
    distributed_c10d._new_process_group_helper = _telling(distributed_c10d._new_process_group_helper)
    # The name keeps its type and its devices: PyTorch's own checks for gloo stay true.
    plugins = dist.Backend._plugins
    plugins["GLOO"] = dist.Backend._BackendPlugin(_create, True)
    replaced = True
