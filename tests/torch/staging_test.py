"""Tensors that are not in host memory, on a device of the tests' own (test_device.cpp), where a GPU's would be."""

import ctypes
import os
import pathlib
import sys
import time
import types
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

import ranks
import torch
import torch.distributed as dist
from rows import main, rows

LIBRARY = os.environ.get("TUTTI_TEST_DEVICE",
                         str(pathlib.Path(__file__).resolve().parents[2] / "build/torch-tests/tutti-torch-test-device.so"))
library = ctypes.CDLL(LIBRARY)
torch.utils.rename_privateuse1_backend("elsewhere")
module = types.ModuleType("torch.elsewhere")  # what PyTorch asks of a device's module
module.is_available, module.device_count, module.current_device = lambda: True, lambda: 1, lambda: 0
module.is_initialized, module._is_in_bad_fork = lambda: True, lambda: False
torch._register_device_module("elsewhere", module)


def there(*values: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype).to("elsewhere")


def values(tensor: torch.Tensor) -> list[float]:
    assert tensor.device.type == "elsewhere", tensor.device
    return tensor.cpu().flatten().tolist()


def begin(rank: int, n: int, path: str) -> None:
    dist.init_process_group("cpu:tutti,elsewhere:tutti", init_method=f"file://{path}", rank=rank, world_size=n)


def blocking(rank: int, n: int, path: str) -> None:
    begin(rank, n, path)
    x = there(1, rank)
    dist.all_reduce(x)
    assert values(x) == [n, n * (n - 1) / 2], values(x)
    base = torch.tensor([[1.0, 2.0], [3.0, 4.0]]).to("elsewhere")
    dist.all_reduce(base.t()[0])  # a column
    assert values(base) == [n, 2, 3 * n, 4], values(base)
    x = there(rank, dtype=torch.bfloat16)
    dist.broadcast(x, 1)
    assert values(x) == [1]
    x = there(rank + 1)
    dist.reduce(x, 0)
    assert values(x) == ([n * (n + 1) / 2] if rank == 0 else [rank + 1])
    parts = [there(0, 0) for _ in range(n)]
    dist.all_gather(parts, there(rank, -rank))
    assert [values(part) for part in parts] == [[r, -r] for r in range(n)]
    out = torch.zeros(2 * n).to("elsewhere")
    dist.all_gather_into_tensor(out, there(rank, 5))
    assert values(out)[::2] == list(range(n))
    parts = [there(0) for _ in range(n)] if rank == 0 else None
    dist.gather(there(rank), parts, 0)
    assert parts is None or [values(part) for part in parts] == [[r] for r in range(n)]
    x = there(-1)
    dist.scatter(x, [there(10 * r) for r in range(n)] if rank == 0 else None, 0)
    assert values(x) == [10 * rank]
    x = there(0)
    dist.reduce_scatter(x, [there(r + rank) for r in range(n)])
    assert values(x) == [n * rank + n * (n - 1) / 2]
    dist.reduce_scatter_tensor(x, there(*range(n)))
    assert values(x) == [n * rank]
    out = torch.zeros(n).to("elsewhere")
    dist.all_to_all_single(out, torch.full((n,), float(rank)).to("elsewhere"))
    assert values(out) == list(range(n))
    outs = [there(0) for _ in range(n)]
    dist.all_to_all(outs, [there(rank) for _ in range(n)])
    assert [values(part) for part in outs] == [[r] for r in range(n)]
    if rank == 0:
        dist.send(there(3, 4), 1)
    elif rank == 1:
        x = there(0, 0)
        assert dist.recv(x) == 0 and values(x) == [3, 4]
    mixed = torch.zeros(n)  # the result in host memory, the input elsewhere
    dist.group.WORLD._get_backend(torch.device("cpu"))._allgather_base(mixed, there(rank)).wait()
    assert mixed.tolist() == list(range(n))
    # All of this was copied back on the current stream, except by the receive: that is a Work also where one waits.
    assert library.tutti_test_side_stream_copies() == (rank == 1)
    dist.destroy_process_group()


def asynchronous(rank: int, n: int, path: str) -> None:
    begin(rank, n, path)
    x = there(1, 2)
    work = dist.all_reduce(x, async_op=True)
    future = work.get_future()
    waited = library.tutti_test_waits_for_events()
    assert work.wait() and work.is_completed() and work.is_success()
    assert values(x) == [n, 2 * n]
    assert library.tutti_test_side_stream_copies() == 1
    assert library.tutti_test_waits_for_events() > waited  # the current stream waits for the copy back
    assert future.value()[0] is not None and values(future.value()[0]) == [n, 2 * n] and values(work.result()[0]) == [n, 2 * n]
    then = dist.all_reduce(there(rank), async_op=True).get_future().then(lambda f: f.value()[0].cpu() / n)
    assert then.wait().item() == (n - 1) / 2
    dropped = [there(*([1.0] * 1000)) for _ in range(20)]
    for tensor in dropped:
        dist.all_reduce(tensor, async_op=True)  # dropped: buffers live on until they have been copied back
    with dist._coalescing_manager(dist.group.WORLD, torch.device("elsewhere"), async_ops=True) as manager:
        tensors = [there(rank, k) for k in range(3)]
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    assert [values(tensor) for tensor in tensors] == [[n * (n - 1) / 2, n * k] for k in range(3)]
    into = there(0)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, there(rank), (rank + 1) % n),
                                    dist.P2POp(dist.irecv, into, (rank - 1) % n)])
    for work in works:
        work.wait()
    assert values(into) == [(rank - 1) % n]
    dist.all_reduce_coalesced([into])
    gathered = [torch.zeros(1).to("elsewhere") for _ in range(n)]
    assert len(dist.all_gather(gathered, into, async_op=True).get_future().wait()) == n
    end = time.monotonic() + 20
    while not all(values(tensor) == [n] * 1000 for tensor in dropped):  # nobody has waited for them
        assert time.monotonic() < end, [values(tensor)[:2] for tensor in dropped]
        time.sleep(0.01)
    dist.destroy_process_group()


def failing(rank: int, n: int, path: str) -> None:
    begin(rank, n, path)
    x = there(1)
    if rank == 0:
        work = dist.all_reduce(x, async_op=True)
        dist.group.WORLD._get_backend(torch.device("elsewhere")).abort()
        for wait in (work.wait, work.get_future().wait):
            try:
                wait()
            except RuntimeError as error:
                assert "abort" in str(error), error
            else:
                raise AssertionError("expected an exception")
        assert values(x) == [1]  # nothing is copied back from an operation that failed


# Tensors of which no device is said, where a default device was set before: the same program on either.
def on_the_default_device(rank: int, n: int, path: str) -> None:
    begin(rank, n, path)
    for device in ("elsewhere", "cpu"):
        torch.set_default_device(device)
        x = torch.tensor([1.0, rank])
        dist.all_reduce(x)
        parts = [torch.tensor([-1.0]) for _ in range(n)]
        dist.all_gather(parts, torch.tensor([float(rank)]))
        for tensor in (x, *parts):
            assert tensor.device.type == device, tensor.device
        assert x.cpu().tolist() == [n, n * (n - 1) / 2] and [part.cpu().item() for part in parts] == list(range(n))
    dist.destroy_process_group()


class Staging(unittest.TestCase):
    def run_ranks(self, function, count: int = 2) -> None:
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            ranks.run(count, function, os.path.join(folder, "store"), backend=None)

    def test_blocking_operations(self) -> None:
        self.run_ranks(blocking)
        self.run_ranks(blocking, 3)

    def test_asynchronous_operations(self) -> None:
        self.run_ranks(asynchronous)

    def test_an_operation_that_fails(self) -> None:
        self.run_ranks(failing)

    @rows("A-31")
    def test_tensors_of_which_no_device_is_said(self) -> None:
        self.run_ranks(on_the_default_device)


if __name__ == "__main__":
    main("python_torch_staging")
