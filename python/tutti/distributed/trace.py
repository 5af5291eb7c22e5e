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
    """What this rank has done in a group (None: the default one) since it was made: operations, bytes, seconds.
    InvalidArgument where there is none."""
    return _core.group_counters(group)


@contextmanager
def operation_hooks(before: Callable[[str], object] | None = None,
                    after: Callable[[str, bool], object] | None = None) -> Iterator[None]:
    """While it lasts, every call of a collective, a send or a receive is shown to a profiler: before("all_reduce") and
    after("all_reduce", failed) are called around it, on the thread that calls. `failed`: the call raises. What a hook
    raises is printed. An asynchronous operation may still be on its way when its call is over. Where there are several,
    the first made is called first before, last after. It must not end in a hook.

        record = torch.profiler.record_function     # for torch.profiler: a stack of them, for each thread
        spans = []
        def begin(name): spans.append(record("tutti::" + name)); spans[-1].__enter__()
        def end(name, failed): spans.pop().__exit__(None, None, None)
        with operation_hooks(begin, end): ...
    """
    hooks = _core.OperationHooks(before, after)
    try:
        yield
    finally:
        hooks.close()
