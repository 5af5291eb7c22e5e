"""Ray: the backend "tutti" of ray.util.collective, between actors, for NumPy arrays and PyTorch's tensors.

    import ray, tutti.ray                         # in the driver, for create_collective_group

    @ray.remote
    class Worker:
        def __init__(self, rank, world_size):
            import tutti.ray                      # and in every actor: it registers the backend
            from ray.util import collective
            collective.init_collective_group(world_size, rank, backend="tutti")

        def step(self, x):
            from ray.util import collective
            collective.allreduce(x)
            return x

Ray's internal store carries the address of rank 0 and the group's secret, so actors may be on any node. A group is of actors of
one job and namespace: jobs that use the same name know nothing of each other. Two groups of one name that a job makes at the same
time are an error. An actor that dies is
named, by rank and by actor, to all others of its groups at once; a group that waits longer than its time limit raises
tutti.distributed.Timeout. For Ray Train there is nothing to import: TorchConfig(backend="tutti").

Job is for actors that are the ranks of tutti.distributed: one that is restarted joins those that go on.
"""
from __future__ import annotations

import json
import os
import time
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any
from uuid import uuid4

from . import distributed as dist
from ._core import TCPStore
from ._engines import Invitation, accept, member, naming, serve
from .errors import DistStoreError, InvalidArgument, Timeout

try:
    import ray  # type: ignore[import-not-found,unused-ignore]
    from ray.experimental import internal_kv  # type: ignore[import-not-found,unused-ignore]
    from ray.util.collective import backend_registry, types  # type: ignore[import-not-found,unused-ignore]
    from ray.util.collective.collective_group.base_collective_group import (  # type: ignore[import-not-found,unused-ignore]
        BaseGroup,
    )
except ImportError as missing:
    raise ImportError(f"tutti.ray: {missing}: expected Ray 2.54 or newer, whose ray.util.collective takes backends: "
                      "pip install 'ray>=2.54'") from missing

__all__ = ["Job", "TuttiGroup"]

_look_again = 0.05  # seconds between two looks into Ray's store
_served: list[Any] = []  # the store of this process's jobs, for as long as it lives, and the invitation to it
_one_try = timedelta(seconds=2)  # to reach a store that may be that of an actor that has died


class TuttiGroup(BaseGroup):  # type: ignore[misc,unused-ignore]
    """A group of actors. Ray makes one for each name given to init_collective_group; methods are for one thread at a time.

    default_timeout  of every operation whose options give none; set it on the class before groups are made.
    join_timeout     how long a group waits for all its actors.
    """

    default_timeout = timedelta(minutes=5)
    join_timeout = timedelta(minutes=2)

    def __init__(self, world_size: int, rank: int, group_name: str) -> None:
        super().__init__(world_size, rank, group_name)
        context = ray.get_runtime_context()
        self._place = f"job {context.get_job_id()}, namespace {context.namespace}"
        # JSON keeps names apart that have any letters.
        self._key = "tutti/" + json.dumps([context.get_job_id(), context.namespace, group_name])
        self._names = [_own_name()]
        deadline = time.monotonic() + self.join_timeout.total_seconds()
        if rank != 0:
            return self._join(self._find(deadline), deadline)
        store, text = self._serve()
        try:
            self._join(store, deadline)
        finally:  # all have come, or none will: a later group of this name begins anew
            if internal_kv._internal_kv_get(self._key) == text:
                internal_kv._internal_kv_del(self._key)

    def _join(self, store: TCPStore, deadline: float) -> None:
        left = timedelta(seconds=max(deadline - time.monotonic(), 1))
        self._group = dist.ProcessGroup(store, self._rank, self._world_size, timeout=left, name=self._group_name)
        names: list[Any] = [None] * self._world_size
        dist.all_gather_object(names, self._names[0], group=self._group)
        self._names = names
        self._group.timeout = self.default_timeout

    # Another actor's invitation stays as long as that actor lives: it may be for others than this one's.
    def _serve(self) -> tuple[TCPStore, bytes]:
        store, invitation = serve(ray.util.get_node_ip_address(), self.join_timeout)
        store.set("rank 0", self._names[0])
        text = invitation.to_text().encode()
        while internal_kv._internal_kv_put(self._key, text, overwrite=False):
            there = internal_kv._internal_kv_get(self._key)
            if there is None:
                continue
            try:
                owner = accept(Invitation.from_text(there.decode()), _one_try).get("rank 0").decode()
            except (dist.DistNetworkError, DistStoreError):  # it has died; another one that sees that removes the same text
                if internal_kv._internal_kv_get(self._key) == there:
                    internal_kv._internal_kv_del(self._key)
                continue
            raise InvalidArgument(f"group \"{self._group_name}\" ({self._place}): {owner} is rank 0 of a group of this name that is "
                                  f"being made, and so wants to be {self._names[0]}: expected one group of a name at a time")
        return store, text

    # The invitation may be that of an actor that died before the group was whole: then it is looked for again.
    def _find(self, deadline: float) -> TCPStore:
        cause = "there is no invitation of rank 0 yet"
        while time.monotonic() < deadline:
            text = internal_kv._internal_kv_get(self._key)
            if text is None:
                time.sleep(_look_again)
                continue
            invitation = Invitation.from_text(text.decode())
            try:
                store = accept(invitation, _one_try)
                store.set_timeout(self.join_timeout)
                return store
            except (dist.DistNetworkError, DistStoreError) as error:
                cause = str(error)
        raise Timeout(f"group \"{self._group_name}\" ({self._place}): rank {self._rank} has not found rank 0 within "
                      f"{self.join_timeout.total_seconds():g} s: {cause}")

    @classmethod
    def backend(cls) -> str:
        return "TUTTI"

    @classmethod
    def check_backend_availability(cls) -> bool:
        return True

    def destroy_group(self) -> None:
        self._group.destroy()

    def allreduce(self, tensor: list[Any], allreduce_options: Any = None) -> None:
        options = allreduce_options or types.AllReduceOptions
        with naming(self._names):
            dist.all_reduce(_only(tensor), _op(options), self._group, timeout=_limit(options))

    def barrier(self, barrier_options: Any = None) -> None:
        with naming(self._names):
            dist.barrier(self._group, timeout=_limit(barrier_options))

    def reduce(self, tensor: list[Any], reduce_options: Any = None) -> None:
        options = reduce_options or types.ReduceOptions
        with naming(self._names):
            dist.reduce(_only(tensor), op=_op(options), group=self._group, group_dst=options.root_rank,
                        timeout=_limit(options))

    def allgather(self, tensor_list: list[list[Any]], tensor: list[Any], allgather_options: Any = None) -> None:
        with naming(self._names):
            dist.all_gather(_only(tensor_list), _only(tensor), self._group, timeout=_limit(allgather_options))

    def broadcast(self, tensor: list[Any], broadcast_options: Any = None) -> None:
        options = broadcast_options or types.BroadcastOptions
        with naming(self._names):
            dist.broadcast(_only(tensor), group=self._group, group_src=options.root_rank, timeout=_limit(options))

    def reducescatter(self, tensor: list[Any], tensor_list: list[list[Any]], reducescatter_options: Any = None) -> None:
        options = reducescatter_options or types.ReduceScatterOptions
        with naming(self._names):
            dist.reduce_scatter(_only(tensor), _only(tensor_list), _op(options), self._group, timeout=_limit(options))

    def send(self, tensor: list[Any], send_options: Any) -> None:
        with naming(self._names):
            dist.send(_only(tensor), group=self._group, group_dst=send_options.dst_rank, timeout=_limit(send_options))

    def recv(self, tensor: list[Any], recv_options: Any) -> None:
        with naming(self._names):
            dist.recv(_only(tensor), group=self._group, group_src=recv_options.src_rank, timeout=_limit(recv_options))


class Job:
    """The ranks of a default group of tutti.distributed, which may be replaced; made in a process that outlives them, as the
    driver does, and given to actors or tasks.

        @ray.remote(max_restarts=1, max_task_retries=1)
        class Trainer:
            def train(self, job, rank):
                with job.member(rank):
                    ...
                    dist.resilient(step, [weights], steps=60)

        job = tutti.ray.Job(3)
        ray.get([Trainer.remote().train.remote(job, rank) for rank in range(3)])

    timeout  of joining, and of every operation that gives none.
    """

    def __init__(self, world_size: int, timeout: timedelta = timedelta(minutes=5)) -> None:
        self.world_size, self.timeout = world_size, timeout
        if not _served:
            _served.extend(serve(ray.util.get_node_ip_address(), timeout))
        self._invitation, self._name = _served[1], uuid4().hex

    def member(self, rank: int) -> AbstractContextManager[None]:
        """Within it the process is rank `rank`, or, where that has begun before, its replacement: it waits until
        `resilient` or `grow` of the others takes it in, as the number that is free.
        """
        store = dist.PrefixStore(self._name, accept(self._invitation, self.timeout))
        return member(store, rank, self.world_size, self.timeout)


def _own_name() -> str:
    """ "actor Worker(3f0a…) on 10.0.0.4, pid 12": its name or its class, Ray's number for it and where it is."""
    context = ray.get_runtime_context()
    instances = getattr(ray._private.worker.global_worker, "actors", {})  # one, in an actor's process; Ray tells it nowhere else
    kind = context.get_actor_name() or next((type(one).__name__ for one in instances.values()), "")
    return f"actor {kind}({context.get_actor_id()}) on {ray.util.get_node_ip_address()}, pid {os.getpid()}"


def _only(tensors: list[Any]) -> Any:
    if not isinstance(tensors, list) or len(tensors) != 1:
        raise InvalidArgument(f"tutti.ray: {len(tensors)} tensors for one call: expected one, as actors have one device here")
    return tensors[0]


_ops = {types.ReduceOp.SUM: dist.ReduceOp.SUM, types.ReduceOp.PRODUCT: dist.ReduceOp.PRODUCT,
        types.ReduceOp.MIN: dist.ReduceOp.MIN, types.ReduceOp.MAX: dist.ReduceOp.MAX}


def _op(options: Any) -> dist.ReduceOp:
    return _ops[options.reduceOp]


def _limit(options: Any) -> timedelta | None:
    limit = getattr(options, "timeout_ms", None)
    return limit if isinstance(limit, timedelta) and limit > timedelta(0) else None


if not backend_registry._global_registry.is_registered("TUTTI"):
    backend_registry.register_collective_backend("TUTTI", TuttiGroup)
