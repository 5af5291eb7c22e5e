"""What calls do where gloo's callers expect it: batches of messages, coalesced collectives whose memory overlaps, lists, the
words of errors, and the line of the program that errors name. By name and in gloo's place."""

import datetime
import pathlib
import tempfile
import threading
import time
import unittest
from typing import Any, Callable

import ranks
import torch
import torch.distributed as dist

import tutti.torch

CPU = torch.device("cpu")


def grouped(rank: int, n: int, backend: str, function: Callable, folder: str) -> None:
    """Runs `function` in a group by name, or of gloo's name."""
    if backend == "gloo":
        tutti.torch.replace_gloo()
    dist.init_process_group(backend, init_method=f"file://{folder}/{backend}", rank=rank, world_size=n,
                            timeout=datetime.timedelta(seconds=20))
    function(rank, n)
    if function not in (barrier_without_the_last, place):  # their groups have failed
        dist.destroy_process_group()


def threads(rank: int, n: int) -> None:
    """One exchanges messages, the other makes collectives, each in one order on all ranks."""
    wrong: list[Any] = []

    def messages() -> None:
        for k in range(60):
            x, y = torch.full((100,), float(rank + k)), torch.empty(100)
            for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, x, (rank + 1) % n),
                                                dist.P2POp(dist.irecv, y, (rank - 1) % n)]):
                work.wait()
            if not y.eq((rank - 1) % n + k).all():
                wrong.append(("message", k, y[0].item()))

    def collectives() -> None:
        for k in range(60):
            x = torch.full((100,), float(rank + k))
            dist.all_reduce(x)
            if not x.eq(sum(r + k for r in range(n))).all():
                wrong.append(("collective", k, x[0].item()))

    def guarded(function: Callable) -> None:
        try:
            function()
        except Exception as error:  # noqa: BLE001: the test says which
            wrong.append(repr(error))

    both = [threading.Thread(target=guarded, args=(function,), daemon=True) for function in (messages, collectives)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join(40)
    assert not wrong and not any(thread.is_alive() for thread in both), wrong[:3]


def works_of_a_batch(rank: int, n: int) -> None:
    other = 1 - rank
    assert not dist.group.WORLD._get_backend(CPU).supports_coalescing  # as gloo: else there is one Work for all
    if rank == 0:
        now, late = torch.zeros(4), torch.zeros(4)
        works = dist.batch_isend_irecv([dist.P2POp(dist.irecv, now, other, tag=5),
                                        dist.P2POp(dist.irecv, late, other, tag=6)])
        assert len(works) == 2
        works[0].wait()
        assert now.eq(5).all() and not works[1].is_completed()
        dist.send(torch.ones(1), other, tag=9)
        works[1].wait()
        assert late.eq(6).all()
    else:
        dist.send(torch.full((4,), 5.0), other, tag=5)
        dist.recv(torch.zeros(1), other, tag=9)
        dist.send(torch.full((4,), 6.0), other, tag=6)
    mine, got, sent = torch.full((3,), float(rank)), torch.empty(3), torch.empty(3)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, mine, rank), dist.P2POp(dist.isend, mine, other, tag=1),
                                    dist.P2POp(dist.irecv, got, rank), dist.P2POp(dist.irecv, sent, other, tag=1)])
    assert len(works) == 4
    for work in works:
        work.wait()
    assert got.eq(rank).all() and sent.eq(other).all()


def scopes(rank: int, n: int) -> None:
    """Each thread's coalescing is its own."""
    group, other = dist.group.WORLD, 1 - rank
    both_are_open, wrong = threading.Barrier(2), []

    def exchange(tag: int) -> None:
        x, y, z = torch.full((50,), float(10 * tag + rank)), torch.empty(50), torch.empty(50)
        group._start_coalescing(CPU)
        both_are_open.wait(10)
        group.send([x], other, tag)
        group.recv([y], other, tag)
        group.send([x], rank, tag + 10)
        group.recv([z], rank, tag + 10)
        both_are_open.wait(10)
        group._end_coalescing(CPU).wait()
        if not (y.eq(10 * tag + other).all() and z.eq(10 * tag + rank).all()):
            wrong.append((tag, y[0].item(), z[0].item()))

    pair = [threading.Thread(target=exchange, args=(tag,), daemon=True) for tag in (1, 2)]
    for thread in pair:
        thread.start()
    for thread in pair:
        thread.join(30)
    assert not wrong and not any(thread.is_alive() for thread in pair), wrong
    group._start_coalescing(CPU)
    for refused in (lambda: group._start_coalescing(CPU), lambda: group.allreduce([torch.ones(1), torch.ones(1)])):
        try:
            refused()
            raise AssertionError("not refused")
        except RuntimeError:
            pass
    group._end_coalescing(CPU).wait()


def overlaps(rank: int, n: int) -> None:
    group = dist.distributed_c10d._get_default_group()
    for count in (6, 60_000):
        t = torch.ones(count)
        dist.all_reduce_coalesced([t, t])
        assert t.eq(n).all(), t[0]
        group.allreduce_coalesced([t, t, t]).wait()
        assert t.eq(n * n).all()
        a = torch.arange(float(count))
        dist.all_reduce_coalesced([a[:count // 2 + 1], a[2:], a[::2]])
        assert torch.equal(a[:count // 2 + 1], n * torch.arange(float(count))[:count // 2 + 1])
        assert torch.equal(a, n * torch.arange(float(count)))
        square = torch.ones(count // 6, 6)
        dist.all_reduce_coalesced([square, square.t()])
        assert square.eq(n).all()
        out = torch.zeros(2 * n)
        gather = getattr(group, "all_gather_single_coalesced", None) or group.allgather_into_tensor_coalesced
        gather([out, out], [torch.ones(2), torch.full((2,), 2.0)]).wait()
        assert out.eq(2).all()  # the last one's


def lists(rank: int, n: int) -> None:
    group = dist.distributed_c10d._get_default_group()
    outputs = [[torch.tensor([-1]) for _ in range(2 * n)] for _ in range(2)]
    group.allgather(outputs, [torch.tensor([2 * rank + i]) for i in range(2)]).wait()
    assert [[int(t) for t in one] for one in outputs] == [list(range(2 * n))] * 2
    first = torch.sparse_coo_tensor([[rank]], [1.0], (3,))
    second = torch.sparse_coo_tensor([[rank, 2]], [2.0, 5.0], (3,))
    group.allreduce([first, second]).wait()
    expected = torch.tensor([3.0 if r < n else 0.0 for r in range(2)] + [5.0 * n])
    assert torch.equal(first.to_dense(), expected) and torch.equal(second.to_dense(), expected)


def words(rank: int, n: int) -> None:
    """Of argument errors: those of gloo, which programs and PyTorch's tests look for."""
    group = dist.distributed_c10d._get_default_group()
    one, wide, double = torch.zeros(1), torch.zeros(2), torch.zeros(1, dtype=torch.float64)
    sparse = torch.sparse_coo_tensor([[0]], [1.0], (1,))
    to_rank_0 = dist.GatherOptions()
    to_rank_0.rootRank = 0
    name = "Gloo" if dist.get_backend() == "gloo" else "Tutti"
    refusals = [
        ("allgather: invalid output tensor list at index 1 (expected length 4, got 1)",
         lambda: group.allgather([[one] * 2 * n, [one]], [one, one])),
        ("allgather: invalid tensor type at index 1 (expected TensorOptions(dtype=float",
         lambda: group.allgather([[one] * 2 * n] * 2, [one, double])),
        ("allgather_coalesced: invalid size of output tensor at index 0 (expected length (1), got (2))",
         lambda: group.allgather_coalesced([[wide]] * n, [one])),
        ("allgather_coalesced: invalid tensor type at index 0 (expected torch.FloatTensor, got torch.DoubleTensor)",
         lambda: group.allgather_coalesced([[double]] * n, [one])),
        ("allreduce: invalid tensor layout at index 1 (expected Strided, got Sparse)",
         lambda: group.allreduce([one, sparse])),
        ("gather: invalid tensor size at index 0 (expected (1), got (2))",
         lambda: group.gather([[wide] * n], [one], to_rank_0)),
        ("send takes a single tensor", lambda: group.send([one, one], 1 - rank, 0)),
    ]
    for text, call in refusals:
        if rank != 0 and ": gather" in f": {text}":
            continue
        try:
            call()
            raise AssertionError(f"not refused: {text}")
        except RuntimeError as error:
            assert f"ProcessGroup{name}::{text}" in str(error), (text, str(error))
    if name == "Gloo":
        try:
            dist.all_to_all_single(torch.zeros(2, 2).t(), torch.zeros(2, 2).t())
            raise AssertionError("not refused")
        except ValueError as error:
            assert "Tensors must be contiguous" in str(error)


def barrier_without_the_last(rank: int, n: int) -> None:
    """What monitored_barrier says on the others when rank 2 is late."""
    dist.barrier()
    if rank == 2:
        return time.sleep(3)
    said = ""
    try:
        dist.monitored_barrier(timeout=datetime.timedelta(seconds=1), wait_all_ranks=True)
    except RuntimeError as error:
        said = str(error)
    start = "[Rank 0]: Ranks 2 failed to pass monitoredBarrier in 1000 ms"
    if rank == 1:
        start = ("Rank 1 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank "
                 "0. Please check rank 0 logs for faulty rank.\n Original exception: \n")
    assert said.startswith(start), said


def place(rank: int, n: int) -> None:
    """A mismatch names the program's lines, whatever PyTorch has between them and the backend."""
    def ours() -> None:
        dist.all_reduce(torch.ones(8))  # the line of rank 0

    def theirs() -> None:
        dist.all_gather_into_tensor(torch.ones(2 * n), torch.ones(2))  # the line of rank 1

    ours()
    said = ""
    try:
        (ours if rank == 0 else theirs)()
    except RuntimeError as error:
        said = str(error)
    assert f'in group "{dist.group.WORLD.group_name}"' in said, said
    file = pathlib.Path(__file__).resolve()
    lines = file.read_text().splitlines()
    for what, function in (("# the line of rank 0", "ours"), ("# the line of rank 1", "theirs")):
        number = next(i for i, line in enumerate(lines, 1) if line.endswith(what))
        assert f"{file.name}:{number} in {function}" in said, said


class Calls(unittest.TestCase):
    def test_gloos_options(self) -> None:
        tutti.torch.replace_gloo()
        options = dist.ProcessGroupGloo._Options()
        options._timeout, options._threads = datetime.timedelta(seconds=5), 3
        options._devices = [dist.ProcessGroupGloo.create_device(interface="lo")]
        group = dist.ProcessGroupGloo(dist.PrefixStore("a", dist.HashStore()), 0, 1, options)
        self.assertEqual((group.options._threads, len(group.options._devices)), (3, 1))
        self.assertIs(type(group.options._devices[0]), dist.ProcessGroupGloo.Device)
        plain = dist.ProcessGroupGloo(dist.PrefixStore("b", dist.HashStore()), 0, 1, datetime.timedelta(seconds=5))
        self.assertEqual((plain.options._threads, len(plain.options._devices)), (2, 1))


for check, count in ((threads, 2), (works_of_a_batch, 2), (scopes, 2), (overlaps, 2), (overlaps, 3), (lists, 2), (words, 2),
                     (barrier_without_the_last, 3), (place, 2)):
    for backend in ("tutti", "gloo"):
        def test(self: unittest.TestCase, check=check, count=count, backend=backend) -> None:
            with tempfile.TemporaryDirectory() as folder:
                ranks.run(count, grouped, backend, check, folder, backend=None)

        setattr(Calls, f"test_{check.__name__}_of_{count}_ranks_{backend}", test)

if __name__ == "__main__":
    unittest.main()
