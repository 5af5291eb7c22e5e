"""Functions of one's own inside a collective: what the steps `call` of schedules run that a user wrote as a text."""
from __future__ import annotations

from typing import Any, Callable

from .. import _core
from ..errors import InvalidArgument

__all__ = ["register_step_function"]


def register_step_function(name: str, function: Callable[[Any, list[Any]], None]) -> None:
    """Gives a function the name by which the texts in TUTTI_SCHEDULE call it (docs/guides/write-a-schedule.md).

    Every rank registers its functions before init_process_group, and functions of one name do the same on all ranks. A name
    stays for the life of the process.

    Args:
        name: not taken yet, without white space and '#'.
        function: function(target, sources) writes into `target`, a NumPy array of one dimension, from `sources`, a list of
            arrays of as many elements, which cannot be written; each has its own dtype. They are the schedule's memory:
            only to be used before it returns. It returns None, runs on any thread, must not call tutti, and should be
            quick: the group's other operations wait. What it raises ends the operation on all ranks, as Aborted.

    Raises:
        InvalidArgument: for a name that is empty or taken, or contains white space or '#', and for what is no function.

    Example:
        >>> def halve(target, sources):
        ...     np.multiply(sources[0], 0.5, out=target)
        >>> dist.register_step_function("halve", halve)
    """
    if not isinstance(name, str):
        raise InvalidArgument(f"register_step_function: name is {name!r}: expected a str")
    if not callable(function):
        raise InvalidArgument(f"register_step_function: function is {function!r}: expected a function")
    _core.register_step_function(name, function)
