"""What goes wrong ends with a Python exception that names rank and operation, on every rank, and never hangs or aborts."""

import os
import pathlib
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

LONG = os.environ.get("TUTTI_TORCH_TESTS") == "all"


def message_of(function, *arguments, **keywords) -> str:
    try:
        function(*arguments, **keywords)
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"
    raise AssertionError("expected an exception")


def expect(message: str, *words: str) -> None:
    for word in words:
        assert word in message, f"{word!r} is not in: {message}"


def bad_tensors(rank: int, n: int) -> None:
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    x = torch.ones(2)
    expect(message_of(backend.allreduce, [torch.empty(2, device="meta")]), "all_reduce", "meta", "expected one with data")
    expect(message_of(backend.broadcast, [torch.eye(2).to_sparse()]), "broadcast", "Sparse", "expected a dense")
    expect(message_of(backend.allreduce, [torch.eye(2).to_sparse_csr()]), "SparseCsr", "expected")
    expect(message_of(dist.all_reduce, torch.ones(2, dtype=torch.float8_e4m3fnuz)), "all_reduce", "Float8_e4m3fnuz")
    expect(message_of(dist.all_reduce, x, dist.ReduceOp.BAND), "band", "Float")
    expect(message_of(backend.all_gather_single if hasattr(backend, "all_gather_single") else backend._allgather_base,
                      torch.empty(2 * n + 1), x), "world_size times")
    expect(message_of(backend.allgather, [[x] * (n + 1)], [x]), f"expected length {n}, got {n + 1}")
    expect(message_of(backend.allgather, [[x.long()] * n], [x]), "invalid tensor type at index 0")
    expect(message_of(backend.send, [x], n, 0), "dst is", str(n))
    expect(message_of(backend.recv, [x], -1, 0), "src is -1")
    options = dist.BroadcastOptions()
    options.rootRank = -1
    options.rootTensor = 0
    expect(message_of(backend.broadcast, [x], options), "invalid root rank: -1")
    expect(message_of(backend.allreduce, []), "requires non-empty tensor list")
    expect(message_of(dist.all_to_all_single, torch.empty(n), torch.empty(n), [1] * n, [2] * n), "plit sizes")
    dist.all_reduce(x)  # nothing was sent, so the group is as it was
    assert x.eq(n).all()


def mismatch(rank: int, n: int) -> None:
    message = message_of(dist.all_reduce, torch.ones(10_000 + rank))
    expect(message, "DistBackendError", "all_reduce", "10000", "10001")


def absent_rank(rank: int, n: int) -> None:
    if rank == 1:
        time.sleep(3)
        return
    work = dist.all_reduce(torch.ones(4), async_op=True)
    expect(message_of(work.wait, timedelta(milliseconds=200)), "DistBackendError", "Timed out")
    group = dist.group.WORLD._get_backend(torch.device("cpu"))
    group.abort()
    expect(message_of(work.wait), "DistBackendError", "abort")
    assert work.get_future_result().wait() in (2, 100)
    expect(message_of(work.get_future().wait), "abort")


def error_kinds(rank: int, n: int) -> None:
    """get_error() of a group says how it failed, also where nobody waits for what did."""
    from torch._C._distributed_c10d import ErrorType

    cpu = torch.device("cpu")
    group = dist.new_group(timeout=timedelta(milliseconds=300))
    backend = group._get_backend(cpu)
    late = torch.ones(2)
    message_of(backend.broadcast, [torch.eye(2).to_sparse()])
    assert backend.get_error() == ErrorType.SUCCESS
    if rank == 0:
        work = dist.irecv(late, 1, group=group)  # dropped, and nobody sends
        del work
        until = time.monotonic() + 10
        while backend.get_error() == ErrorType.SUCCESS and time.monotonic() < until:
            time.sleep(0.01)
        assert backend.get_error() == ErrorType.TIMEOUT, backend.get_error()
    world = dist.group.WORLD._get_backend(cpu)
    dist.barrier()
    assert world.get_error() == ErrorType.SUCCESS
    if rank == 1:
        world.abort()
    message_of(dist.barrier)
    assert world.get_error() == ErrorType.COMM_ERROR, world.get_error()


def press_soon() -> list[float]:
    """Ctrl-C in half a second; its moment will be in the list."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sent = []

    def press() -> None:
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    threading.Timer(0.5, press).start()
    return sent


def interrupted(rank: int, n: int, kind: str) -> None:
    """Ctrl-C in a rank whose peer does not come."""
    if rank == 1:
        time.sleep(2.5)
        return
    x = torch.ones(4)
    work = dist.all_reduce(x, async_op=True) if kind == "wait" else None
    sent = press_soon()
    try:
        if work is not None:
            work.wait()
        elif kind == "recv":
            dist.recv(x, 1)
        else:
            dist.all_reduce(x)
    except KeyboardInterrupt:
        took = time.monotonic() - sent[0]
        assert took < 0.1, took
    else:
        raise AssertionError("expected KeyboardInterrupt")


def interrupted_init(rank: int, n: int, path: str) -> None:
    if rank == 1:
        return
    sent = press_soon()
    try:
        dist.init_process_group("tutti", store=dist.FileStore(path, n), rank=rank, world_size=n)
    except KeyboardInterrupt:
        assert time.monotonic() - sent[0] < 0.1
    else:
        raise AssertionError("expected KeyboardInterrupt")


def dead_rank(rank: int, n: int) -> None:
    if rank == 1:
        os._exit(0)
    began = time.monotonic()
    expect(message_of(dist.all_reduce, torch.ones(4)), "DistBackendError", "rank 1", "closed")
    assert time.monotonic() - began < 5


def own_stores(rank: int, n: int, port_file: str) -> None:
    import tutti.torch

    if rank == 0:
        store = tutti.torch.TCPStore("127.0.0.1", 0, n, True, timedelta(seconds=20), wait_for_workers=False)
        pathlib.Path(port_file + ".new").write_text(str(store.port))
        os.rename(port_file + ".new", port_file)
    else:
        while not os.path.exists(port_file):
            time.sleep(0.01)
        store = tutti.torch.TCPStore("127.0.0.1", int(pathlib.Path(port_file).read_text()), n, False, timedelta(seconds=20))
    assert isinstance(store, dist.Store)
    store.set("a", "1")
    assert store.get("a") == b"1" and store.add("n", 2) >= 2 and store.check(["a"])
    assert store.compare_set("c", "", "x") == b"x"
    if rank == 0:
        for value in ("first", "second"):
            store.queue_push("q", value)
    if rank == n - 1:
        assert [store.queue_pop("q"), store.queue_pop("q")] == [b"first", b"second"] and store.queue_len("q") == 0
        expect(message_of(store.queue_pop, "q", False), "empty")
        store.set("q/queue/popped", "many")  # others' bytes
        for ask in (lambda: store.queue_pop("q", False), lambda: store.queue_len("q")):
            expect(message_of(ask), "q/queue/popped", "many", "expected how many")
    expect(message_of(store.wait, ["nothing"], timedelta(milliseconds=100)), "DistStoreError", "nothing")
    dist.init_process_group("tutti", store=store, rank=rank, world_size=n)
    dist.barrier()


class PythonStore(dist.Store):
    """A store of the program's own, in Python: the world's threads need the GIL for it."""

    def __init__(self, inner: dist.Store) -> None:
        super().__init__()
        self.inner = inner

    def set(self, key, value):
        return self.inner.set(key, value)

    def get(self, key):
        return self.inner.get(key)

    def add(self, key, value):
        return self.inner.add(key, value)

    def check(self, keys):
        return self.inner.check(keys)

    def wait(self, keys, timeout=timedelta(seconds=20)):
        return self.inner.wait(keys, timeout)


def python_store(rank: int, n: int, path: str) -> None:
    store = PythonStore(dist.FileStore(path, n))
    dist.init_process_group("tutti", store=store, rank=rank, world_size=n)
    x = torch.ones(3)
    dist.all_reduce(x)
    assert x.eq(n).all()


def again(rank: int, n: int, path: str) -> None:
    """A group is left and made again with the same store."""
    store = dist.FileStore(path, n)
    for _ in range(3):
        dist.init_process_group("tutti", store=store, rank=rank, world_size=n)
        x = torch.ones(3)
        dist.all_reduce(x)
        dist.destroy_process_group()


def join_alone(store: dist.Store) -> None:
    """The group's own timeout counts, whatever the store's is."""
    began = time.monotonic()
    message = message_of(dist.init_process_group, "tutti", store=store, rank=0, world_size=2, timeout=timedelta(seconds=1))
    expect(message, "timed out on rank 0; not there: 1")
    assert 0.9 < time.monotonic() - began < 5, f"{time.monotonic() - began} s"


def alone(rank: int, n: int, path: str) -> None:
    for limit in (1, 60):
        own = timedelta(seconds=limit)
        join_alone(dist.TCPStore("127.0.0.1", 0, 2, True, timeout=own, wait_for_workers=False))
    store = dist.FileStore(path, 2)
    store.set_timeout(timedelta(seconds=60))
    join_alone(store)


class Failures(unittest.TestCase):
    def test_bad_arguments_name_themselves(self) -> None:
        ranks.run(2, bad_tensors)

    def test_ranks_that_disagree_all_learn_it(self) -> None:
        ranks.run(2, mismatch)

    def test_waits_end_at_their_limit_and_by_abort(self) -> None:
        ranks.run(2, absent_rank)

    def test_how_a_group_failed(self) -> None:
        ranks.run(2, error_kinds)

    def test_ctrl_c_ends_waits(self) -> None:
        for kind in ("blocking", "wait", "recv"):
            with self.subTest(kind):
                ranks.run(2, interrupted, kind)

    def test_ctrl_c_ends_the_wait_for_absent_ranks(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            ranks.run(2, interrupted_init, os.path.join(folder, "store"), backend=None)

    def test_ranks_that_never_come_are_named_in_time(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            ranks.run(1, alone, os.path.join(folder, "store"), backend=None)

    def test_a_dead_rank_is_named(self) -> None:
        with self.assertRaisesRegex(AssertionError, r"no answer from ranks \[1\]|exit codes \[0, 0"):
            ranks.run(2, dead_rank, limit=3)
            raise AssertionError("exit codes [0, 0: rank 0 has got its exception")

    def test_stores_of_ours(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            ranks.run(2, own_stores, os.path.join(folder, "port"), backend=None)

    def test_a_store_in_python(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            ranks.run(2, python_store, os.path.join(folder, "store"), backend=None)

    def test_the_same_store_again(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            ranks.run(2, again, os.path.join(folder, "store"), backend=None)

    def program(self, text: str) -> subprocess.CompletedProcess:
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "program.py"
            program.write_text("import os, sys, time, torch, torch.distributed as dist\n" + text)
            return ranks.torchrun(str(program), timeout=60)

    def test_the_interpreter_exits_with_work_pending(self) -> None:
        done = self.program('dist.init_process_group("tutti")\n'
                            "x = torch.ones(3)\n"
                            "w = dist.irecv(x, 1 - dist.get_rank())\n"  # nobody sends
                            "f = dist.all_reduce(torch.ones(9), async_op=True).get_future().then(lambda f: f.value())\n"
                            'print("the end")\n')
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("the end"), 2)

    @unittest.skipUnless(LONG, "takes long: TUTTI_TORCH_TESTS=all runs it")
    def test_a_group_is_destroyed_with_a_receive_pending(self) -> None:
        done = self.program('dist.init_process_group("tutti")\n'
                            "x = torch.ones(3)\n"
                            "w = dist.irecv(x, 1 - dist.get_rank())\n"
                            'dist.destroy_process_group()\nprint("the end")\n')
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("the end"), 2)

    def test_another_version_of_pytorch_is_refused(self) -> None:
        from tutti.torch import _module, _version

        built_for, _version.torch_version = _version.torch_version, "2.0.0"
        try:
            expect(message_of(_module._load.__wrapped__), "ImportError", "built for PyTorch 2.0.0", torch.__version__)
        finally:
            _version.torch_version = built_for

    def test_usage_of_the_command(self) -> None:
        done = subprocess.run([sys.executable, "-m", "tutti.torch", "--replace-glo", "x.py"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("usage:", done.stderr)


if __name__ == "__main__":
    unittest.main()
