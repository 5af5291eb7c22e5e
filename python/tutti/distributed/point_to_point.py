"""send and recv. `tag` matches a send with its receive; the rest is said in collectives.py."""
from __future__ import annotations

from datetime import timedelta
from typing import Callable

from .. import _core
from .._core import Work
from ..errors import InvalidArgument
from ._arguments import Array, Group

__all__ = ["P2POp", "batch_isend_irecv", "irecv", "isend", "recv", "send"]


def send(tensor: Array, dst: int | None = None, group: Group = None, tag: int = 0, group_dst: int | None = None, *,
         timeout: timedelta | None = None) -> None:
    """Sends to a rank, not to oneself; returns when `tensor` may be written again. InvalidArgument outside the group."""
    _core.send(tensor, dst, group, tag, group_dst, timeout)


def recv(tensor: Array, src: int | None = None, group: Group = None, tag: int = 0, group_src: int | None = None, *,
         timeout: timedelta | None = None) -> int:
    """Receives into `tensor`, from any rank if none is named. The global rank of the sender; -1 outside the group."""
    return _core.recv(tensor, src, group, tag, group_src, timeout)


def isend(tensor: Array, dst: int | None = None, group: Group = None, tag: int = 0,
          group_dst: int | None = None, *, timeout: timedelta | None = None) -> Work | None:
    """Begins a send, also to oneself. `tensor` must not be written until the Work is complete."""
    return _core.isend(tensor, dst, group, tag, group_dst, timeout)


def irecv(tensor: Array, src: int | None = None, group: Group = None, tag: int = 0,
          group_src: int | None = None, *, timeout: timedelta | None = None) -> Work | None:
    """Begins a receive; Work.source_rank() tells the sender's rank in the group."""
    return _core.irecv(tensor, src, group, tag, group_src, timeout)


class P2POp:
    """One operation of a batch: `op` is isend or irecv, `peer` a global rank, `group_peer` one in the group."""

    def __init__(self, op: Callable[..., Work | None], tensor: Array, peer: int | None = None, group: Group = None,
                 tag: int = 0, group_peer: int | None = None) -> None:
        if op is not isend and op is not irecv:
            raise InvalidArgument(f"P2POp: op is {op!r}: expected tutti.distributed.isend or irecv")
        if peer is not None and group_peer is not None:
            raise InvalidArgument("P2POp: both of peer and group_peer: expected one")
        if op is isend and peer is None and group_peer is None:
            raise InvalidArgument("P2POp: none of peer and group_peer: expected one for isend")
        self.op, self.tensor, self.peer, self.group = op, tensor, peer, group
        self.tag, self.group_peer = tag, group_peer

    def __repr__(self) -> str:
        name = "isend" if self.op is isend else "irecv"
        return f"P2POp({name}, peer={self.peer}, group={self.group}, tag={self.tag}, group_peer={self.group_peer})"


def batch_isend_irecv(p2p_op_list: list[P2POp]) -> list[Work]:
    """Begins all operations; a Work for each, in order. Their order must fit that of the other side."""
    if not isinstance(p2p_op_list, (list, tuple)) or not all(isinstance(op, P2POp) for op in p2p_op_list):
        raise InvalidArgument(f"batch_isend_irecv: p2p_op_list is {p2p_op_list!r:.80}: expected a list of P2POp")
    return _core.batch_isend_irecv(
        [(op.op is irecv, op.tensor, op.peer, op.group, op.tag, op.group_peer) for op in p2p_op_list])
