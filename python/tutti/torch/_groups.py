"""From a group of torch.distributed to ours."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed import distributed_c10d

from ._module import backend


def members_of(group: Any, function: str) -> Any:
    """The ProcessGroupTutti of a group of torch.distributed; None is the default group. `function` is for messages."""
    chosen = distributed_c10d._get_default_group() if group is None else group
    if chosen is distributed_c10d.GroupMember.NON_GROUP_MEMBER:
        raise ValueError(f"tutti.torch.{function}: this rank is not in the group; expected a group of this rank's")
    members = chosen if isinstance(chosen, backend().ProcessGroupTutti) else chosen._get_backend(torch.device("cpu"))
    members = getattr(members, "wrapped_pg", members)  # TORCH_DISTRIBUTED_DEBUG=DETAIL
    if not isinstance(members, backend().ProcessGroupTutti):
        raise TypeError(f"tutti.torch.{function}: group is of the backend {members.name()!r}; expected one of tutti's")
    return members
