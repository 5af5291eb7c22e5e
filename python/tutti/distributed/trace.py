"""Looking at what a program's groups do: hooks around operations, counters, dumps of the flight recorder.

The recorder is always on. TUTTI_TRACE_DIR makes every process of a job write it to a folder when a group fails or ends,
and on SIGUSR2; `tutti trace FOLDER` reads it; TUTTI_TRACE_FORMAT=torch adds files for PyTorch's torchfrtrace. TUTTI_METRICS_FILE makes a process write its counters every second. The
functions here do the same from a program. Threads: any.
"""
from __future__ import annotations

from contextlib import contextmanager
from typing import Callable, Iterator

from .. import _core
from .._core import GroupCounters, dump_flight_recorder, dump_trace, prometheus_text
from ._arguments import Group

__all__ = ["GroupCounters", "dump_flight_recorder", "dump_trace", "group_counters", "operation_hooks", "prometheus_text"]


def group_counters(group: Group = None) -> GroupCounters:
    """What this rank has done in a group since it was made: operations, bytes, seconds.

    Args:
        group: None: the default group.

    Returns:
        A GroupCounters.

    Raises:
        InvalidArgument: there is no such group.

    Example:
        >>> dist.barrier()
        >>> dist.group_counters().completed > 0
        True
    """
    return _core.group_counters(group)


@contextmanager
def operation_hooks(before: Callable[[str], object] | None = None,
                    after: Callable[[str, bool], object] | None = None) -> Iterator[None]:
    """While it lasts, every call of a collective, a send or a receive is shown to a profiler, on the thread that calls.

    What a hook raises is printed. An asynchronous operation may still be on its way when its call is over. Where there are
    several, the first made is called first before, last after. It must not end in a hook. For torch.profiler the hooks
    enter and leave a torch.profiler.record_function, on a stack of them for each thread.

    Args:
        before: before(name) is called before each call.
        after: after(name, failed) is called after each; `failed`: it raises.

    Returns:
        A scope.

    Example:
        >>> with dist.operation_hooks(before=print, after=lambda name, failed: print(name, failed)):
        ...     dist.all_reduce(np.ones(3))
        all_reduce
        all_reduce False
    """
    hooks = _core.OperationHooks(before, after)
    try:
        yield
    finally:
        hooks.close()
