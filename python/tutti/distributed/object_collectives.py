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
    """Sends a list; the receiver's must have the same length. Exactly one of `dst` and `group_dst`."""
    _core.send_object_list(object_list, dst, group, device, group_dst, allow_pickle, timeout)


def recv_object_list(object_list: list[Any], src: int | None = None, group: Group = None, device: Any = None,
                     group_src: int | None = None, *, allow_pickle: bool | None = None,
                     timeout: timedelta | None = None) -> int:
    """Receives into a list, from any rank if none is named. The global rank of the sender; -1 outside the group."""
    return _core.recv_object_list(object_list, src, group, device, group_src, allow_pickle, timeout)


def broadcast_object_list(object_list: list[Any], src: int | None = None, group: Group = None, device: Any = None,
                          group_src: int | None = None, *, allow_pickle: bool | None = None,
                          timeout: timedelta | None = None) -> None:
    """Every rank's list becomes the root's; the lengths must be equal. Exactly one of `src` and `group_src`."""
    _core.broadcast_object_list(object_list, src, group, device, group_src, allow_pickle, timeout)


def all_gather_object(object_list: list[Any], obj: Any, group: Group = None, *,
                      allow_pickle: bool | None = None, timeout: timedelta | None = None) -> None:
    """object_list[i] becomes rank i's object; the list has size() entries."""
    _core.all_gather_object(object_list, obj, group, allow_pickle, timeout)


def gather_object(obj: Any, object_gather_list: list[Any] | None = None, dst: int | None = None, group: Group = None,
                  group_dst: int | None = None, *, allow_pickle: bool | None = None,
                  timeout: timedelta | None = None) -> None:
    """As all_gather_object, on the root alone (default: global rank 0); None elsewhere."""
    _core.gather_object(obj, object_gather_list, dst, group, group_dst, allow_pickle, timeout)


def scatter_object_list(scatter_object_output_list: list[Any], scatter_object_input_list: list[Any] | None = None,
                        src: int | None = None, group: Group = None, group_src: int | None = None, *,
                        allow_pickle: bool | None = None, timeout: timedelta | None = None) -> None:
    """The first entry of the output list becomes the root's scatter_object_input_list[rank]; the input list is ignored
    elsewhere. Root: global rank 0 by default."""
    _core.scatter_object_list(scatter_object_output_list, scatter_object_input_list, src, group, group_src,
                              allow_pickle, timeout)
