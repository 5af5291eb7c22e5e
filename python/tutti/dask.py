"""Dask: run(client, fn) calls a function on every worker, or on those that are named, as the ranks of one job.

    import tutti.dask, tutti.distributed as dist

    def step(x):
        dist.all_reduce(x)
        return x.sum()

    sums = tutti.dask.run(client, step, np.ones(4))        # by rank

The tasks start together, each on a worker of its own, with a default group that ends with them. A process has one default
group, so calls of run that share workers wait for each other, whichever clients they come from. The job's secret travels in
the tasks' arguments, so it is as safe as the cluster's own connections (TLS, where Dask has it). With `max_restarts` a worker
that dies is replaced by another one, which joins the ranks that go on (tutti.distributed.resilient).
"""
from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Callable
from urllib.parse import urlsplit
from uuid import uuid4

from . import distributed as dist
from ._engines import Invitation, accept, member, naming, serve
from .errors import DistError, InvalidArgument, PeerLost, Timeout

__all__ = ["run"]

_moment = 5.0  # seconds
_reserved_for = 30.0  # seconds without a word from the job's client, before its rank begins here

_foreign = "has a default group that tutti.dask.run has not made: expected destroy_process_group() there"

# On a worker.
_served: dict[str, Any] = {}  # of rank 0: the stores of jobs that have not begun; on the scheduler: those of jobs with max_restarts
_lock = threading.Lock()
_owner: str = ""  # the job whose rank this process is, or will be
_owned_until = 0.0


def run(client: Any, fn: Callable[..., Any], *args: Any, workers: Sequence[str] | None = None,
        timeout: timedelta = timedelta(minutes=5), max_restarts: int = 0, **kwargs: Any) -> list[Any]:
    """Calls fn(*args, **kwargs) on each of `workers` (addresses; None: all that the cluster has now) within a default group of
    tutti.distributed: rank k is the k-th worker. Returns what each call returned, by rank; raises the first rank's exception
    that is the cause of the others'. `timeout`: of joining, and of every operation that gives none.

    `max_restarts`: so many workers that die are replaced, each by any other worker that the cluster has or gets: fn is called there
    too, and tutti.distributed's `resilient` (or `grow`) takes it in. The result is then by place of the workers that began, without
    those that nobody filled again. The scheduler serves the job's store, so tutti is installed there as well.
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
    if max_restarts < 0:
        raise InvalidArgument(f"tutti.dask.run: max_restarts is {max_restarts}: expected zero or more")
    job = uuid4().hex
    _reserve_all(client, job, chosen, time.monotonic() + timeout.total_seconds())
    try:
        return _run(client, job, chosen, known, timeout, max_restarts, fn, args, kwargs)
    finally:
        if max_restarts:  # ranks that still run notice it when they look for newcomers
            client.run_on_scheduler(_release, job)
        _release_all(client, job, chosen)


def _run(client: Any, job: str, chosen: list[str], known: dict[str, Any], timeout: timedelta, max_restarts: int,
         fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    pin = {"allow_other_workers": False, "pure": False, "retries": 0}
    host = urlsplit(client.scheduler_info()["address"] if max_restarts else chosen[0]).hostname or "127.0.0.1"
    if max_restarts:  # the store outlives rank 0
        invitation = client.run_on_scheduler(_serve, job, host, timeout)
    else:
        invitation = client.submit(_serve, job, host, timeout, workers=[chosen[0]], key=f"tutti-store-{job}", **pin).result()
    names = [f"worker {known[worker].get('name', worker)} at {worker}" + " or its replacement" * bool(max_restarts)
             for worker in chosen]

    def begin(rank: int) -> Any:
        return client.submit(_rank, job, invitation, rank, names, timeout, max_restarts > 0, fn, args, kwargs,
                             workers=[chosen[rank]], key=f"tutti-rank-{rank}-{job}-{uuid4().hex}", **pin)

    calls = [begin(rank) for rank in range(len(chosen))]
    try:
        is_over = _settle(client, job, calls, chosen, begin, max_restarts)
        errors = [call.exception() for call in calls if call.status == "error"]
        for error in sorted(errors, key=lambda e: isinstance(e, DistError)):  # before what the others say of it
            raise error
        finished = [call for call in calls if call.status == "finished"]
        for rank, call in enumerate(calls):
            if call.status != "finished" and not (is_over and finished):
                raise PeerLost(f"tutti.dask.run: rank {rank}, {names[rank]}, is gone, and "
                               + (f"nobody fills its place (max_restarts is {max_restarts})" if max_restarts else
                                  f"no other rank has noticed: its call is {call.status}"))
        return [call.result() for call in finished]
    finally:
        client.cancel(calls, force=True)


# A worker that died never ends its call: Dask waits for it to come back. The others tell of it, or, when nobody is left or
# waits for it, the cluster does; either way the calls that still run have a moment to end. While restarts are left another
# worker gets a call of the same place. True: ranks that died or wait for others are all that is left.
def _settle(client: Any, job: str, calls: list[Any], chosen: list[str], begin: Callable[[int], Any],
            max_restarts: int) -> bool:
    deadline, renewed, restarts = None, time.monotonic(), max_restarts
    while any(call.status == "pending" for call in calls):
        if deadline is None:
            known = client.scheduler_info(n_workers=-1)["workers"]
            if time.monotonic() - renewed > _reserved_for / 3:
                client.run(_reserve, job, workers=[worker for worker in chosen if worker in known], on_error="ignore")
                renewed = time.monotonic()
            running = [rank for rank, call in enumerate(calls) if call.status == "pending"]
            lost = [rank for rank in running if chosen[rank] not in known]
            if any(call.status == "error" for call in calls) or (lost and not restarts):
                deadline = time.monotonic() + _moment
            elif lost or restarts < max_restarts:
                if len(running) - len(lost) <= client.run_on_scheduler(_waiting, job):
                    return True
                for rank, worker in zip(lost[:restarts], [worker for worker in known if worker not in chosen]):
                    if client.run(_reserve, job, workers=[worker], on_error="ignore").get(worker) == "":
                        chosen[rank] = worker
                        client.cancel(calls[rank], force=True)
                        calls[rank] = begin(rank)
                        restarts -= 1
        elif time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return False


# All workers, or none: ranks that wait for each other on some of them would wait for ever.
def _reserve_all(client: Any, job: str, chosen: list[str], deadline: float) -> None:
    pause = 0.02
    try:
        while True:
            answers = client.run(_reserve, job, workers=chosen)
            busy = {worker: why for worker, why in answers.items() if why}
            if not busy:
                return
            _release_all(client, job, chosen)
            for worker, why in busy.items():
                if why == _foreign:
                    raise InvalidArgument(f"tutti.dask.run: the worker at {worker} {why}")
            if time.monotonic() > deadline:
                worker, why = next(iter(busy.items()))
                raise Timeout(f"tutti.dask.run: the worker at {worker} {why}, and the time limit is over")
            time.sleep(random.uniform(pause / 2, pause))
            pause = min(2 * pause, 0.5)
    except BaseException:
        _release_all(client, job, chosen)
        raise


def _release_all(client: Any, job: str, chosen: list[str]) -> None:
    known = client.scheduler_info(n_workers=-1)["workers"]
    client.run(_release, job, workers=[worker for worker in chosen if worker in known], on_error="ignore")


def _reserve(job: str) -> str:
    """Empty, or why this worker is not to be had."""
    global _owner, _owned_until
    with _lock:
        if _owner not in ("", job) and time.monotonic() < _owned_until:
            return "is taken by another call of tutti.dask.run"
        if _owner == "" and dist.is_initialized():
            return _foreign
        _owner, _owned_until = job, max(_owned_until, time.monotonic() + _reserved_for)
    return ""


def _release(job: str) -> None:
    global _owner, _owned_until
    with _lock:
        _served.pop(job, None)
        if _owner == job and _owned_until < float("inf"):
            _owner, _owned_until = "", 0.0


def _serve(job: str, host: str, timeout: timedelta) -> Invitation:
    store, invitation = serve(host, timeout)
    _served[job] = store
    return invitation


def _waiting(job: str) -> int:
    return dist.newcomers_waiting(_served[job])


def _rank(job: str, invitation: Invitation, rank: int, names: list[str], timeout: timedelta, replaces: bool,
          fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    global _owner, _owned_until
    with _lock:
        if _owner not in ("", job):
            raise Timeout(f"tutti.dask.run: rank {rank}, {names[rank]}, has begun so late that another call has the worker")
        _owner, _owned_until = job, float("inf")
    try:
        with naming(names):
            if replaces:
                with member(accept(invitation, timeout), rank, len(names), timeout):
                    return fn(*args, **kwargs)
            store = _served.pop(job) if rank == 0 else accept(invitation, timeout)
            dist.init_process_group(store=store, rank=rank, world_size=len(names), timeout=timeout)
            return fn(*args, **kwargs)
    finally:
        try:
            if dist.is_initialized():
                dist.destroy_process_group()
        finally:
            with _lock:
                _owner, _owned_until = "", 0.0
