"""How the ranks of a group find each other: those that mean the same group, and no others; and what the others hear of a rank
that does not get there."""

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from datetime import timedelta

import ranks
import torch
import torch.distributed as dist

import tutti.torch

KINDS = ("tcp", "file", "ours")
LIMIT = 30.0  # seconds that a rank could wait
SOON = 10.0  # seconds after which it must not wait any more; it takes less than one where nothing else runs


def store_of(kind: str, rank: int, port: int, folder: str) -> dist.Store:
    if kind == "file":
        return dist.FileStore(os.path.join(folder, "store"), -1)
    made = dist.TCPStore if kind == "tcp" else tutti.torch.TCPStore
    return made("127.0.0.1", port, None, rank == 0, timedelta(seconds=60), wait_for_workers=False)


def join(store: dist.Store, rank: int, n: int, limit: float = LIMIT, **keywords) -> "tutti.torch.ProcessGroupTutti":
    options = tutti.torch.Options(timeout=timedelta(seconds=limit), **keywords)
    return tutti.torch.ProcessGroupTutti(dist.PrefixStore("group", store), rank, n, options)


def total(group: "tutti.torch.ProcessGroupTutti", value: float) -> float:
    x = torch.tensor([value])
    group.allreduce([x]).wait()
    return x.item()


def failure(function, *arguments, **keywords) -> tuple[str, float]:
    """The message and how long it took."""
    began = time.monotonic()
    try:
        function(*arguments, **keywords)
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}", time.monotonic() - began
    raise AssertionError("expected an exception")


def stay(store: dist.Store, rank: int, n: int) -> None:
    """Rank 0 may serve the store: it goes last."""
    try:
        store.add("gone", 1)
    except dist.DistNetworkError:
        if rank == 0:
            raise
        return  # rank 0 has counted it, and went before its store had answered
    end = time.monotonic() + 20
    while rank == 0 and store.add("gone", 0) < n and time.monotonic() < end:
        time.sleep(0.02)


# What the ranks do.


def halves(rank: int, n: int) -> list[tuple[float, list[int]]]:
    half = [r for r in range(n) if (r < n // 2) == (rank < n // 2)]
    found = []
    for _ in range(10):
        dist.barrier()
        group = dist.new_group(half)
        x = torch.tensor([float(rank)])
        dist.all_reduce(x, group=group)
        members = [None] * len(half)
        dist.all_gather_object(members, rank, group=group)
        found.append((x.item(), members))
    assert all(one == (sum(half), half) for one in found), found


def other_ways(rank: int, n: int) -> None:
    """Groups that only their members make, and those of a mesh; twice, with one store."""
    for _ in range(2):
        pair = [rank & ~1, rank | 1]
        x = torch.tensor([float(rank)])
        dist.all_reduce(x, group=dist.new_group(pair, use_local_synchronization=True))
        assert x.item() == sum(pair), x
        mesh = dist.device_mesh.init_device_mesh("cpu", (2, 2), mesh_dim_names=("rows", "columns"))
        for name, members in ("rows", [rank & 1, rank & 1 | 2]), ("columns", pair):
            x = torch.tensor([float(rank)])
            dist.all_reduce(x, group=mesh.get_group(name))
            assert x.item() == sum(members), (name, x)
        dist.barrier()


def different_lists(rank: int, n: int, own: list[int]) -> tuple[str, float]:
    dist.barrier()
    return failure(dist.new_group, own if rank == 0 else [0, 1, 2], timeout=timedelta(seconds=LIMIT))


def late_once(rank: int, n: int, kind: str, port: int, folder: str) -> None:
    """Rank 0's first try ends before the others come, which come during its second."""
    store = store_of(kind, rank, port, folder)
    if rank == 0:
        message, _ = failure(join, store, rank, n, 0.5)
        assert "not there: 1" in message and "Timed out" in message and "(timeout after 500ms)" in message, message
        store.set("second", "")
    else:
        store.wait(["second"])
        time.sleep(0.3)
    assert total(join(store, rank, n), rank + 1) == n * (n + 1) / 2
    stay(store, rank, n)


def early_once(rank: int, n: int, kind: str, port: int, folder: str) -> None:
    """Rank 1's first try ends before rank 0 comes."""
    store = store_of(kind, rank, port, folder)
    if rank == 1:
        message, _ = failure(join, store, rank, n, 0.5)
        assert "not there: 0" in message and "Timed out" in message, message
        store.set("second", "")
    else:
        store.wait(["second"])
    assert total(join(store, rank, n), rank + 1) == n * (n + 1) / 2
    stay(store, rank, n)


def one_gives_up(rank: int, n: int, kind: str, port: int, folder: str) -> tuple[str, float]:
    """Rank 1 has less patience than rank 0; rank 2 comes when both are there for the second time."""
    store = store_of(kind, rank, port, folder)
    result = ("", 0.0)
    if rank < 2:
        result = failure(join, store, rank, n, 1.0 if rank == 1 else LIMIT)
        store.add("failed", 1)
        store.set("free", "now")  # nothing of ours holds the program's connection
    while store.add("failed", 0) < 2:
        time.sleep(0.01)
    assert total(join(store, rank, n), rank + 1) == n * (n + 1) / 2
    stay(store, rank, n)
    return result


def one_fails(rank: int, n: int, kind: str, port: int, folder: str, bad: int) -> tuple[str, float]:
    store = store_of(kind, rank, port, folder)
    keywords = {"listen_host": "192.0.2.1"} if rank == bad else {}  # nobody's address
    result = failure(join, store, rank, n, **keywords)
    stay(store, rank, n)
    return result


def sizes(rank: int, n: int, kind: str, port: int, folder: str, said: list[int]) -> tuple[str, float]:
    store = store_of(kind, rank, port, folder)
    result = failure(dist.init_process_group, "tutti", store=store, rank=rank, world_size=said[rank],
                     timeout=timedelta(seconds=LIMIT))
    stay(store, rank, n)
    return result


def same_rank(rank: int, n: int, kind: str, port: int, folder: str) -> tuple[str, float]:
    """Processes 1 and 2 are both rank 1 of 3."""
    store = store_of(kind, rank, port, folder)
    result = failure(join, store, min(rank, 1), 3)
    stay(store, rank, n)
    return result


def lives(rank: int, n: int, kind: str, port: int, folder: str) -> None:
    """Groups are left and made again with one store; who is quick is there again before the others have come."""
    store = store_of(kind, rank, port, folder)
    own = random.Random(rank)
    for life in range(25):
        group = join(store, rank, n)
        assert total(group, 100 * life + rank) == n * 100 * life + n * (n - 1) / 2, life
        if own.random() < 0.5:
            time.sleep(own.random() * 0.02)
        group.shutdown()
        if own.random() < 0.5:
            time.sleep(own.random() * 0.02)
    stay(store, rank, n)


def ends_badly(rank: int, n: int, whole: bool) -> None:
    group = None if whole else dist.new_group(list(range(n)))
    try:
        dist.broadcast(torch.ones(4, dtype=torch.float32 if rank == 0 else torch.float64), 0, group=group)
    except RuntimeError as error:
        assert "float64" in str(error), error
    else:
        assert rank == 0
    time.sleep(0.5)
    dist.destroy_process_group()
    assert not dist.is_initialized()


def shorter_limit(rank: int, n: int) -> None:
    import warnings

    from torch.distributed.distributed_c10d import _set_pg_timeout

    other = dist.new_group(timeout=timedelta(seconds=LIMIT))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _set_pg_timeout(timedelta(seconds=0.5))
        _set_pg_timeout(timedelta(seconds=LIMIT), other)
    if rank == 0:
        message, took = failure(dist.all_reduce, torch.ones(1))
        assert "Timed out" in message and took < SOON, (message, took)
    else:
        time.sleep(2)


def interrupted(rank: int, n: int, kind: str, port: int, folder: str) -> None:
    """Ctrl-C while rank 1 waits for rank 0, which does not come: the wait ends, and the program can use its store."""
    store = store_of(kind, rank, port, folder)
    if rank == 1:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        began = time.monotonic()
        try:
            join(store, rank, n)
        except KeyboardInterrupt:
            pass
        else:
            raise AssertionError("expected KeyboardInterrupt")
        store.set("free", "now")
        assert time.monotonic() - began < SOON, time.monotonic() - began
    stay(store, rank, n)


def interrupted_while_the_server_is_stopped(rank: int, n: int, kind: str, port: int, folder: str) -> None:
    store = store_of(kind, rank, port, folder)
    if rank == 0:
        store.set("server", str(os.getpid()))
    else:
        server = int(store.get("server"))
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.kill(server, signal.SIGSTOP)
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        began = time.monotonic()
        try:
            join(store, rank, n)
        except KeyboardInterrupt:
            assert time.monotonic() - began < SOON, time.monotonic() - began
        else:
            raise AssertionError("expected KeyboardInterrupt")
        finally:
            os.kill(server, signal.SIGCONT)
    stay(store, rank, n)


# Rank 0 serves the store. Rank 1 finds out that their calls do not match when rank 0, and with it the store, may be gone.
GONE = """
import os, sys, time, torch, torch.distributed as dist
from datetime import timedelta
dist.init_process_group("tutti", timeout=timedelta(seconds=30))
if dist.get_rank() == 0:
    dist.broadcast_object_list(["abc"], 0)
    dist.destroy_process_group()
    os._exit(0)
time.sleep(float(sys.argv[1]))
began = time.monotonic()
try:
    dist.all_gather_object([None] * 2, "x" * 100)
except RuntimeError as error:
    print(f"{time.monotonic() - began:.3f} {error}")
"""


class Groups(unittest.TestCase):
    def run_in_stores(self, n: int, function, *arguments, kinds=KINDS) -> list:
        """What the ranks returned, with each kind of store."""
        found = []
        for kind in kinds:
            with self.subTest(kind), tempfile.TemporaryDirectory() as folder:
                found.append(ranks.run(n, function, kind, ranks.free_port(), folder, *arguments, backend=None))
        return found

    def assert_told(self, result: tuple[str, float], *words: str) -> None:
        message, took = result
        for word in words:
            self.assertIn(word, message)
        self.assertLess(took, SOON, message)

    def test_groups_of_different_ranks_that_are_made_at_once_do_not_mix(self) -> None:
        ranks.run(4, halves)

    def test_groups_of_members_alone_and_of_meshes(self) -> None:
        ranks.run(4, other_ways)

    def test_ranks_that_make_a_group_of_different_lists_say_so(self) -> None:
        for own, words in ([0, 1], "2 ranks"), ([0, 2], "ranks [0, 2]"):
            for result in ranks.run(3, different_lists, own):
                self.assert_told(result, "says 3 ranks", f"rank 0 says {words}")

    def test_who_comes_late_meets_the_others_in_their_second_try(self) -> None:
        self.run_in_stores(2, late_once)

    def test_who_comes_early_meets_the_others_in_its_second_try(self) -> None:
        self.run_in_stores(2, early_once)

    def test_who_gives_up_says_so_and_all_meet_later(self) -> None:
        for results in self.run_in_stores(3, one_gives_up):
            self.assert_told(results[0], "rank 1", "imed out")
            self.assert_told(results[1], "imed out")

    def test_who_fails_tells_the_others_why(self) -> None:
        for bad in range(3):
            for results in self.run_in_stores(3, one_fails, bad, kinds=KINDS if bad == 1 else ("tcp",)):
                for result in results:
                    self.assert_told(result, "192.0.2.1")
                for rank in {0, 1, 2} - {bad}:
                    self.assert_told(results[rank], f"rank {bad}")

    def test_ranks_that_disagree_about_the_world_size_all_say_so(self) -> None:
        for said in ([2, 3], [3, 2], [3, 3, 4]):
            other = max(said) if said[0] == min(said) else min(said)
            for results in self.run_in_stores(len(said), sizes, said, kinds=KINDS if len(said) == 2 else ("tcp",)):
                for result in results:
                    self.assert_told(result, f"rank {said.index(other)} says {other} ranks", f"rank 0 says {said[0]} ranks")

    def test_a_rank_that_its_world_size_does_not_allow_is_heard_of(self) -> None:
        for results in self.run_in_stores(3, sizes, [3, 3, 2], kinds=("tcp",)):
            self.assert_told(results[2], "ValueError", "rank 2 of 2 ranks")
            for result in results[:2]:
                self.assert_told(result, "rank 2 cannot come: rank 2 of 2 ranks")

    def test_two_processes_cannot_be_one_rank(self) -> None:
        for results in self.run_in_stores(3, same_rank):
            for result in results:
                self.assert_told(result, "two say that they are rank 1, process")

    def test_ctrl_c_ends_the_wait_and_lets_go_of_the_store(self) -> None:
        self.run_in_stores(2, interrupted)

    def test_ctrl_c_ends_the_wait_for_a_server_that_is_stopped(self) -> None:
        self.run_in_stores(2, interrupted_while_the_server_is_stopped, kinds=("tcp",))

    def test_groups_live_one_after_the_other_in_one_store(self) -> None:
        self.run_in_stores(3, lives)

    def test_a_group_that_has_failed_can_be_destroyed(self) -> None:
        for whole in (False, True):
            with self.subTest(whole=whole):
                ranks.run(2, ends_badly, whole)

    def test_set_pg_timeout_knows_groups_of_ours(self) -> None:
        ranks.run(2, shorter_limit)

    def test_a_verdict_does_not_wait_for_a_store_that_has_gone(self) -> None:
        for pause in ("0", "0.5"):
            with self.subTest(pause):
                environment = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(ranks.free_port()),
                                            "WORLD_SIZE": "2"}
                started = [subprocess.Popen([sys.executable, "-c", GONE, pause], stdout=subprocess.PIPE,
                                            stderr=subprocess.PIPE, text=True, env=environment | {"RANK": str(rank)})
                           for rank in (1, 0)]
                out, err = started[0].communicate(timeout=60)
                started[1].communicate(timeout=60)
                took, message = out.split(" ", 1)
                self.assertLess(float(took), 5, out)
                self.assertIn("rank 0 called broadcast", message)
                self.assertNotIn("frame #", message)
                if pause != "0":  # else rank 0 may end just while it is asked
                    self.assertNotIn("frame #", err)


class Stores(unittest.TestCase):
    def test_arguments_that_cannot_be_are_value_errors(self) -> None:
        second = timedelta(seconds=1)
        for name, call in {
            "world_size": lambda: tutti.torch.TCPStore("127.0.0.1", 0, 0, True),
            "timeout": lambda: tutti.torch.TCPStore("127.0.0.1", 0, None, True, -second),
            "master_listen_fd": lambda: tutti.torch.TCPStore("127.0.0.1", 0, None, True, master_listen_fd=-2),
            "keys and": lambda: tutti.torch.HashStore().multi_set(["a"], ["1", "2"]),
            "of -1000 ms": lambda: tutti.torch.HashStore(-second),
        }.items():
            with self.subTest(name), self.assertRaisesRegex(ValueError, name):
                call()

    def test_the_server_takes_a_socket_that_is_bound(self) -> None:
        import socket

        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        store = tutti.torch.TCPStore("127.0.0.1", port, None, True, timedelta(seconds=10), wait_for_workers=False,
                                     master_listen_fd=listener.detach(), use_libuv=False)
        self.assertEqual((store.port, store.libuvBackend), (port, True))
        client = tutti.torch.TCPStore("127.0.0.1", port, None, False, timedelta(seconds=10))
        client.set("a", "1")
        self.assertEqual(store.get("a"), b"1")


if __name__ == "__main__":
    unittest.main()
