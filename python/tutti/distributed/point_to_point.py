"""send, recv, both at once, and probes. `tag` matches a send with its receive; the rest is said in collectives.py."""
from __future__ import annotations

from datetime import timedelta
from typing import Callable

from .. import _core
from .._core import MatchedMessage, MessageInfo, Work
from ..errors import InvalidArgument
from ._arguments import Array, Group

__all__ = [
    "MatchedMessage", "MessageInfo", "NO_RANK", "P2POp", "batch_isend_irecv", "iprobe", "irecv", "isend", "isendrecv",
    "matched_iprobe", "matched_probe", "probe", "recv", "send", "sendrecv", "sendrecv_replace",
]

NO_RANK = -2
"""As a rank in sendrecv and its relatives: nobody is on this side (MPI.PROC_NULL)."""


def send(tensor: Array, dst: int | None = None, group: Group = None, tag: int = 0, group_dst: int | None = None, *,
         timeout: timedelta | None = None) -> None:
    """Sends to a rank, not to oneself; returns when `tensor` may be written again.

    Args:
        tensor: the values that this rank sends; the receiver's has the same dtype and number of elements.
        dst: global rank of the receiver. Exactly one of `dst` and `group_dst`.
        group: both ranks are in it; None: the default group.
        tag: matches a send with its receive.
        group_dst: its rank in the group, instead of `dst`.
        timeout: of this call; None or zero: the group's.

    Raises:
        InvalidArgument: before anything is sent, and outside of the group.
        PeerLost, Timeout, Aborted: the group is unusable afterwards.

    Example:
        >>> if dist.get_world_size() > 1 and dist.get_rank() == 0:
        ...     dist.send(np.ones(3), dst=1)
    """
    _core.send(tensor, dst, group, tag, group_dst, timeout)


def recv(tensor: Array, src: int | None = None, group: Group = None, tag: int = 0, group_src: int | None = None, *,
         timeout: timedelta | None = None) -> int:
    """Receives into `tensor`.

    Args:
        tensor: receives the values; of the same dtype and number of elements.
        src: global rank of the sender; None, and no `group_src`: any.
        group: both ranks are in it; None: the default group.
        tag: matches a send with its receive.
        group_src: its rank in the group, instead of `src`.
        timeout: of this call; None or zero: the group's.

    Returns:
        The global rank of the sender; -1 outside the group.

    Raises:
        InvalidArgument: before anything is sent, and outside of the group.
        PeerLost, Timeout, Aborted: the group is unusable afterwards.

    Example:
        >>> if dist.get_world_size() > 1 and dist.get_rank() == 1:
        ...     sender = dist.recv(np.empty(3))
    """
    return _core.recv(tensor, src, group, tag, group_src, timeout)


def isend(tensor: Array, dst: int | None = None, group: Group = None, tag: int = 0,
          group_dst: int | None = None, *, timeout: timedelta | None = None) -> Work | None:
    """Begins a send, also to oneself.

    Args:
        tensor: the values that this rank sends; it must not be written until the Work is complete.
        dst: global rank of the receiver. Exactly one of `dst` and `group_dst`.
        group: both ranks are in it; None: the default group.
        tag: matches a send with its receive.
        group_dst: its rank in the group, instead of `dst`.
        timeout: of this call; None or zero: the group's.

    Returns:
        A Work; None outside the group.

    Raises:
        InvalidArgument: before anything is sent, and outside of the group.
        PeerLost, Timeout, Aborted: the group is unusable afterwards.

    Example:
        >>> came = np.empty(3)
        >>> works = [dist.isend(np.ones(3), dst=dist.get_rank()), dist.irecv(came, src=dist.get_rank())]
        >>> all(work.wait() for work in works)
        True
    """
    return _core.isend(tensor, dst, group, tag, group_dst, timeout)


def irecv(tensor: Array, src: int | None = None, group: Group = None, tag: int = 0,
          group_src: int | None = None, *, timeout: timedelta | None = None) -> Work | None:
    """Begins a receive.

    Args:
        tensor: receives the values; it must not be touched until the Work is complete.
        src: global rank of the sender; None, and no `group_src`: any.
        group: both ranks are in it; None: the default group.
        tag: matches a send with its receive.
        group_src: its rank in the group, instead of `src`.
        timeout: of this call; None or zero: the group's.

    Returns:
        A Work, whose source_rank() tells the sender's rank in the group; None outside the group.

    Raises:
        InvalidArgument: before anything is sent, and outside of the group.
        PeerLost, Timeout, Aborted: the group is unusable afterwards.

    Example:
        >>> came, me = np.empty(3), dist.get_rank()
        >>> works = dist.batch_isend_irecv([dist.P2POp(dist.irecv, came, me), dist.P2POp(dist.isend, np.ones(3), me)])
        >>> [work.wait() for work in works]
        [True, True]
    """
    return _core.irecv(tensor, src, group, tag, group_src, timeout)


class P2POp:
    """One operation of a batch_isend_irecv.

    Args:
        op: tutti.distributed.isend or irecv.
        tensor: the values that this rank sends, or the array that receives them.
        peer: global rank of the other side.
        group: both ranks are in it; None: the default group.
        tag: matches a send with its receive.
        group_peer: the other side's rank in the group, instead of `peer`.

    Raises:
        InvalidArgument: for another `op`, for both or none of `peer` and `group_peer` (a receive from any rank names none).

    Example:
        >>> dist.P2POp(dist.isend, np.ones(3), dist.get_rank())
        P2POp(isend, peer=0, group=None, tag=0, group_peer=None)
    """

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
    """Begins all operations. Their order must fit that of the other side.

    Args:
        p2p_op_list: a list of P2POp.

    Returns:
        A Work for each, in order.

    Raises:
        InvalidArgument: for what is no list of P2POp.
        PeerLost, Timeout, Aborted: the group is unusable afterwards.

    Example:
        >>> left, right = (dist.get_rank() - 1) % dist.get_world_size(), (dist.get_rank() + 1) % dist.get_world_size()
        >>> came = np.empty(3)
        >>> ops = [dist.P2POp(dist.isend, np.ones(3), right), dist.P2POp(dist.irecv, came, left)]
        >>> [work.wait() for work in dist.batch_isend_irecv(ops)]
        [True, True]
    """
    if not isinstance(p2p_op_list, (list, tuple)) or not all(isinstance(op, P2POp) for op in p2p_op_list):
        raise InvalidArgument(f"batch_isend_irecv: p2p_op_list is {p2p_op_list!r:.80}: expected a list of P2POp")
    return _core.batch_isend_irecv(
        [(op.op is irecv, op.tensor, op.peer, op.group, op.tag, op.group_peer) for op in p2p_op_list])


def sendrecv(send_tensor: Array | None, dst: int | None = None, recv_tensor: Array | None = None, src: int | None = None,
             group: Group = None, send_tag: int = 0, recv_tag: int = 0, group_dst: int | None = None,
             group_src: int | None = None, *, timeout: timedelta | None = None) -> int:
    """Sends one tensor and receives another at once, so that ranks which exchange in a circle do not wait for each other.

    Both are ordinary messages: send, recv and the others may be on the other side. The tensors may overlap.

    Args:
        send_tensor: the values that this rank sends; None is allowed if `dst` is NO_RANK.
        dst: global rank of the receiver, this rank too, or NO_RANK. Exactly one of `dst` and `group_dst`.
        recv_tensor: receives the values; None is allowed if `src` is NO_RANK.
        src: global rank of the sender, this rank too, or NO_RANK; None, and no `group_src`: any.
        group: all of these ranks are in it; None: the default group.
        send_tag: matches what leaves with its receive.
        recv_tag: matches what comes with its send.
        group_dst: the receiver's rank in the group, instead of `dst`.
        group_src: the sender's rank in the group, instead of `src`.
        timeout: of this call; None or zero: the group's.

    Returns:
        The global rank of the sender; NO_RANK where that is the source.

    Raises:
        InvalidArgument: before anything is sent, and outside of the group.
        CollectiveMismatch, PeerLost, Timeout, Aborted: the group is unusable afterwards.

    Example:
        >>> left, right = (dist.get_rank() - 1) % dist.get_world_size(), (dist.get_rank() + 1) % dist.get_world_size()
        >>> came = np.empty(3)
        >>> dist.sendrecv(np.ones(3), right, came, left) == left
        True
    """
    return _core.sendrecv(send_tensor, dst, recv_tensor, src, group, send_tag, recv_tag, group_dst, group_src, timeout)


def isendrecv(send_tensor: Array | None, dst: int | None = None, recv_tensor: Array | None = None,
              src: int | None = None, group: Group = None, send_tag: int = 0, recv_tag: int = 0,
              group_dst: int | None = None, group_src: int | None = None, *,
              timeout: timedelta | None = None) -> Work | None:
    """sendrecv without waiting: one Work for both sides.

    Args:
        send_tensor: the values that this rank sends; it must not be written until the Work is complete.
        dst: global rank of the receiver, this rank too, or NO_RANK. Exactly one of `dst` and `group_dst`.
        recv_tensor: receives the values; it must not be touched until the Work is complete.
        src: global rank of the sender, this rank too, or NO_RANK; None, and no `group_src`: any.
        group: all of these ranks are in it; None: the default group.
        send_tag: matches what leaves with its receive.
        recv_tag: matches what comes with its send.
        group_dst: the receiver's rank in the group, instead of `dst`.
        group_src: the sender's rank in the group, instead of `src`.
        timeout: of this call; None or zero: the group's.

    Returns:
        A Work, whose source_rank() tells the sender's rank in the group; None outside the group.

    Raises:
        InvalidArgument: before anything is sent.
        CollectiveMismatch, PeerLost, Timeout, Aborted: the group is unusable afterwards.

    Example:
        >>> came, me = np.empty(3), dist.get_rank()
        >>> work = dist.isendrecv(np.ones(3), me, came, me)
        >>> work.wait(), came.tolist()
        (True, [1.0, 1.0, 1.0])
    """
    return _core.isendrecv(send_tensor, dst, recv_tensor, src, group, send_tag, recv_tag, group_dst, group_src, timeout)


def sendrecv_replace(tensor: Array, dst: int | None = None, src: int | None = None, group: Group = None,
                     send_tag: int = 0, recv_tag: int = 0, group_dst: int | None = None, group_src: int | None = None,
                     *, timeout: timedelta | None = None) -> int:
    """sendrecv in one tensor: its values leave, and the sender's take their place.

    A tensor of up to 256 KB is one message. A longer one goes in messages of 256 KB, one after the other, so its two
    peers must call sendrecv_replace too. It takes at most 256 KB of memory beside a contiguous tensor.

    Args:
        tensor: in host memory; of the same dtype and number of elements as those of its peers.
        dst: global rank of the receiver, this rank too, or NO_RANK. Exactly one of `dst` and `group_dst`.
        src: global rank of the sender, this rank too, or NO_RANK; None, and no `group_src`: any.
        group: all of these ranks are in it; None: the default group.
        send_tag: matches what leaves with its receive.
        recv_tag: matches what comes with its send.
        group_dst: the receiver's rank in the group, instead of `dst`.
        group_src: the sender's rank in the group, instead of `src`.
        timeout: of this call; None or zero: the group's.

    Returns:
        The global rank of the sender; NO_RANK where that is the source.

    Raises:
        InvalidArgument: before anything is sent, and outside of the group.
        CollectiveMismatch, PeerLost, Timeout, Aborted: the group is unusable afterwards.

    Example:
        >>> left, right = (dist.get_rank() - 1) % dist.get_world_size(), (dist.get_rank() + 1) % dist.get_world_size()
        >>> values = np.full(3, float(dist.get_rank()))
        >>> sender = dist.sendrecv_replace(values, right, left)
        >>> sender == left, (values == left).all().item()
        (True, True)
    """
    return _core.sendrecv_replace(tensor, dst, src, group, send_tag, recv_tag, group_dst, group_src, timeout)


def probe(src: int | None = None, group: Group = None, tag: int | None = None, group_src: int | None = None, *,
          timeout: timedelta | None = None) -> MessageInfo:
    """Waits for a message that no receive waits for, tells what it is, and leaves it where it is.

    The next receive that it matches finds the same message. Objects (send_object_list) are no messages here.

    Args:
        src: global rank of the sender; None, and no `group_src`: any.
        group: both ranks are in it; None: the default group.
        tag: of the message; None: any.
        group_src: the sender's rank in the group, instead of `src`.
        timeout: of this call; None or zero: the group's.

    Returns:
        What the message is: its sender, tag, dtype and number of elements.

    Raises:
        InvalidArgument: outside of the group, and where a backend of others moves its messages (not gloo, mpi, hf_zmq).
        PeerLost, Timeout, Aborted: the group is unusable afterwards.

    Example:
        >>> me = dist.get_rank()
        >>> work = dist.isend(np.ones(3, np.float32), dst=me, tag=7)
        >>> what = dist.probe(src=me)
        >>> came = np.empty(what.count, what.dtype)
        >>> dist.recv(came, what.source, tag=what.tag) == me, came.tolist()
        (True, [1.0, 1.0, 1.0])
    """
    return _core.probe(src, group, tag, group_src, timeout)


def iprobe(src: int | None = None, group: Group = None, tag: int | None = None,
           group_src: int | None = None) -> MessageInfo | None:
    """probe without waiting.

    Args:
        src: global rank of the sender; None, and no `group_src`: any.
        group: both ranks are in it; None: the default group.
        tag: of the message; None: any.
        group_src: the sender's rank in the group, instead of `src`.

    Returns:
        What the message is; None if no such message has come.

    Raises:
        InvalidArgument: as probe.
        PeerLost: also where a named sender has left and sends nothing more; the group is usable then.
        Timeout, Aborted: the group has failed.

    Example:
        >>> dist.iprobe(tag=12345) is None
        True
    """
    return _core.iprobe(src, group, tag, group_src)


def matched_probe(src: int | None = None, group: Group = None, tag: int | None = None, group_src: int | None = None, *,
                  timeout: timedelta | None = None) -> MatchedMessage:
    """probe, and takes the message out of the sight of all other receives and probes (MPI_Mprobe).

    So of several threads that receive, each gets the message that it has seen.

    Args:
        src: global rank of the sender; None, and no `group_src`: any.
        group: both ranks are in it; None: the default group.
        tag: of the message; None: any.
        group_src: the sender's rank in the group, instead of `src`.
        timeout: of this call; None or zero: the group's.

    Returns:
        The message, which its recv() receives.

    Raises:
        InvalidArgument: as probe.
        PeerLost, Timeout, Aborted: the group is unusable afterwards.

    Example:
        >>> me = dist.get_rank()
        >>> work = dist.isend(np.ones(2), dst=me, tag=7)
        >>> dist.matched_probe(tag=7).recv().tolist()
        [1.0, 1.0]
    """
    return _core.matched_probe(src, group, tag, group_src, timeout)


def matched_iprobe(src: int | None = None, group: Group = None, tag: int | None = None,
                   group_src: int | None = None) -> MatchedMessage | None:
    """matched_probe without waiting.

    Args:
        src: global rank of the sender; None, and no `group_src`: any.
        group: both ranks are in it; None: the default group.
        tag: of the message; None: any.
        group_src: the sender's rank in the group, instead of `src`.

    Returns:
        The message; None if no such message has come.

    Raises:
        InvalidArgument, PeerLost, Timeout, Aborted: as iprobe.

    Example:
        >>> dist.matched_iprobe(tag=12345) is None
        True
    """
    return _core.matched_iprobe(src, group, tag, group_src)
