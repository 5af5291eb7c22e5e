"""A loop of steps that outlives its ranks."""
from __future__ import annotations

import functools
from datetime import timedelta
from typing import Any, Callable, Sequence, overload

from .. import _core
from .._core import ProcessGroup, Resilience, Store

__all__ = ["Resilience", "resilient"]

_place_of_engine: Store | None = None  # where newcomers wait, in a rank of Ray's or Dask's whose job replaces lost ones


@overload
def resilient(step: Callable[[Resilience], Any], state: Sequence[Any] = (), *, steps: int, first: int = 0,
              save: Callable[[], bytes] | None = None, load: Callable[[bytes], Any] | None = None,
              keep: Callable[[], Any] | None = None, undo: Callable[[], Any] | None = None,
              group: ProcessGroup | None = None, place: Store | None = None, name: str = "newcomers",
              wait: timedelta | None = None, min_size: int = 1, max_size: int = 0, max_failures: int = 5,
              timeout: timedelta | None = None, patience: timedelta | None = None) -> ProcessGroup: ...
@overload
def resilient(step: None = None, state: Sequence[Any] = (), *, steps: int, first: int = 0,
              save: Callable[[], bytes] | None = None, load: Callable[[bytes], Any] | None = None,
              keep: Callable[[], Any] | None = None, undo: Callable[[], Any] | None = None,
              group: ProcessGroup | None = None, place: Store | None = None, name: str = "newcomers",
              wait: timedelta | None = None, min_size: int = 1, max_size: int = 0, max_failures: int = 5,
              timeout: timedelta | None = None, patience: timedelta | None = None) -> Callable[[Callable[..., Any]], Callable[..., ProcessGroup]]: ...
def resilient(step: Callable[[Resilience], Any] | None = None, state: Sequence[Any] = (), *, steps: int, first: int = 0,
              save: Callable[[], bytes] | None = None, load: Callable[[bytes], Any] | None = None,
              keep: Callable[[], Any] | None = None, undo: Callable[[], Any] | None = None,
              group: ProcessGroup | None = None, place: Store | None = None, name: str = "newcomers",
              wait: timedelta | None = None, min_size: int = 1, max_size: int = 0, max_failures: int = 5,
              timeout: timedelta | None = None, patience: timedelta | None = None) -> Any:
    """Runs steps whose group may lose ranks and take newcomers in; all ranks and newcomers call it alike.

    When a rank ends, the survivors form a new group, with newcomers for the lost where such come. All go back to the last
    step that every survivor has completed, newcomers take the state over, and the steps go on from there.

    Args:
        step: step(r) does step number `r.step` with the collectives of `r.group`, and changes the state. None: this is a
            decorator; the function that it makes runs the loop, and gives its own arguments to each step, behind r.
        state: arrays or tensors, equal on all ranks between two steps; a step changes them in place.
        steps: the loop ends when so many steps are completed.
        first: so many are completed at the start, by a checkpoint.
        save: returns further state as bytes.
        load: puts back what `save` has returned.
        keep: called before each step, instead of the copies of `state` that the loop takes.
        undo: brings `state` back to what it was at the last `keep`.
        group: the ranks that begin; None: the default group, which the new groups then replace.
        place: the store in which newcomers wait; None: that of a launcher which replaces lost ranks, if there is one, also of
            tutti.dask.run and tutti.ray.Job.
        name: as of `join`.
        wait: how long survivors wait for newcomers before they go on with fewer ranks; None: a minute where newcomers may come.
        min_size: with fewer ranks the loop ends, on all of them.
        max_size: newcomers beyond it wait on; 0: as many ranks as began.
        max_failures: so many groups may fail with no step completed between; then the error ends the loop.
        timeout: of making a group; None: the group's.
        patience: for survivors that live and do not come, as of `ProcessGroup.shrink`.

    Returns:
        The group of the ranks that completed the last step.

    Raises:
        PeerLost, Timeout: max_failures or min_size is reached, or the others go on without this rank.
        DistStoreError: the store in which survivors meet is gone.
        InvalidArgument: an argument. What `step` raises while its group works is raised on this rank alone.

    Example:
        >>> import numpy as np
        >>> total = np.zeros(1)
        >>> def step(r):
        ...     x = np.array([r.step + 1.0])
        ...     dist.all_reduce(x, group=r.group)
        ...     total[:] += x
        >>> _ = dist.resilient(step, [total], steps=4)
        >>> float(total[0])
        10.0
        >>> @dist.resilient(state=[total], steps=3)
        ... def add(r, addend):
        ...     total[:] += addend
        >>> _ = add(2.0)
        >>> float(total[0])
        16.0
    """
    if step is None:
        def decorated(step: Callable[..., Any]) -> Callable[..., ProcessGroup]:
            @functools.wraps(step)
            def run(*args: Any, **kwargs: Any) -> ProcessGroup:
                return resilient(lambda r: step(r, *args, **kwargs), state, steps=steps, first=first, save=save, load=load, keep=keep,
                                 undo=undo, group=group, place=place, name=name, wait=wait, min_size=min_size, max_size=max_size,
                                 max_failures=max_failures, timeout=timeout, patience=patience)
            return run
        return decorated
    return _core.resilient(step, state, steps, first, save, load, keep, undo, group, place or _place_of_engine, name, wait, min_size,
                           max_size, max_failures, timeout, patience)
