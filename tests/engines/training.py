"""A training that outlives its ranks, for the tests of engines that replace them."""
import os
import signal
from datetime import timedelta

import numpy as np

import tutti.distributed as dist


def train(dies_at=(), wait=120):
    """`dies_at`: (step, rank) of those that are killed."""
    weights = np.ones(1000, np.float32)

    def step(r):
        if (r.step, r.group.rank()) in dies_at and not r.is_new_group:
            os.kill(os.getpid(), signal.SIGKILL)
        gradient = weights * np.float32(0.1) * (r.group.rank() + 1) + np.float32(r.step % 7)
        dist.all_reduce(gradient, group=r.group)
        weights[:] -= np.float32(0.01) * gradient

    group = dist.resilient(step, [weights], steps=60, wait=timedelta(seconds=wait))
    return os.getpid(), group.size(), weights.tobytes()
