"""Collectives of Python objects. All block. Objects travel without pickle and arrive as what they were: tutti.objects
lists the types. `allow_pickle` (default: the group's, which init_process_group and new_group set) opens pickle for the
rest, with a PickleWarning. An object that cannot be sent is an ObjectError that names the place, on the rank that sends
it and on those that receive it; nobody waits, and the group stays usable. `timeout`: of the whole call; None or zero is
the group's. `device` may be one that the group serves; the bytes travel in host memory whatever it is, also in a group that
serves only a device. Other errors and threads: as in collectives.py.
"""
from __future__ import annotations

from datetime import timedelta
from typing import Any

from .. import _core
from ._arguments import Group

__all__ = ["all_gather_object", "broadcast_object_list", "gather_object", "recv_object_list", "scatter_object_list",
           "send_object_list"]


def send_object_list(object_list: list[Any], dst: int | None = None, group: Group = None, device: Any = None,
                     group_dst: int | None = None, *, allow_pickle: bool | None = None,
                     timeout: timedelta | None = None) -> None:
    """Sends a list; the receiver's must have the same length.

    Args:
        object_list: the objects that this rank sends.
        dst: global rank of the receiver. Exactly one of `dst` and `group_dst`.
        group: the ranks that take part; None: the default group.
        device: accepted; the bytes travel in host memory.
        group_dst: its rank in the group, instead of `dst`.
        allow_pickle: whether to pickle what cannot be described; None: as the group does.
        timeout: of the whole call; None or zero: the group's.

    Raises:
        ObjectError: an object cannot be sent, or what came is none; it names the place, and the group stays usable.
        CollectiveMismatch, PeerLost, Timeout, Aborted: the group is unusable afterwards.

    Example:
        >>> if dist.get_world_size() > 1 and dist.get_rank() == 0:
        ...     dist.send_object_list(["text", {"loss": 0.5}], dst=1)
    """
    _core.send_object_list(object_list, dst, group, device, group_dst, allow_pickle, timeout)


def recv_object_list(object_list: list[Any], src: int | None = None, group: Group = None, device: Any = None,
                     group_src: int | None = None, *, allow_pickle: bool | None = None,
                     timeout: timedelta | None = None) -> int:
    """Receives into a list.

    Args:
        object_list: as long as the sender's; its entries are overwritten.
        src: global rank of the sender; None, and no `group_src`: any.
        group: the ranks that take part; None: the default group.
        device: accepted; the bytes travel in host memory.
        group_src: its rank in the group, instead of `src`.
        allow_pickle: whether to pickle what cannot be described; None: as the group does.
        timeout: of the whole call; None or zero: the group's.

    Returns:
        The global rank of the sender; -1 outside the group.

    Raises:
        ObjectError: an object cannot be sent, or what came is none; it names the place, and the group stays usable.
        CollectiveMismatch, PeerLost, Timeout, Aborted: the group is unusable afterwards.

    Example:
        >>> if dist.get_world_size() > 1 and dist.get_rank() == 1:
        ...     things = [None, None]
        ...     sender = dist.recv_object_list(things, src=0)
    """
    return _core.recv_object_list(object_list, src, group, device, group_src, allow_pickle, timeout)


def broadcast_object_list(object_list: list[Any], src: int | None = None, group: Group = None, device: Any = None,
                          group_src: int | None = None, *, allow_pickle: bool | None = None,
                          timeout: timedelta | None = None) -> None:
    """Every rank's list becomes the root's.

    Args:
        object_list: on the root the objects that it sends; elsewhere a list of the same length.
        src: global rank of the root. Exactly one of `src` and `group_src`.
        group: the ranks that take part; None: the default group.
        device: accepted; the bytes travel in host memory.
        group_src: the root's rank in the group, instead of `src`.
        allow_pickle: whether to pickle what cannot be described; None: as the group does.
        timeout: of the whole call; None or zero: the group's.

    Raises:
        ObjectError: an object cannot be sent, or what came is none; it names the place, and the group stays usable.
        CollectiveMismatch, PeerLost, Timeout, Aborted: the group is unusable afterwards.

    Example:
        >>> settings = [{"rate": 0.1}] if dist.get_rank() == 0 else [None]
        >>> dist.broadcast_object_list(settings, src=0)
        >>> settings
        [{'rate': 0.1}]
    """
    _core.broadcast_object_list(object_list, src, group, device, group_src, allow_pickle, timeout)


def all_gather_object(object_list: list[Any], obj: Any, group: Group = None, *,
                      allow_pickle: bool | None = None, timeout: timedelta | None = None) -> None:
    """object_list[i] becomes rank i's object.

    Args:
        object_list: a list of size() entries, which are overwritten.
        obj: what this rank gives.
        group: the ranks that take part; None: the default group.
        allow_pickle: whether to pickle what cannot be described; None: as the group does.
        timeout: of the whole call; None or zero: the group's.

    Raises:
        ObjectError: an object cannot be sent, or what came is none; it names the place, and the group stays usable.
        CollectiveMismatch, PeerLost, Timeout, Aborted: the group is unusable afterwards.

    Example:
        >>> reports = [None] * dist.get_world_size()
        >>> dist.all_gather_object(reports, {"rank": dist.get_rank()})
        >>> reports[0]
        {'rank': 0}
    """
    _core.all_gather_object(object_list, obj, group, allow_pickle, timeout)


def gather_object(obj: Any, object_gather_list: list[Any] | None = None, dst: int | None = None, group: Group = None,
                  group_dst: int | None = None, *, allow_pickle: bool | None = None,
                  timeout: timedelta | None = None) -> None:
    """As all_gather_object, on the root alone.

    Args:
        obj: what this rank gives.
        object_gather_list: on the root a list of size() entries; None elsewhere.
        dst: global rank of the root; by default 0.
        group: the ranks that take part; None: the default group.
        group_dst: the root's rank in the group, instead of `dst`.
        allow_pickle: whether to pickle what cannot be described; None: as the group does.
        timeout: of the whole call; None or zero: the group's.

    Raises:
        ObjectError: an object cannot be sent, or what came is none; it names the place, and the group stays usable.
        CollectiveMismatch, PeerLost, Timeout, Aborted: the group is unusable afterwards.

    Example:
        >>> reports = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
        >>> dist.gather_object(("rank", dist.get_rank()), reports, dst=0)
    """
    _core.gather_object(obj, object_gather_list, dst, group, group_dst, allow_pickle, timeout)


def scatter_object_list(scatter_object_output_list: list[Any], scatter_object_input_list: list[Any] | None = None,
                        src: int | None = None, group: Group = None, group_src: int | None = None, *,
                        allow_pickle: bool | None = None, timeout: timedelta | None = None) -> None:
    """The first entry of the output list becomes the root's scatter_object_input_list[rank].

    Args:
        scatter_object_output_list: a list of one entry or more.
        scatter_object_input_list: on the root size() objects; ignored elsewhere.
        src: global rank of the root; by default 0.
        group: the ranks that take part; None: the default group.
        group_src: the root's rank in the group, instead of `src`.
        allow_pickle: whether to pickle what cannot be described; None: as the group does.
        timeout: of the whole call; None or zero: the group's.

    Raises:
        ObjectError: an object cannot be sent, or what came is none; it names the place, and the group stays usable.
        CollectiveMismatch, PeerLost, Timeout, Aborted: the group is unusable afterwards.

    Example:
        >>> mine = [None]
        >>> dist.scatter_object_list(mine, [{"part": i} for i in range(dist.get_world_size())], src=0)
        >>> mine
        [{'part': 0}]
    """
    _core.scatter_object_list(scatter_object_output_list, scatter_object_input_list, src, group, group_src,
                              allow_pickle, timeout)
