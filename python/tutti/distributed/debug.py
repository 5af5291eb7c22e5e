"""Debugging: how much is checked, and a breakpoint for one rank of many."""
from __future__ import annotations

import sys
from typing import Any

from .._core import DebugLevel, get_debug_level, set_debug_level, set_debug_level_from_env
from ..errors import InvalidArgument
from .collectives import barrier
from .groups import get_rank, get_world_size

__all__ = ["DebugLevel", "breakpoint", "get_debug_level", "set_debug_level", "set_debug_level_from_env"]

_calls = 0


def breakpoint(rank: int = 0, skip: int = 0) -> None:
    """Stops one rank in pdb, whose input is the terminal, while the others wait in a barrier until it continues, for as
    long as it takes. All ranks call it.

    Args:
        rank: the one that stops; the same on all ranks.
        skip: the first so many calls of a process do nothing.

    Raises:
        InvalidArgument: a rank that is not in the default group, or a negative `skip`.
        PeerLost, Aborted: as a barrier.

    Example:
        >>> dist.breakpoint(rank=0, skip=10)  # does nothing the first ten times
    """
    global _calls
    if not 0 <= rank < get_world_size():
        raise InvalidArgument(f"breakpoint: rank is {rank}: expected 0 to {get_world_size() - 1}")
    if skip < 0:
        raise InvalidArgument(f"breakpoint: skip is {skip}: expected 0 or more")
    _calls += 1
    if _calls <= skip:
        return
    if get_rank() != rank:
        _meet()
        return
    _debugger(rank).set_trace(sys._getframe(1))


def _meet() -> None:
    from datetime import timedelta

    barrier(timeout=timedelta(days=365))  # people think for long


def _debugger(rank: int) -> Any:
    import pdb

    class RankDebugger(pdb.Pdb):
        """Reads from the terminal where there is one, also in a child whose input is not; lets the others go on."""

        others_wait = True

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
            if self.others_wait:  # a later breakpoint of the debugger's own is this rank's alone
                self.others_wait = False
                _meet()

    print(f"tutti: rank {rank} stops here; `continue` lets all ranks go on", file=sys.stderr, flush=True)
    return RankDebugger()
