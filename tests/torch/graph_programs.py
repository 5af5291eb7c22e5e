"""What graph_test.py compiles: functions of a tensor that call torch.distributed as programs do, each giving a tensor or a
list of them. The shapes are those of TorchAir's communication tests (hcom_st): uneven exchanges of 4 ranks, lists, two
dimensions, roots by both names, something computed before and after."""

import torch
import torch.distributed as dist

import tutti.torch

UNEVEN = [[2, 3, 1, 0], [1, 2, 2, 4], [3, 1, 0, 2], [0, 1, 3, 1]]  # rows from rank i to rank j: 6, 9, 6 and 5


def all_reduce(x):
    y = x + 1
    dist.all_reduce(y)
    z = y * 2
    dist.all_reduce(z, op=dist.ReduceOp.MAX)
    return z + 1


def all_reduce_operators(x):
    results = []
    for op in (dist.ReduceOp.MIN, dist.ReduceOp.PRODUCT, dist.ReduceOp.AVG):
        y = x + dist.get_rank()
        dist.all_reduce(y, op)
        results.append(y)
    return results


def all_reduce_coalesced(x):
    tensors = [x + 1, x[0] * 2]
    dist.all_reduce_coalesced(tensors)
    return tensors


def reduce(x):
    y, z = x + dist.get_rank(), x * 2
    dist.reduce(y, 1)
    dist.reduce(z, group_dst=0, op=dist.ReduceOp.MAX)
    return [y, z]


def broadcast(x):
    y, z = x + dist.get_rank(), x * dist.get_rank()
    dist.broadcast(y, 0)
    dist.broadcast(z, group_src=1)
    return [y + 1, z - 1]


def all_gather(x):
    outputs = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(outputs, x + dist.get_rank())
    return torch.cat(outputs) + 1


def all_gather_uneven(x):
    n, rank = dist.get_world_size(), dist.get_rank()
    outputs = [x.new_empty(i + 1, 3) for i in range(n)]
    dist.all_gather(outputs, x.new_full((rank + 1, 3), 1.0) * x[0, 0] + rank)
    return outputs


def all_gather_into_tensor(x):
    n = dist.get_world_size()
    flat = x.new_empty(n * x.shape[0], x.shape[1])
    dist.all_gather_into_tensor(flat, x + dist.get_rank())
    stacked = x.new_empty(n, x.shape[0], x.shape[1])
    dist.all_gather_into_tensor(stacked, x * dist.get_rank())
    scalars = x.new_empty(n)
    dist.all_gather_into_tensor(scalars, x.sum() + dist.get_rank())
    return [flat + 1, stacked, scalars]


def all_gather_into_tensor_uneven(x):
    n, rank = dist.get_world_size(), dist.get_rank()
    sizes = [i + 1 for i in range(n)]
    whole, again = x.new_empty(sum(sizes), x.shape[1]), x.new_empty(sum(sizes), x.shape[1])
    mine = x[:1].repeat(rank + 1, 1) + rank
    tutti.torch.all_gather_into_tensor_uneven(whole, mine, sizes)
    tutti.torch.all_gather_into_tensor(again, mine * 2, output_split_sizes=sizes)
    return [whole, again]


def reduce_scatter(x):
    n, rank = dist.get_world_size(), dist.get_rank()
    even, uneven = torch.empty_like(x), x.new_empty(rank + 1)
    dist.reduce_scatter(even, [x + i for i in range(n)])
    dist.reduce_scatter(uneven, [x[0, :1].repeat(i + 1) * (i + 1) for i in range(n)], op=dist.ReduceOp.MAX)
    return [even, uneven]


def reduce_scatter_tensor(x):
    n = dist.get_world_size()
    flat, stacked = torch.empty_like(x), torch.empty_like(x)
    dist.reduce_scatter_tensor(flat, torch.cat([x + i for i in range(n)]))
    dist.reduce_scatter_tensor(stacked, torch.stack([x * i for i in range(n)]), op=dist.ReduceOp.AVG)
    return [flat, stacked]


def reduce_scatter_tensor_uneven(x):
    n, rank = dist.get_world_size(), dist.get_rank()
    sizes = [i + 1 for i in range(n)]
    part, again = x.new_empty(rank + 1, x.shape[1]), x.new_empty(rank + 1, x.shape[1])
    whole = x[:1].repeat(sum(sizes), 1) * 2
    tutti.torch.reduce_scatter_tensor_uneven(part, whole, sizes)
    tutti.torch.reduce_scatter_tensor(again, whole, dist.ReduceOp.MAX, input_split_sizes=sizes)
    return [part, again]


def all_to_all_single(x):
    n, rank = dist.get_world_size(), dist.get_rank()
    even = x.new_empty(n, x.shape[1])
    dist.all_to_all_single(even, torch.cat([x[:1] + rank * n + i for i in range(n)]))
    sent, received = UNEVEN[rank][:n], [row[rank] for row in UNEVEN[:n]]
    uneven = x.new_empty(sum(received), x.shape[1])
    dist.all_to_all_single(uneven, x[:1].repeat(sum(sent), 1) + rank, received, sent)
    return [even, uneven + 1]


def all_to_all(x):
    n, rank = dist.get_world_size(), dist.get_rank()
    even = [torch.empty_like(x) for _ in range(n)]
    dist.all_to_all(even, [x + i + rank for i in range(n)])
    uneven = [x.new_empty(UNEVEN[i][rank], 2) for i in range(n)]
    dist.all_to_all(uneven, [x[:1, :1].repeat(UNEVEN[rank][i], 2) + i for i in range(n)])
    return [*even, *uneven]


def gather(x):
    n, rank = dist.get_world_size(), dist.get_rank()
    parts = [torch.empty_like(x) for _ in range(n)] if rank == 1 else None
    dist.gather(x + rank, parts, dst=1)
    return torch.cat(parts) if rank == 1 else x


def scatter(x):
    n, rank = dist.get_world_size(), dist.get_rank()
    part = torch.empty_like(x)
    dist.scatter(part, [x + i for i in range(n)] if rank == 0 else None, src=0)
    return part + 1


def barrier(x):
    dist.barrier()
    y = x + 1
    dist.barrier()
    return y


def send_and_recv(x):
    n, rank = dist.get_world_size(), dist.get_rank()
    y = x + rank
    if rank == 0:
        dist.send(y, 1, tag=3)
        dist.send(y, 1)  # equal calls are two
        dist.send(y, 1)
    if rank == 1:
        first, second, third = torch.zeros_like(x), torch.zeros_like(x), torch.zeros_like(x)
        dist.recv(second, 0)
        dist.recv(first, 0, tag=3)
        dist.recv(third, src=0)
        y = first + second * 2 + third * 4
    return y * n


def isend_and_irecv(x):
    n, rank = dist.get_world_size(), dist.get_rank()
    got = torch.zeros_like(x)
    receiving = dist.irecv(got, (rank - 1) % n)
    sending = dist.isend(x + rank, (rank + 1) % n)
    sending.wait()
    receiving.wait()
    return got + 1


def batched(x):
    n, rank = dist.get_world_size(), dist.get_rank()
    got = torch.zeros_like(x)
    operations = [dist.P2POp(dist.isend, x + rank, (rank + 1) % n), dist.P2POp(dist.irecv, got, (rank - 1) % n)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    return got * 2


def asynchronous(x):
    n, rank = dist.get_world_size(), dist.get_rank()
    y, z, parts = x + rank, x * (rank + 1), [torch.empty_like(x) for _ in range(n)]
    first = dist.all_reduce(y, async_op=True)
    second = dist.broadcast(z, 0, async_op=True)
    third = dist.all_gather(parts, x + 2 * rank, async_op=True)
    busy = x @ x.t()
    third.wait()
    second.wait()
    first.wait()
    return [y, z, torch.cat(parts), busy]


def into_the_input(x):
    """The caller's tensor holds the sum."""
    dist.all_reduce(x)
    return x * 2


def part_of_a_tensor(x):
    y = x + 1
    dist.all_reduce(y[0])
    dist.all_reduce(y[:, 1])
    return y


ALL = [all_reduce, all_reduce_operators, all_reduce_coalesced, reduce, broadcast, all_gather, all_gather_uneven,
       all_gather_into_tensor, all_gather_into_tensor_uneven, reduce_scatter, reduce_scatter_tensor,
       reduce_scatter_tensor_uneven, all_to_all_single, all_to_all, gather, scatter, barrier, send_and_recv,
       isend_and_irecv, batched, asynchronous, into_the_input, part_of_a_tensor]


def everything(x):
    """All of them in one graph."""
    results = []
    for function in ALL:
        results.append(function(x + 0))
    return results
