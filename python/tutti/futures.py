"""Futures: values that will be there later. Follows torch.futures."""
from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Callable, Generator, Generic, TypeVar, cast

from . import _streams

if TYPE_CHECKING:
    from ._core import Work, WorkResult

__all__ = ["Future", "collect_all", "wait_all"]

T = TypeVar("T")
S = TypeVar("S")
Nothing = Callable[[], object]


class Future(Generic[T]):
    """A value, or an exception, that comes once. Thread-safe.

    A callback runs on the thread that completes the future, or at once on the caller's when it is complete. The futures of
    a Work complete on a thread of tutti's own, one for each group, where callbacks may start further operations and wait
    for them.

    Example:
        >>> work = dist.all_reduce(np.ones(3), async_op=True)
        >>> work.get_future().then(lambda future: float(future.value()[0].sum())).wait()
        3.0
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._done = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Future[T]], object]] = []

    def done(self) -> bool:
        """Whether it is complete, with a value or an exception."""
        return self._done

    def wait(self) -> T:
        """Blocks until done; the value, or the exception is raised. Ctrl-C ends it."""
        with self._changed:
            while not self._done:
                self._changed.wait()
        return self._get()

    def value(self) -> T:
        """The value of a future that is done, or its exception is raised; RuntimeError before."""
        if not self._done:
            raise RuntimeError("Future.value: the future is not done; call wait() first")
        return self._get()

    def then(self, callback: Callable[[Future[T]], S]) -> Future[S]:
        """Calls `callback` with this future when it is done; a future of what it returns or raises."""
        following: Future[S] = Future()

        def run(future: Future[T]) -> None:
            try:
                following.set_result(callback(future))
            except BaseException as error:  # noqa: BLE001: handed on
                following.set_exception(error)

        self._when_done(run)
        return following

    def add_done_callback(self, callback: Callable[[Future[T]], object]) -> None:
        """As then(), for a callback whose result and exceptions are of no interest."""
        self.then(callback)

    def set_result(self, result: T) -> None:
        """Completes it; RuntimeError if it is done."""
        self._complete(result, None)

    def set_exception(self, error: BaseException) -> None:
        """Completes it with an exception; RuntimeError if it is done."""
        self._complete(None, error)

    def __await__(self) -> Generator[Any, None, T]:
        import asyncio

        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()

        def wake(_: object) -> None:
            def settle() -> None:
                if not waiter.done():
                    waiter.set_result(None)
            try:
                loop.call_soon_threadsafe(settle)
            except RuntimeError:  # the loop is closed: nobody waits
                pass

        self._when_done(wake)
        yield from waiter.__await__()
        return self._get()

    def _get(self) -> T:
        if self._error is not None:
            raise self._error
        return cast(T, self._value)

    def _when_done(self, callback: Callable[[Future[T]], object]) -> None:
        with self._changed:
            if not self._done:
                self._callbacks.append(callback)
                return
        callback(self)

    def _complete(self, value: T | None, error: BaseException | None) -> None:
        with self._changed:
            if self._done:
                raise RuntimeError("Future: it is done already")
            self._value, self._error, self._done = value, error, True
            callbacks, self._callbacks = self._callbacks, []
            self._changed.notify_all()
        for callback in callbacks:
            callback(self)


class DeviceFuture(Future[T]):
    """A future of what is computed on a device: done as soon as the device has been told to, where that is so when the
    future is made, else when it has finished.

    wait() makes the current stream of the arrays' library wait for it, not the caller. A callback of then() runs in a
    stream of its own that waits for it; the future of the callback waits for what the callback has put in there.
    """

    def __init__(self, source: Any, let_stream_wait: Nothing = lambda: None) -> None:
        super().__init__()
        self._source, self._let_stream_wait = source, let_stream_wait

    def wait(self) -> T:
        value = super().wait()
        self._let_stream_wait()
        return value

    def __await__(self) -> Generator[Any, None, T]:
        value = yield from super().__await__()
        self._let_stream_wait()
        return value

    def then(self, callback: Callable[[Future[T]], S]) -> Future[S]:
        following: DeviceFuture[S] = DeviceFuture(self._source)

        def run(future: Future[T]) -> None:
            try:
                with _streams.beside(self._source) as end_of_what_is_there:
                    self._let_stream_wait()
                    result = callback(future)
                    following._let_stream_wait = end_of_what_is_there()
                following.set_result(result)
            except BaseException as error:  # noqa: BLE001: handed on
                following.set_exception(error)

        self._when_done(run)
        return following


def collect_all(futures: list[Future[Any]]) -> Future[list[Future[Any]]]:
    """Completes when all of them are done.

    Args:
        futures: a list.

    Returns:
        A future of the list, never of an exception.

    Example:
        >>> futures = [dist.barrier(async_op=True).get_future() for _ in range(2)]
        >>> all(future.done() for future in tutti.futures.collect_all(futures).wait())
        True
    """
    everything: Future[list[Future[Any]]] = Future()
    lock, missing = threading.Lock(), len(futures)
    if missing == 0:
        everything.set_result([])

    def one_more(_: object) -> None:
        nonlocal missing
        with lock:
            missing -= 1
            last = missing == 0
        if last:
            everything.set_result(list(futures))

    for future in futures:
        future._when_done(one_more)
    return everything


def wait_all(futures: list[Future[Any]]) -> list[Any]:
    """Waits for all of them.

    Args:
        futures: a list.

    Returns:
        The values in order.

    Raises:
        The first exception of the list, after all are done.

    Example:
        >>> tutti.futures.wait_all([dist.all_reduce(np.ones(1), async_op=True).get_future()])
        [[array([1.])]]
    """
    collect_all(futures).wait()
    return [future.wait() for future in futures]


def future_of(work: Work) -> Future[list[Any]]:
    """What Work.get_future() returns."""
    def let_stream_wait() -> None:
        if work.exception() is None:
            work.synchronize()

    future: Future[list[Any]] = (
        DeviceFuture(work._stream_source, let_stream_wait) if work._is_on_device else Future())

    def complete() -> None:
        error = work.exception()
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(work.result())

    if work._is_on_device and work.is_completed():  # it is in a stream, which the device will come to
        complete()
    else:
        work._when_complete(complete)
    return future


def future_result_of(work: Work) -> Future[WorkResult]:
    """What Work.get_future_result() returns."""
    future: Future[WorkResult] = Future()
    work._when_complete(lambda: future.set_result(work._how_it_ended()))
    return future


def await_work(work: Work) -> Generator[Any, None, list[Any]]:
    """What `await work` does."""
    return future_of(work).__await__()
