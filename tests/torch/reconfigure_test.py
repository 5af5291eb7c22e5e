"""What torch.distributed has since PyTorch 2.14: groups that are made anew with other ranks, abort hooks, and windows, which
are refused. By name and in gloo's place."""

import os
import tempfile
import time
import unittest
from datetime import timedelta

import ranks
import torch
import torch.distributed as dist
from failures_test import expect, message_of
from torch._C._distributed_c10d import ErrorType

CPU = torch.device("cpu")
LIMIT = timedelta(seconds=40)
THERE = hasattr(dist, "_reconfigure")


class Ranks:
    """One rank of a group that has no members yet, and the store over which the test hands out the handles."""

    def __init__(self, rank: int, n: int, name: str, path: str) -> None:
        if name == "gloo":
            import tutti.torch

            tutti.torch.replace_gloo()
        self.rank, self.n, self.store = rank, n, dist.FileStore(path, n)
        dist.init_process_group(name, rank=rank, world_size=n, store=self.store, timeout=LIMIT, enable_reconfigure=True)
        self.backend = dist.group.WORLD._get_backend(CPU)

    def meet(self, key: str, members=None) -> list[str]:
        """The handles of the members, by rank; waits for all of them."""
        self.store.set(f"{key}/{self.rank}", dist._get_reconfigure_handle())
        return [self.store.get(f"{key}/{rank}").decode() for rank in (range(self.n) if members is None else members)]

    def make(self, uuid: int, handles, limit: timedelta = LIMIT) -> None:
        dist._reconfigure(uuid, handles, timeout=limit).wait()

    def check_sum(self) -> None:
        n = dist.get_world_size()
        x = torch.full((1000,), dist.get_rank() + 1.0)
        dist.all_reduce(x)
        assert x.eq(n * (n + 1) / 2).all(), (n, x[0])
        everyone = [None] * n
        dist.all_gather_object(everyone, self.rank)
        assert len(set(everyone)) == n and everyone[dist.get_rank()] == self.rank, everyone


def shrinks_and_grows(rank: int, n: int, name: str, path: str) -> None:
    me = Ranks(rank, n, name, path)
    assert dist._supports_reconfigure() and dist.get_backend() == name
    for operation in (lambda: dist.all_reduce(torch.ones(1)), dist.barrier, me.backend._start_coalescing,
                      lambda: me.backend.send([torch.ones(1)], 0, 0)):
        expect(message_of(operation), "no ranks yet", "reconfigure")
    me.make(10, me.meet("all"))
    assert (dist.get_rank(), dist.get_world_size()) == (rank, n)
    me.check_sum()
    handles = me.meet("fewer")
    if rank == 1:  # left out; the group that it has is left by the others
        expect(message_of(dist.all_reduce, torch.ones(1)), "all_reduce")
    else:
        me.make(11, handles[:1] + handles[2:])
        assert (dist.get_rank(), dist.get_world_size()) == (rank - (rank > 1), n - 1)
        me.check_sum()
    me.make(12, set(me.meet("all again")))  # of a set the order is the first one
    assert (dist.get_rank(), dist.get_world_size()) == (rank, n)
    me.check_sum()
    me.make(13, me.meet("turned round")[::-1])
    assert dist.get_rank() == n - 1 - rank
    me.check_sum()
    group = dist.new_group([0, 1])
    if dist.get_rank() < 2:
        dist.all_reduce(torch.ones(1), group=group)
    me.make(20 + rank, [dist._get_reconfigure_handle()])  # each alone
    assert (dist.get_rank(), dist.get_world_size()) == (0, 1)
    me.check_sum()


def survivors_go_on(rank: int, n: int, name: str, path: str) -> None:
    if rank == n - 1:
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            dist.FileStore(path, n).set("gone", "")
            return
    me = Ranks(rank, n, name, path)
    me.make(1, me.meet("all"))
    me.check_sum()
    if rank == n - 1:
        os._exit(0)
    told = []
    me.backend.register_abort_hook(7, lambda: told.append(rank))
    me.store.get("gone")
    expect(message_of(dist.all_reduce, torch.ones(1 << 16)), "all_reduce")
    assert me.backend.get_error() != ErrorType.SUCCESS and told == [rank], told
    me.make(2, me.meet("the rest", range(n - 1)))
    assert me.backend.get_error() == ErrorType.SUCCESS
    me.check_sum()
    me.meet("before the abort", range(n - 1))
    me.backend.abort()
    assert told == [rank, rank], told
    me.make(3, me.meet("after the abort", range(n - 1)))
    me.check_sum()


def a_failed_one_changes_nothing(rank: int, n: int, name: str, path: str) -> None:
    me = Ranks(rank, n, name, path)
    handles = me.meet("all")
    me.make(1, handles)
    me.check_sum()
    now = me.meet("now")
    own = dist._get_reconfigure_handle()
    for wrong, *words in (([], "is not among the 0 handles", own), (handles, own, "is not among"),
                          ([own, own], f"rank {rank} twice"), ([f"tutti:{rank}"], "expected"),
                          (["gloo:0:-1:0:"], "gloo:0:-1:0:", "get_reconfigure_handle")):
        expect(message_of(me.make, 2, wrong), "reconfigure", *words)
    expect(message_of(me.make, 2, now, timedelta(0)), "timeout is 0 ms")
    me.meet("before the used one")
    expect(message_of(me.make, 1, now), "uuid 1 was already used")  # on all ranks
    if rank:  # rank 0 doesn't come
        expect(message_of(me.make, 3, now, timedelta(milliseconds=600)), "Timed out", "not there: 0")
    me.meet("after it")
    assert (dist.get_rank(), dist.get_world_size()) == (rank, n)
    me.check_sum()
    me.make(4, me.meet("at last"))
    me.check_sum()


def hooks(rank: int, n: int, name: str, path: str) -> None:
    me = Ranks(rank, n, name, path)
    me.make(1, me.meet("all"))
    told = []
    me.backend.register_abort_hook(1, lambda: told.append("one"))
    me.backend.register_abort_hook(2, lambda: told.append("two"))
    me.backend.unregister_abort_hook(1)
    me.check_sum()
    assert told == []
    if rank == 0:  # nobody waits for it, and the limit ends it
        options = dist.AllreduceOptions()
        options.timeout, options.asyncOp = timedelta(milliseconds=200), True
        work = me.backend.allreduce([torch.ones(1)], options)
        assert work.timeout == timedelta(milliseconds=200), work.timeout
        end = time.monotonic() + 20
        while not told and time.monotonic() < end:
            time.sleep(0.01)
        assert told == ["two"], told
        expect(message_of(work.wait), "Timed out")
    me.meet("done")


def refused(rank: int, n: int, name: str, path: str) -> None:
    me = Ranks(rank, n, name, path)
    me.make(1, me.meet("all"))
    assert not me.backend.supports_window
    expect(message_of(me.backend.new_window, torch.ones(1)), "new_window", "tutti.torch.empty_symmetric")
    me.backend._add_ephemeral_timeout(timedelta(seconds=1))  # warns, through PyTorch's log
    me.check_sum()


@unittest.skipUnless(THERE, f"PyTorch {torch.__version__} has no reconfigure; 2.14 has")
class Reconfigure(unittest.TestCase):
    def each(self, function, count: int = 3) -> None:
        for name in ("tutti", "gloo"):
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                ranks.run(count, function, name, os.path.join(folder, "store"), backend=None, limit=120)

    def test_a_group_shrinks_and_grows_and_its_ranks_change_places(self) -> None:
        self.each(shrinks_and_grows)

    def test_survivors_go_on_without_a_rank_that_has_failed(self) -> None:
        self.each(survivors_go_on)

    def test_a_failed_reconfigure_leaves_the_group_as_it_was(self) -> None:
        self.each(a_failed_one_changes_nothing)

    def test_abort_hooks_are_called_once_when_something_fails(self) -> None:
        self.each(hooks, count=2)

    def test_windows_are_refused_with_a_sentence(self) -> None:
        self.each(refused, count=2)


if __name__ == "__main__":
    unittest.main()
