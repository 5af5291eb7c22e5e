"""Symmetric memory as PyTorch's tensors, and as the buffers of DDP and FSDP2."""

import gc
import unittest

import ranks
import torch
import torch._dynamo  # noqa: F401: so that no rank loads it
import torch.distributed as dist
import torch.distributed.fsdp
import training
from failures_test import expect, message_of

from tutti.torch import empty_symmetric


def mapped() -> int:
    """Pages of shared memory that this process has touched."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[2])


def tensors(rank: int, n: int) -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.float8_e4m3fnuz, torch.bool):
        tensor = empty_symmetric(3, 5, dtype=dtype)
        assert tensor.shape == (3, 5) and tensor.dtype == dtype and tensor.is_contiguous()
        assert not tensor.view(torch.uint8).any()
    x = empty_symmetric((1 << 20,))
    assert x.dtype == torch.get_default_dtype() and x.data_ptr() % 4096 == 0
    x.fill_(rank + 1)
    dist.all_reduce(x)
    assert x.eq(n * (n + 1) / 2).all()
    part = x[100:50_100]  # the storage lives on with a view
    del x
    gc.collect()
    part.fill_(rank)
    dist.broadcast(part, n - 1)
    assert part.eq(n - 1).all()
    out, chunk = empty_symmetric(n * 1000), empty_symmetric(1000)
    chunk.fill_(rank)
    dist.all_gather_into_tensor(out, chunk)
    assert torch.equal(out.view(n, -1)[:, 7], torch.arange(n).float())
    assert empty_symmetric(0).numel() == 0
    group = dist.new_group(list(range(n)))
    y = empty_symmetric(4096, dtype=torch.float64, group=group)
    y.fill_(1)
    dist.all_reduce(y, group=group)
    assert y.eq(n).all()


def memory_comes_back(rank: int, n: int) -> None:
    size = 8 << 20
    empty_symmetric(size).fill_(1)
    dist.barrier()
    before = mapped()
    for _ in range(10):
        x = empty_symmetric(size)
        x.fill_(1)
        dist.all_reduce(x)
        del x
    dist.barrier()
    assert (mapped() - before) * 4096 < 4 * size * 4, (before, mapped())


def wrong(rank: int, n: int) -> None:
    expect(message_of(empty_symmetric, 3, -1), "ValueError", "empty_symmetric", "-1")
    other = dist.new_group(backend="gloo")
    expect(message_of(empty_symmetric, 3, group=other), "TypeError", "gloo", "tutti")
    outside = dist.new_group([0])
    if rank == 1:
        expect(message_of(empty_symmetric, 3, group=outside), "ValueError", "not in the group")
    expect(message_of(empty_symmetric, 3 + rank), "DistBackendError", "empty_symmetric", "3", "4")


def ddp(rank: int, n: int) -> list[float]:
    """A hook that reduces every bucket in one symmetric buffer."""
    net = torch.nn.parallel.DistributedDataParallel(training.model())
    buffers: dict[int, torch.Tensor] = {}

    def hook(state: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        flat = bucket.buffer()
        buffer = buffers[bucket.index()] if bucket.index() in buffers else empty_symmetric(flat.numel(), dtype=flat.dtype)
        buffers[bucket.index()] = buffer
        buffer.copy_(flat).div_(n)
        return dist.all_reduce(buffer, async_op=True).get_future().then(lambda future: flat.copy_(future.value()[0]))

    net.register_comm_hook(None, hook)
    return training.train(net, torch.optim.SGD(net.parameters(), lr=0.1), rank) + [training.total(net.parameters())]


class Gather(torch.distributed.fsdp._fully_shard._fsdp_collectives.DefaultAllGather):
    made = 0

    def allocate(self, size, *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        Gather.made += 1
        return empty_symmetric(size, dtype=dtype)


class Scatter(torch.distributed.fsdp._fully_shard._fsdp_collectives.DefaultReduceScatter):
    def allocate(self, size, *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return empty_symmetric(size, dtype=dtype)


def fsdp2(rank: int, n: int, symmetric: bool) -> list[float]:
    net = torch.distributed.fsdp.fully_shard(training.model(),
                                             mesh=dist.device_mesh.init_device_mesh("cpu", (n,)))
    if symmetric:
        net.set_custom_all_gather(Gather())
        net.set_custom_reduce_scatter(Scatter())
    numbers = training.train(net, torch.optim.SGD(net.parameters(), lr=0.1), rank)
    assert Gather.made > 0 or not symmetric
    return numbers + [training.total(p.full_tensor() for p in net.parameters())]


class Symmetric(unittest.TestCase):
    def test_tensors(self) -> None:
        for count in (2, 3):
            ranks.run(count, tensors)

    def test_memory_comes_back(self) -> None:
        ranks.run(2, memory_comes_back)

    def test_bad_requests(self) -> None:
        ranks.run(2, wrong)

    def test_as_ddps_buffers(self) -> None:
        plain = training.ddp  # the same model without the hook: its first training
        expected = ranks.run(2, plain)
        for found, reference in zip(ranks.run(2, ddp), expected):
            torch.testing.assert_close(found, reference[:len(found)], rtol=1e-5, atol=1e-6)

    def test_as_fsdps_buffers(self) -> None:
        torch.testing.assert_close(ranks.run(2, fsdp2, True), ranks.run(2, fsdp2, False), rtol=1e-6, atol=1e-7)


if __name__ == "__main__":
    unittest.main()
