"""Several calls, one launch, one Work."""
from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Iterator

from .. import _core
from .._core import Work
from ..errors import DistError
from ._arguments import Group

__all__ = ["CoalescingManager", "coalescing"]


class CoalescingManager:
    """What a coalescing scope gives: wait() waits for all of its calls."""

    def __init__(self) -> None:
        self.works: list[Work] = []

    def wait(self) -> None:
        """Blocks until all calls of the scope are complete."""
        for work in self.works:
            work.wait()


@contextmanager
def coalescing(group: Group = None, device: Any = None, async_ops: bool = False) -> Iterator[CoalescingManager]:
    """Collects this thread's blocking collectives, sends and receives on one group, and launches them together when the
    scope ends.

    All calls read what their arrays held at the end of the scope, before any of them writes; where several write to the
    same memory, the last one's result stays. Nothing is launched when an exception ends the scope. Without `async_ops`
    Ctrl-C at its end ends the group, as that of a blocking call.

    Args:
        group: the ranks that take part; None: the default group.
        device: accepted, ignored.
        async_ops: the end does not wait; CoalescingManager.wait() does.

    Returns:
        A scope, which gives a CoalescingManager.

    Raises:
        What the calls raise, at the scope's end.

    Example:
        >>> with dist.coalescing():
        ...     dist.all_reduce(np.ones(3))
        ...     dist.all_reduce(np.ones(5))
        >>> with dist.coalescing(async_ops=True) as calls:
        ...     dist.all_reduce(np.ones(3))
        >>> calls.wait()
    """
    del device
    manager = CoalescingManager()
    scope = _core.CoalescingScope(group)
    scope.enter()
    try:
        yield manager
    except BaseException:
        scope.drop()
        raise
    work = scope.end()
    if work is not None:
        manager.works.append(work)
    if async_ops:
        return
    try:
        manager.wait()
    except DistError:
        raise
    except BaseException:  # of a signal: nothing may write to the arrays that the caller has back
        scope.abort()
        raise
