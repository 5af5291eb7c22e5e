"""Every operation of the backend, against values that are known; 2 and 3 ranks."""

import unittest

import ranks
import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
          torch.float32, torch.float64, torch.complex64, torch.complex128]


def all_reduces(rank: int, n: int) -> None:
    for dtype in DTYPES:
        tensor = torch.full((5, 3), rank + 1).to(dtype)
        dist.all_reduce(tensor)
        expected = torch.full((5, 3), n * (n + 1) // 2).to(dtype)
        assert torch.equal(tensor, expected), (dtype, tensor)
    for op, expected in ((ReduceOp.MAX, n), (ReduceOp.MIN, 1), (ReduceOp.PRODUCT, 2 if n == 2 else 6),
                         (ReduceOp.AVG, (n + 1) / 2), (dist._make_nccl_premul_sum(2.0), n * (n + 1))):
        tensor = torch.full((7,), float(rank + 1))
        dist.all_reduce(tensor, op)
        assert torch.equal(tensor, torch.full((7,), float(expected))), (op, tensor)
    for op, function in ((ReduceOp.BAND, torch.bitwise_and), (ReduceOp.BOR, torch.bitwise_or),
                         (ReduceOp.BXOR, torch.bitwise_xor)):
        tensor = torch.tensor([rank + 5, 12 >> rank])
        expected = torch.tensor([5, 12])
        for other in range(1, n):
            expected = function(expected, torch.tensor([other + 5, 12 >> other]))
        dist.all_reduce(tensor, op)
        assert torch.equal(tensor, expected), (op, tensor, expected)


def layouts(rank: int, n: int) -> None:
    """Strides are respected, on each rank its own, and nothing beside the view changes."""
    base = torch.zeros(6, 8)
    view = base[1:5, ::2] if rank == 0 else torch.zeros(4, 4).t()
    view.copy_(torch.arange(16.0).reshape(4, 4))
    dist.all_reduce(view)
    assert torch.equal(view, n * torch.arange(16.0).reshape(4, 4))
    assert rank != 0 or base[:, 1::2].abs().sum() == 0
    for shape in ((0,), (3, 0, 2), ()):
        tensor = torch.ones(shape)
        dist.all_reduce(tensor)
        assert tensor.shape == shape and (tensor == n).all()
    leaf = torch.ones(3, requires_grad=True)
    dist.all_reduce(leaf)
    assert leaf.requires_grad and leaf.detach().eq(n).all()


def sparse(rank: int, n: int) -> None:
    indices = torch.tensor([[0, rank + 1], [1, 0]])
    tensor = torch.sparse_coo_tensor(indices, torch.tensor([1.0, rank + 10.0]), (5, 2))
    dist.all_reduce(tensor)
    expected = torch.zeros(5, 2)
    expected[0, 1] = n
    for other in range(n):
        expected[other + 1, 0] = other + 10
    assert torch.equal(tensor.to_dense(), expected), tensor
    empty = torch.sparse_coo_tensor(torch.zeros(1, rank, dtype=torch.int64), torch.ones(rank), (4,))
    work = dist.all_reduce(empty, async_op=True)
    work.wait()
    assert empty.to_dense()[0] == n * (n - 1) / 2


def moves(rank: int, n: int) -> None:
    tensor = torch.full((3,), rank)
    dist.broadcast(tensor, src=n - 1)
    assert tensor.eq(n - 1).all()
    odd = torch.full((4,), float(rank)).to(torch.float8_e4m3fnuz)  # a type that is only moved
    dist.broadcast(odd, src=1)
    assert odd.float().eq(1).all()
    tensor = torch.full((3,), rank + 1.0)
    dist.reduce(tensor, dst=1)
    assert tensor.eq(n * (n + 1) / 2 if rank == 1 else rank + 1).all()
    gathered = [torch.empty(r + 1) for r in range(n)]
    if dist.get_backend() == "tutti":  # counts may differ
        dist.all_gather(gathered, torch.full((rank + 1,), float(rank)))
        assert all(part.shape == (r + 1,) and part.eq(r).all() for r, part in enumerate(gathered))
    flat = torch.empty(n * 2)
    dist.all_gather_into_tensor(flat, torch.tensor([rank, -rank]).float())
    assert torch.equal(flat.view(n, 2)[:, 0], torch.arange(n).float())
    stacked = torch.empty(n, 2)
    dist.all_gather_into_tensor(stacked, torch.full((2,), float(rank)))
    assert torch.equal(stacked[:, 1], torch.arange(n).float())
    parts = [torch.empty(2) for _ in range(n)] if rank == 1 else None
    dist.gather(torch.full((2,), float(rank)), parts, dst=1)
    assert parts is None or all(part.eq(r).all() for r, part in enumerate(parts))
    part = torch.empty(2)
    dist.scatter(part, [torch.full((2,), float(r)) for r in range(n)] if rank == 0 else None, src=0)
    assert part.eq(rank).all()
    out = torch.empty(2)
    dist.reduce_scatter(out, [torch.full((2,), float(r + rank)) for r in range(n)])
    assert out.eq(rank * n + n * (n - 1) / 2).all()
    dist.reduce_scatter_tensor(out, torch.arange(2.0 * n), op=ReduceOp.AVG)
    assert torch.equal(out, torch.arange(2.0 * n)[2 * rank:2 * rank + 2])
    out = torch.empty(n, 2)
    dist.all_to_all_single(out, torch.full((n, 2), float(rank)))
    assert torch.equal(out[:, 0], torch.arange(n).float())
    splits = [r + 1 for r in range(n)]
    out = torch.empty(n * (rank + 1), 2)
    dist.all_to_all_single(out, torch.full((sum(splits), 2), float(rank)), [rank + 1] * n, splits)
    assert torch.equal(out[:, 0], torch.arange(n).repeat_interleave(rank + 1).float())
    outs = [torch.empty(rank + 1) for _ in range(n)]
    dist.all_to_all(outs, [torch.full((r + 1,), float(rank)) for r in range(n)])
    assert all(part.eq(r).all() for r, part in enumerate(outs))
    dist.barrier()
    dist.monitored_barrier()


def messages(rank: int, n: int) -> None:
    if rank == 0:
        dist.send(torch.arange(3), 1, tag=7)
        work = dist.isend(torch.arange(4), 1)
        work.wait()
    if rank == 1:
        late, early = torch.empty(4, dtype=torch.int64), torch.empty(3, dtype=torch.int64)
        work = dist.irecv(late, 0)
        assert dist.recv(early, 0, tag=7) == 0
        work.wait()
        assert torch.equal(late, torch.arange(4)) and torch.equal(early, torch.arange(3))
    dist.barrier()
    if rank == 0:
        for _ in range(n - 1):
            tensor = torch.empty(1)
            source = dist.recv(tensor)
            assert tensor.item() == source
    else:
        dist.send(torch.tensor([float(rank)]), 0)
    dist.barrier()  # a receive from anyone would take what comes next, too
    out, into = torch.full((2,), float(rank)), torch.empty(2)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, out, (rank + 1) % n),
                                    dist.P2POp(dist.irecv, into, (rank - 1) % n)])
    for work in works:
        work.wait()
    assert into.eq((rank - 1) % n).all()


def works_and_futures(rank: int, n: int) -> None:
    tensor = torch.ones(1000)
    work = dist.all_reduce(tensor, async_op=True)
    future = work.get_future().then(lambda f: f.value()[0] / n)
    assert work.wait() and work.is_completed() and work.is_success()
    assert future.wait().eq(1).all() and work.result()[0].eq(n).all()
    assert work.get_future().done() and work.get_future().value()[0] is not None
    lists = [torch.empty(2) for _ in range(n)]
    assert len(dist.all_gather(lists, torch.ones(2), async_op=True).get_future().wait()) == n
    assert dist.barrier(async_op=True).get_future().wait() == []
    for _ in range(50):  # dropped without a wait: the tensors live on until it is done
        dist.all_reduce(torch.ones(10000), async_op=True)
    done = []
    futures = [dist.all_reduce(torch.ones(10), async_op=True).get_future().then(lambda f, i=i: done.append(i))
               for i in range(20)]
    torch.futures.wait_all(futures)
    assert sorted(done) == list(range(20)), done
    assert dist.all_reduce(torch.ones(10), async_op=True).get_future_result().wait() == 0


def coalescing(rank: int, n: int) -> None:
    group = dist.group.WORLD
    tensors = [torch.full((k + 1,), float(rank)) for k in range(4)]
    with dist._coalescing_manager(group, torch.device("cpu"), async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    assert all(tensor.eq(n * (n - 1) / 2).all() for tensor in tensors)
    backend = group._get_backend(torch.device("cpu"))
    outs = [torch.empty(n * 2), torch.empty(n * 3)]
    gather = getattr(backend, "all_gather_single_coalesced", None)  # its name since 2.15
    if gather:
        gather(outs, [torch.full((2,), float(rank)), torch.full((3,), float(rank))]).wait()
        assert all(torch.equal(out.view(n, -1)[:, 0], torch.arange(n).float()) for out in outs)
    gathered = [[torch.empty(2)] for _ in range(n)]
    dist.all_gather_coalesced(gathered, [torch.full((2,), float(rank))])
    assert all(part[0].eq(r).all() for r, part in enumerate(gathered))
    dist.all_reduce_coalesced(tensors)
    assert all(tensor.eq(n * n * (n - 1) / 2).all() for tensor in tensors)


def groups(rank: int, n: int) -> None:
    pair = dist.new_group([0, 1])
    if rank < 2:
        tensor = torch.ones(2)
        dist.all_reduce(tensor, group=pair)
        assert tensor.eq(2).all()
    parts = [[0, 1], list(range(2, n))] if n > 2 else [[0, 1]]
    mine = next(part for part in parts if rank in part)
    split = dist.group.WORLD.split_group(mine, group_name=f"split{parts.index(mine)}")
    tensor = torch.ones(2)
    split.allreduce([tensor]).wait()
    assert split.size() == len(mine) and tensor.eq(len(mine)).all()
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert backend.supports_splitting and not backend.supports_coalescing and backend.options.backend == dist.get_backend()
    assert backend.name() == dist.get_backend() and backend.rank() == rank and backend.size() == n
    before = backend._get_sequence_number_for_group()
    dist.barrier()
    assert backend._get_sequence_number_for_group() == before + 1
    objects = [None] * n
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": r} for r in range(n)]


class Collectives(unittest.TestCase):
    pass


for check in (all_reduces, layouts, sparse, moves, messages, works_and_futures, coalescing, groups):
    for count in (2, 3):
        def test(self: unittest.TestCase, check=check, count=count) -> None:
            ranks.run(count, check)

        setattr(Collectives, f"test_{check.__name__}_of_{count}_ranks", test)

if __name__ == "__main__":
    unittest.main()
