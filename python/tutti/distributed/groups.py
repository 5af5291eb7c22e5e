"""The default group, and groups of some ranks."""
from __future__ import annotations

from datetime import timedelta
from typing import Any

from .. import _core
from .._core import ProcessGroup, Store, is_available, is_initialized, is_torchelastic_launched
from ..errors import ArgumentTypeError, InvalidArgument
from .backends import backend_text
from ._arguments import Group

__all__ = [
    "AllreduceOptions", "GroupMember", "destroy_process_group", "get_backend", "get_global_rank", "get_group_rank",
    "get_process_group_ranks", "get_rank", "get_world_size", "group", "init_process_group", "is_available",
    "is_initialized", "is_torchelastic_launched", "new_group", "new_subgroups", "new_subgroups_by_enumeration",
    "set_default_group", "split_group",
]


class _WorldMeta(type):
    @property
    def WORLD(cls) -> ProcessGroup | None:
        """The default group; None before init_process_group."""
        return _core.default_group() if is_initialized() else None

    @WORLD.setter
    def WORLD(cls, group: ProcessGroup) -> None:
        _core.set_default_group(group)


class group(metaclass=_WorldMeta):
    """group.WORLD: the default group."""


class GroupMember(metaclass=_WorldMeta):
    """GroupMember.WORLD, and what a rank gets that is not in a group."""

    NON_GROUP_MEMBER: ProcessGroup = _core.NON_GROUP_MEMBER


class AllreduceOptions:
    """For ProcessGroup.allreduce(tensors, options)."""

    def __init__(self) -> None:
        self.reduceOp = _core.ReduceOp.SUM
        self.timeout: timedelta | None = None


def init_process_group(backend: str | None = None, init_method: str | None = None, timeout: timedelta | None = None,
                       world_size: int = -1, rank: int = -1, store: Store | None = None, group_name: str = "",
                       pg_options: Any = None, device_id: Any = None, *, transport: str = "automatic",
                       determinism: str = "fast", allow_pickle: bool = False) -> None:
    """Makes the default group; returns when all ranks have joined. From one thread of each process.

    backend      a name, or "cpu:native,cuda:NAME"; None: native for host memory, and for the machine's devices their usual
                 backends (Backend.default_device_backend_map), where these can be used. The same on all ranks.
    init_method  env:// (the default: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT), tcp://host:port, file:///path, with
                 ?rank=R&world_size=N if need be. Not with `store`, which needs `rank` and `world_size`.
    timeout      of every operation that gives none; 30 minutes, or 10 where nccl (rccl, hccl, xccl) does everything.
    group_name   accepted, ignored.
    pg_options   of the backend: for nccl a ProcessGroupNCCL.Options.
    device_id    what this rank works on ("cuda:0", a torch.device); with it, connections to all ranks are made at once.
    transport    automatic, shm or tcp.
    determinism  fast, run_to_run or layout_invariant.
    allow_pickle whether object collectives may pickle what they cannot describe.
    """
    _core.init_process_group(backend_text(backend), init_method or "", timeout, world_size, rank, store, group_name,
                             pg_options, device_id, transport, determinism)
    if allow_pickle:
        _core.default_group().allow_pickle = True


def destroy_process_group(group: Group = None) -> None:
    """Leaves one group, or (None) the default one and with it all others. init_process_group may follow."""
    _core.destroy_process_group(group)


def get_rank(group: Group = None) -> int:
    """This rank in the group; -1: not a member."""
    return _core.get_rank(group)


def get_world_size(group: Group = None) -> int:
    """How many ranks are in the group; -1: not a member."""
    return _core.get_world_size(group)


def get_backend(group: Group = None) -> str:
    """The name of the group's backend, lower case: of the device_id; or else, where the backend was left out, of the
    machine's device; or else of host memory, or the one that there is."""
    return _core.get_backend(group)


def get_group_rank(group: ProcessGroup, global_rank: int) -> int:
    """The rank in `group` of a global rank; an error where it has none."""
    return _core.get_group_rank(group, global_rank)


def get_global_rank(group: ProcessGroup, group_rank: int) -> int:
    """The global rank of a rank in `group`; an error where there is none."""
    return _core.get_global_rank(group, group_rank)


def get_process_group_ranks(group: ProcessGroup | None) -> list[int]:
    """Global ranks, by rank in the group."""
    return _core.get_process_group_ranks(group)


def set_default_group(group: ProcessGroup) -> None:
    """The functions without a `group` mean this one from now on."""
    _core.set_default_group(group)


def new_group(ranks: list[int] | None = None, timeout: timedelta | None = None, backend: str | None = None,
              pg_options: Any = None, use_local_synchronization: bool = False, group_desc: str | None = None,
              device_id: Any = None, *, allow_pickle: bool = False) -> ProcessGroup:
    """A group of some ranks of the world, or of all. All ranks call it, in one order, and get GroupMember.NON_GROUP_MEMBER
    where they are not in it; with `use_local_synchronization` only the members call."""
    made = _core.new_group(ranks, timeout, backend_text(backend), pg_options, use_local_synchronization, group_desc or "",
                           device_id)
    if allow_pickle and not made.is_non_member:
        made.allow_pickle = True
    return made


def new_subgroups(group_size: int | None = None, group: Group = None, timeout: timedelta | None = None,
                  backend: str | None = None, pg_options: Any = None,
                  group_desc: str | None = None) -> tuple[ProcessGroup, list[ProcessGroup]]:
    """Groups of `group_size` neighbours each (default: the ranks of a host); this rank's, and all."""
    del group  # the default group's ranks
    if group_size is None:
        import os

        group_size = int(os.environ.get("LOCAL_WORLD_SIZE", get_world_size()))
    return _core.new_subgroups(group_size, timeout, backend_text(backend), pg_options, group_desc or "")


def new_subgroups_by_enumeration(ranks_per_subgroup_list: list[list[int]], timeout: timedelta | None = None,
                                 backend: str | None = None, pg_options: Any = None,
                                 group_desc: str | None = None) -> tuple[ProcessGroup, list[ProcessGroup]]:
    """A group of each list, in which every rank stands at most once; this rank's, and all."""
    return _core.new_subgroups_by_enumeration(ranks_per_subgroup_list, timeout, backend_text(backend), pg_options,
                                              group_desc or "")


def split_group(parent_pg: ProcessGroup | None = None, split_ranks: list[list[int]] | None = None,
                timeout: timedelta | None = None, pg_options: Any = None,
                group_desc: str | None = None) -> ProcessGroup | None:
    """This rank's group of those lists of ranks of `parent_pg`, all of which call it; None where it is in no list."""
    parent = parent_pg if parent_pg is not None else _core.default_group()
    if not isinstance(parent, ProcessGroup):
        raise ArgumentTypeError(f"split_group: parent_pg is of type {type(parent).__name__}: expected a ProcessGroup or None")
    lists = [] if split_ranks is None else split_ranks
    if not isinstance(lists, (list, tuple)) or not all(isinstance(ranks, (list, tuple)) for ranks in lists):
        raise InvalidArgument(f"split_group: split_ranks is {split_ranks!r:.80}: expected a list of lists of ranks")
    mine = [i for i, ranks in enumerate(lists) if parent.rank() in ranks]
    color = mine[0] if mine else -1
    made = parent.split(color, sorted(lists[color]).index(parent.rank()) if mine else 0, timeout, group_desc or "",
                        pg_options)
    return None if made.is_non_member else made


