"""Debugging: how much is checked, and a breakpoint for one rank of many."""
from __future__ import annotations

import sys
from typing import Any

from .._core import DebugLevel, dump_trace, get_debug_level, prometheus_text, set_debug_level, set_debug_level_from_env
from ..errors import InvalidArgument
from .collectives import barrier
from .groups import get_rank, get_world_size

__all__ = ["DebugLevel", "breakpoint", "dump_trace", "get_debug_level", "prometheus_text", "set_debug_level",
           "set_debug_level_from_env"]

_calls = 0


def breakpoint(rank: int = 0, skip: int = 0) -> None:
    """Stops one rank in pdb, whose input is the terminal, while the others wait in a barrier until it continues. All ranks
    call it, with the same `rank`; the first `skip` calls of a process do nothing."""
    global _calls
    if not 0 <= rank < get_world_size():
        raise InvalidArgument(f"breakpoint: rank is {rank}: expected 0 to {get_world_size() - 1}")
    if skip < 0:
        raise InvalidArgument(f"breakpoint: skip is {skip}: expected 0 or more")
    _calls += 1
    if _calls <= skip:
        return
    if get_rank() != rank:
        barrier()
        return
    _debugger(rank).set_trace(sys._getframe(1))


def _debugger(rank: int) -> Any:
    import pdb

    class RankDebugger(pdb.Pdb):
        """Reads from the terminal where there is one, also in a child whose input is not; lets the others go on."""

        def interaction(self, *args: Any, **kwargs: Any) -> Any:
            stdin = sys.stdin
            try:
                terminal = open("/dev/tty", encoding="utf-8")
            except OSError:
                return super().interaction(*args, **kwargs)
            try:
                sys.stdin = terminal
                return super().interaction(*args, **kwargs)
            finally:
                sys.stdin = stdin
                terminal.close()

        def set_continue(self) -> None:
            super().set_continue()
            barrier()

    print(f"tutti: rank {rank} stops here; `continue` lets all ranks go on", file=sys.stderr, flush=True)
    return RankDebugger()
