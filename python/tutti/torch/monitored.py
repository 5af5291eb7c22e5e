"""torch.distributed.monitored_barrier for groups of tutti's: PyTorch's own lets through no backend but gloo."""

from __future__ import annotations

import functools
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d

_installed = False


def install() -> None:
    """Makes both names of the function serve groups of tutti's too. Once."""
    global _installed
    theirs = distributed_c10d.monitored_barrier
    if _installed:
        return

    @functools.wraps(theirs)
    def monitored_barrier(
        group: Any = None, timeout: timedelta | float | None = None, wait_all_ranks: bool = False
    ) -> None:
        if distributed_c10d._rank_not_in_group(group) or distributed_c10d.get_backend(group) != "tutti":
            return theirs(group, timeout, wait_all_ranks)
        if timeout is None:
            timeout = distributed_c10d._get_default_timeout(distributed_c10d.get_backend(group))
        elif not isinstance(timeout, timedelta):
            timeout = timedelta(seconds=timeout)
        members = distributed_c10d._get_default_group() if group is None else group
        members.monitored_barrier(timeout, wait_all_ranks=wait_all_ranks)

    distributed_c10d.monitored_barrier = monitored_barrier
    dist.monitored_barrier = monitored_barrier
    _installed = True
