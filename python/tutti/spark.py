"""Spark: init() makes the tasks of a barrier stage the ranks of a job, without PyTorch.

    def step(rows):
        import tutti.distributed as dist, tutti.spark
        tutti.spark.init()
        ...
        dist.all_reduce(gradient)
        dist.destroy_process_group()
        yield dist_result

    rdd.barrier().mapPartitions(step).collect()

The rank is the partition's number. The driver carries the address of rank 0 and the job's secret (BarrierTaskContext's
allGather), so both are as safe as Spark's own connections. With PyTorch, TorchDistributor needs nothing of this:
dist.init_process_group("tutti").
"""
from __future__ import annotations

import warnings
from datetime import timedelta

from . import distributed as dist
from ._engines import Invitation, accept, serve
from .errors import InvalidArgument

__all__ = ["init"]

_task = -1  # Spark's number for the task that has made this process's default group


def init(timeout: timedelta = timedelta(minutes=5)) -> None:
    """Makes the default group of all tasks of this barrier stage; call it once in each. `timeout`: of joining, and of every
    operation that gives none. Spark keeps its processes for later tasks: a group that an earlier one has not destroyed goes first.
    """
    global _task
    from pyspark import BarrierTaskContext  # type: ignore[import-not-found,unused-ignore]
    from pyspark.errors import PySparkException  # type: ignore[import-not-found,unused-ignore]

    try:
        context = BarrierTaskContext.get()
    except PySparkException as error:
        raise InvalidArgument("tutti.spark.init: this is no task of a barrier stage: expected "
                              f"rdd.barrier().mapPartitions(...) ({error})") from None
    if dist.is_initialized():
        if _task == -1 or _task == context.taskAttemptId():
            raise InvalidArgument("tutti.spark.init: there is a default group already, which "
                                  f"{'this task has made' if _task != -1 else 'tutti.spark.init has not made'}: expected one call in "
                                  "each task, and destroy_process_group() before it")
        warnings.warn(f"tutti.spark.init: task {_task} has ended without destroy_process_group(); its group ends now", stacklevel=2)
        dist.destroy_process_group()
    _task = context.taskAttemptId()
    rank, tasks = context.partitionId(), context.getTaskInfos()
    mine, store = "", None
    if rank == 0:
        store, invitation = serve(tasks[0].address.rsplit(":", 1)[0], timeout)
        mine = invitation.to_text()
    invitation = Invitation.from_text(context.allGather(mine)[0])
    if store is None:
        store = accept(invitation, timeout)
    dist.init_process_group(store=store, rank=rank, world_size=len(tasks), timeout=timeout)
