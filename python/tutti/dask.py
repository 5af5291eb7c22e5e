"""Dask: run(client, fn) calls a function on every worker, or on those that are named, as the ranks of one job.

    import tutti.dask, tutti.distributed as dist

    def step(x):
        dist.all_reduce(x)
        return x.sum()

    sums = tutti.dask.run(client, step, np.ones(4))        # by rank

The tasks start together, each on a worker of its own, with a default group that ends with them. The job's secret travels in
the tasks' arguments, so it is as safe as the cluster's own connections (TLS, where Dask has it).
"""
from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Callable
from urllib.parse import urlsplit
from uuid import uuid4

from . import distributed as dist
from ._engines import Invitation, accept, naming, serve
from .errors import DistError, InvalidArgument, PeerLost

__all__ = ["run"]

_moment = 5.0  # seconds
_served: dict[str, Any] = {}  # on the worker of rank 0: the stores of jobs that have not begun


def run(client: Any, fn: Callable[..., Any], *args: Any, workers: Sequence[str] | None = None,
        timeout: timedelta = timedelta(minutes=5), **kwargs: Any) -> list[Any]:
    """Calls fn(*args, **kwargs) on each of `workers` (addresses; None: all that the cluster has now) within a default group of
    tutti.distributed: rank k is the k-th worker. Returns what each call returned, by rank; raises the first rank's exception
    that is the cause of the others'. `timeout`: of joining, and of every operation that gives none.
    """
    known = client.scheduler_info(n_workers=-1)["workers"]
    chosen = list(workers) if workers is not None else list(known)
    if not chosen:
        raise InvalidArgument("tutti.dask.run: the cluster has no workers: expected one at least")
    for worker in chosen:
        if worker not in known:
            raise InvalidArgument(f"tutti.dask.run: workers: {worker} is no worker of this cluster: expected of "
                                  f"{', '.join(list(known)[:8])}")
    if len(set(chosen)) != len(chosen):
        raise InvalidArgument("tutti.dask.run: workers: one worker is named twice: expected each once, since a process is one "
                              "rank")
    job = uuid4().hex
    pin = {"allow_other_workers": False, "pure": False, "retries": 0}
    host = urlsplit(chosen[0]).hostname or "127.0.0.1"
    invitation = client.submit(_serve, job, host, timeout, workers=[chosen[0]], key=f"tutti-store-{job}", **pin).result()
    names = [f"worker {known[worker].get('name', worker)} at {worker}" for worker in chosen]
    calls = [client.submit(_rank, job, invitation, rank, names, timeout, fn, args, kwargs, workers=[worker],
                           key=f"tutti-rank-{rank}-{job}", **pin) for rank, worker in enumerate(chosen)]
    try:
        _settle(client, calls, chosen)
        errors = [call.exception() for call in calls if call.status == "error"]
        for error in sorted(errors, key=lambda e: isinstance(e, DistError)):  # before what the others say of it
            raise error
        for rank, call in enumerate(calls):
            if call.status != "finished":
                raise PeerLost(f"tutti.dask.run: rank {rank}, {names[rank]}, is gone, and no other rank has noticed: its call "
                               f"is {call.status}")
        return [call.result() for call in calls]
    finally:
        client.cancel(calls, force=True)


# A worker that died never ends its call: Dask waits for it to come back. The others tell of it, or, when nobody is left or
# waits for it, the cluster does; either way the calls that still run have a moment to end.
def _settle(client: Any, calls: list[Any], chosen: list[str]) -> None:
    deadline = None
    while any(call.status == "pending" for call in calls):
        if deadline is None:
            known = client.scheduler_info(n_workers=-1)["workers"]
            if any(call.status == "error" for call in calls) or not set(chosen) <= set(known):
                deadline = time.monotonic() + _moment
        elif time.monotonic() > deadline:
            return
        time.sleep(0.05)


def _serve(job: str, host: str, timeout: timedelta) -> Invitation:
    store, invitation = serve(host, timeout)
    _served[job] = store
    return invitation


def _rank(job: str, invitation: Invitation, rank: int, names: list[str], timeout: timedelta, fn: Callable[..., Any],
          args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    with naming(names):
        store = _served.pop(job) if rank == 0 else accept(invitation, timeout)
        dist.init_process_group(store=store, rank=rank, world_size=len(names), timeout=timeout)
        try:
            return fn(*args, **kwargs)
        finally:
            dist.destroy_process_group()
