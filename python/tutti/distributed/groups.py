"""The default group, and groups of some ranks."""
from __future__ import annotations

import os
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


_forked_with_group = 0  # the process that had a default group when it forked last: this one, or the one that forked it


def _note_fork() -> None:
    global _forked_with_group
    _forked_with_group = os.getpid() if is_initialized() else 0


os.register_at_fork(before=_note_fork)  # not in the child, where a lock may be that of a thread that is not there


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

    Args:
        backend: a name, or "cpu:native,cuda:NAME"; None: native for host memory, and for the machine's devices their usual
            backends (Backend.default_device_backend_map), where these can be used. The same on all ranks.
        init_method: env:// (the default: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT), tcp://host:port, file:///path, with
            ?rank=R&world_size=N if need be. Not with `store`.
        timeout: of every operation that gives none; None: 30 minutes, or 10 where nccl (rccl, hccl, xccl) does everything.
        world_size: how many ranks there are; -1: as the environment or `init_method` says.
        rank: this one; -1: as the environment or `init_method` says.
        store: where ranks meet; needs `rank` and `world_size`.
        group_name: accepted, ignored.
        pg_options: of the backend: for nccl a ProcessGroupNCCL.Options.
        device_id: what this rank works on ("cuda:0", a torch.device); with it, connections to all ranks are made at once.
        transport: automatic, shm or tcp.
        determinism: fast, run_to_run or layout_invariant.
        allow_pickle: whether object collectives may pickle what they cannot describe.

    Raises:
        InvalidArgument: there is a default group already, or arguments do not fit each other.
        Timeout, DistNetworkError, DistStoreError: not all ranks came, or they cannot reach each other.
        CollectiveMismatch: the ranks' arguments differ.

    Example:
        >>> dist.destroy_process_group()
        >>> dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    """
    if _forked_with_group not in (0, os.getpid()) and is_initialized():
        raise InvalidArgument(
            f"init_process_group: this process is a fork of process {_forked_with_group}, which has called init_process_group, "
            "and can make no use of its group: call destroy_process_group() there before it forks, or here before "
            "init_process_group(); or start processes by spawn")
    _core.init_process_group(backend_text(backend), init_method or "", timeout, world_size, rank, store, group_name,
                             pg_options, device_id, transport, determinism)
    if allow_pickle:
        _core.default_group().allow_pickle = True


def destroy_process_group(group: Group = None) -> None:
    """Leaves one group, or the default one and with it all others. init_process_group may follow.

    Args:
        group: None: the default group, and all others.

    Example:
        >>> pair = dist.new_group([0])
        >>> dist.destroy_process_group(pair)
    """
    _core.destroy_process_group(group)


def get_rank(group: Group = None) -> int:
    """This rank in the group.

    Args:
        group: None: the default group.

    Returns:
        From 0; -1: not a member.

    Raises:
        InvalidArgument: there is no default group.

    Example:
        >>> dist.get_rank()
        0
    """
    return _core.get_rank(group)


def get_world_size(group: Group = None) -> int:
    """How many ranks are in the group.

    Args:
        group: None: the default group.

    Returns:
        -1: not a member.

    Raises:
        InvalidArgument: there is no default group.

    Example:
        >>> dist.get_world_size()
        1
    """
    return _core.get_world_size(group)


def get_backend(group: Group = None) -> str:
    """The name of the group's backend, lower case.

    Args:
        group: None: the default group.

    Returns:
        That of the device_id; or else, where the backend was left out, of the machine's device; or else of host memory, or
        the one that there is.

    Example:
        >>> dist.get_backend()
        'native'
    """
    return _core.get_backend(group)


def get_group_rank(group: ProcessGroup, global_rank: int) -> int:
    """The rank in `group` of a global rank.

    Args:
        group: a group that this process has.
        global_rank: a rank of the world.

    Returns:
        From 0.

    Raises:
        InvalidArgument: it is not in the group.

    Example:
        >>> dist.get_group_rank(dist.group.WORLD, 0)
        0
    """
    return _core.get_group_rank(group, global_rank)


def get_global_rank(group: ProcessGroup, group_rank: int) -> int:
    """The global rank of a rank in `group`.

    Args:
        group: a group that this process has.
        group_rank: from 0, below the group's size.

    Returns:
        From 0.

    Raises:
        InvalidArgument: the group has no such rank.

    Example:
        >>> dist.get_global_rank(dist.group.WORLD, 0)
        0
    """
    return _core.get_global_rank(group, group_rank)


def get_process_group_ranks(group: ProcessGroup | None) -> list[int]:
    """Global ranks, by rank in the group.

    Args:
        group: None: the default group.

    Returns:
        A list of size() ranks.

    Example:
        >>> dist.get_process_group_ranks(dist.group.WORLD)
        [0]
    """
    return _core.get_process_group_ranks(group)


def join(place: Store, name: str = "newcomers", timeout: timedelta | None = None, *, label: str = "") -> ProcessGroup:
    """Waits until a group takes this process in (`ProcessGroup.grow`), and returns the new group.

    Args:
        place: the store in which newcomers and the group's ranks meet; it has to outlive the ranks.
        name: tells the waiting rooms of several groups in one store apart.
        timeout: how long to wait; None: 30 minutes.
        label: this process, in the log of the rank that takes it in; "": its number and host.

    Returns:
        A group with the name, the timeout and the backend of the one that has grown. `adopt` brings the others' values.

    Raises:
        Timeout: no group took this process in; it waits no longer.
        PeerLost, DistStoreError: the new group could not be made.

    Example:
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> store = dist.HashStore()
        >>> newcomer = ThreadPoolExecutor(1).submit(dist.join, store)
        >>> grown = dist.group.WORLD.grow(store, count=1)
        >>> grown.rank(), newcomer.result().rank(), grown.size()
        (0, 1, 2)
    """
    return _core.join(place, name, timeout, label)


def newcomers_waiting(place: Store, name: str = "newcomers") -> int:
    """How many processes wait there to be taken in. Ranks that decide by it have to share one answer.

    Args:
        place: as of `join`.
        name: as of `join`.

    Example:
        >>> dist.newcomers_waiting(dist.HashStore())
        0
    """
    return _core.newcomers_waiting(place, name)


def set_default_group(group: ProcessGroup) -> None:
    """The functions without a `group` mean this one from now on.

    Args:
        group: a group that this process is in.

    Example:
        >>> dist.set_default_group(dist.group.WORLD)
    """
    _core.set_default_group(group)


def new_group(ranks: list[int] | None = None, timeout: timedelta | None = None, backend: str | None = None,
              pg_options: Any = None, use_local_synchronization: bool = False, group_desc: str | None = None,
              device_id: Any = None, *, allow_pickle: bool = False) -> ProcessGroup:
    """A group of some ranks of the world, or of all. All ranks call it, in one order.

    Args:
        ranks: global ranks; None: all.
        timeout: of operations that give none; None: 30 minutes, or 10 where nccl (rccl, hccl, xccl) does everything.
        backend: a name, or "cpu:native,cuda:NAME"; None: as the default group's.
        pg_options: of the backend: for nccl a ProcessGroupNCCL.Options.
        use_local_synchronization: only the members call.
        group_desc: what the group is for, in messages and records.
        device_id: what this rank works on ("cuda:0", a torch.device); with it, connections are made at once.
        allow_pickle: whether object collectives may pickle what they cannot describe.

    Returns:
        The group; GroupMember.NON_GROUP_MEMBER where this rank is not in it.

    Raises:
        InvalidArgument: for ranks that are not in the world, or named twice, before anything is sent.
        CollectiveMismatch, PeerLost, Timeout: where ranks disagree, or do not come.

    Example:
        >>> evens = dist.new_group(list(range(0, dist.get_world_size(), 2)))
        >>> dist.all_reduce(np.ones(3), group=evens)
    """
    made = _core.new_group(ranks, timeout, backend_text(backend), pg_options, use_local_synchronization, group_desc or "",
                           device_id)
    if allow_pickle and not made.is_non_member:
        made.allow_pickle = True
    return made


def new_subgroups(group_size: int | None = None, group: Group = None, timeout: timedelta | None = None,
                  backend: str | None = None, pg_options: Any = None,
                  group_desc: str | None = None) -> tuple[ProcessGroup, list[ProcessGroup]]:
    """Groups of neighbours. All ranks call it.

    Args:
        group_size: ranks of each; None: the ranks of a host.
        group: accepted, ignored: groups are of the default group's ranks.
        timeout: of operations that give none; None: 30 minutes, or 10 where nccl (rccl, hccl, xccl) does everything.
        backend: a name, or "cpu:native,cuda:NAME"; None: as the default group's.
        pg_options: of the backend: for nccl a ProcessGroupNCCL.Options.
        group_desc: what the group is for, in messages and records.

    Returns:
        This rank's group, and all.

    Raises:
        InvalidArgument: for ranks that are not in the world, or named twice, before anything is sent.
        CollectiveMismatch, PeerLost, Timeout: where ranks disagree, or do not come.

    Example:
        >>> mine, everyone = dist.new_subgroups(group_size=1)
        >>> mine.size(), len(everyone) == dist.get_world_size()
        (1, True)
    """
    del group  # the default group's ranks
    if group_size is None:
        group_size = int(os.environ.get("LOCAL_WORLD_SIZE", get_world_size()))
    return _core.new_subgroups(group_size, timeout, backend_text(backend), pg_options, group_desc or "")


def new_subgroups_by_enumeration(ranks_per_subgroup_list: list[list[int]], timeout: timedelta | None = None,
                                 backend: str | None = None, pg_options: Any = None,
                                 group_desc: str | None = None) -> tuple[ProcessGroup, list[ProcessGroup]]:
    """A group of each list. All ranks call it.

    Args:
        ranks_per_subgroup_list: lists of global ranks, in which every rank stands at most once.
        timeout: of operations that give none; None: 30 minutes, or 10 where nccl (rccl, hccl, xccl) does everything.
        backend: a name, or "cpu:native,cuda:NAME"; None: as the default group's.
        pg_options: of the backend: for nccl a ProcessGroupNCCL.Options.
        group_desc: what the group is for, in messages and records.

    Returns:
        This rank's group, and all.

    Raises:
        InvalidArgument: for ranks that are not in the world, or named twice, before anything is sent.
        CollectiveMismatch, PeerLost, Timeout: where ranks disagree, or do not come.

    Example:
        >>> mine, everyone = dist.new_subgroups_by_enumeration([[0]])
        >>> mine.ranks
        [0]
    """
    return _core.new_subgroups_by_enumeration(ranks_per_subgroup_list, timeout, backend_text(backend), pg_options,
                                              group_desc or "")


def split_group(parent_pg: ProcessGroup | None = None, split_ranks: list[list[int]] | None = None,
                timeout: timedelta | None = None, pg_options: Any = None,
                group_desc: str | None = None) -> ProcessGroup | None:
    """This rank's group of lists of ranks of a group, all of which call it.

    Args:
        parent_pg: None: the default group.
        split_ranks: lists of ranks in `parent_pg`.
        timeout: of operations that give none; None: 30 minutes, or 10 where nccl (rccl, hccl, xccl) does everything.
        pg_options: of the backend: for nccl a ProcessGroupNCCL.Options.
        group_desc: what the group is for, in messages and records.

    Returns:
        The group; None where this rank is in no list.

    Raises:
        InvalidArgument: for ranks that are not in the world, or named twice, before anything is sent.
        CollectiveMismatch, PeerLost, Timeout: where ranks disagree, or do not come.

    Example:
        >>> half = dist.split_group(split_ranks=[[0]])
        >>> half.size()
        1
    """
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


