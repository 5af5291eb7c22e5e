"""Exchanges of objects that go on while the program does something else.

Those of one group run one after the other on a thread of their own, in a group of the same ranks that nothing else uses:
so their order is that of the calls, and other collectives may come between them.
"""
from __future__ import annotations

import queue
import threading
from datetime import timedelta
from typing import Any, Callable, Generator

from .. import _core
from .. import distributed as _dist
from .._core import ProcessGroup
from ..errors import Timeout
from ..futures import Future

__all__ = ["ObjectWork", "begin"]


class ObjectWork:
    """The handle of such an exchange, with Work's methods. Any thread."""

    def __init__(self, future: Future[list[Any]]) -> None:
        self._future, self._over = future, threading.Event()
        future.add_done_callback(lambda _: self._over.set())

    def is_completed(self) -> bool:
        """Whether it has finished, well or not."""
        return self._future.done()

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Blocks until it has finished; True. Raises what it failed with, and Timeout when a `timeout` other than zero
        passes first; the exchange goes on then. Ctrl-C ends the wait alone."""
        seconds = timeout.total_seconds() if timeout else None
        if not self._over.wait(seconds):
            raise Timeout(f"ObjectWork.wait: the exchange has not finished within {seconds} s")
        self._future.value()
        return True

    def synchronize(self) -> None:
        """The same as wait()."""
        self.wait()

    def is_success(self) -> bool:
        """Whether it has finished without an error."""
        return self.is_completed() and self.exception() is None

    def exception(self) -> BaseException | None:
        """The error, or None."""
        try:
            if self.is_completed():
                self._future.value()
        except Exception as error:
            return error
        return None

    def result(self) -> list[Any]:
        """The list that was filled; raises if the exchange is not finished or has failed."""
        return self._future.value()

    def get_future(self) -> Future[list[Any]]:
        """A future of result()."""
        return self._future

    def __await__(self) -> Generator[Any, None, list[Any]]:
        return self._future.__await__()


class _Lane:
    """A group's exchanges."""

    def __init__(self, group: ProcessGroup) -> None:
        self.group = group.split(0, group.rank(), group_desc="exchanges of objects")
        self.calls: queue.SimpleQueue[tuple[Callable[[ProcessGroup], list[Any]], Future[list[Any]]]] = queue.SimpleQueue()
        threading.Thread(target=self.run, daemon=True, name="tutti-hfai").start()

    def run(self) -> None:
        while True:
            call, future = self.calls.get()
            try:
                future.set_result(call(self.group))
            except BaseException as error:  # noqa: BLE001: handed on
                future.set_exception(error)


_lanes: dict[ProcessGroup, _Lane] = {}
_lock = threading.Lock()


def begin(group: Any, call: Callable[[ProcessGroup], list[Any]]) -> ObjectWork | None:
    """Begins call(group of the same ranks); None where this rank is not in `group`. The first one of a group returns when
    all of its ranks have begun it."""
    if _dist.get_rank(group) < 0:
        return None
    known: ProcessGroup = group if isinstance(group, ProcessGroup) else (
        _core.default_group() if group is None else group.get_group())
    with _lock:
        lane = _lanes.get(known)
        if lane is None:
            lane = _lanes[known] = _Lane(known)
    future: Future[list[Any]] = Future()
    lane.calls.put((call, future))
    return ObjectWork(future)
