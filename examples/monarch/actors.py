"""Actors of Monarch as the ranks of a job: they sum arrays without their controller.

    python examples/monarch/actors.py

Rank 0's actor serves the job's store. Its address and the job's secret are an answer and an argument of endpoints, so they are as
safe as Monarch's own messages.
"""
import secrets

import numpy as np
from monarch.actor import Actor, current_rank, endpoint, this_host

import tutti.distributed as dist

RANKS = 2


class Worker(Actor):
    def __init__(self, ranks):
        self.ranks, self.rank, self.store = ranks, current_rank().rank, None

    @endpoint
    def serve(self, host):
        """Rank 0: where the others find it, and the secret that lets them in."""
        secret = secrets.token_hex(32)
        self.store = dist.TCPStore(host, 0, is_master=True, secret=secret)
        return host, self.store.port, secret

    @endpoint
    def join(self, invitation):
        host, port, secret = invitation
        store = self.store or dist.TCPStore(host, port, secret=secret)
        dist.init_process_group(store=store, rank=self.rank, world_size=self.ranks)

    @endpoint
    def step(self, scale):
        x = np.full(4, scale * (self.rank + 1))
        dist.all_reduce(x)
        return x.tolist()

    @endpoint
    def leave(self):
        dist.destroy_process_group()


def main():
    workers = this_host().spawn_procs(per_host={"ranks": RANKS}).spawn("workers", Worker, RANKS)
    # With procs on several hosts: the address of the first one's host.
    host = "127.0.0.1"
    invitation = workers.slice(ranks=0).serve.call_one(host).get()
    workers.join.call(invitation).get()
    sums = [x for _, x in workers.step.call(10.0).get().items()]
    print("sums by rank:", sums)
    assert sums == [[30.0] * 4] * RANKS
    workers.leave.call().get()


if __name__ == "__main__":
    main()
