"""all_gather_into_tensor and reduce_scatter_tensor with a different number of rows for each rank."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

import ranks
import torch
import torch.distributed as dist
from failures_test import expect, message_of
from rows import main, rows

import tutti.torch


def uneven_eager(rank, n):
    """Without a graph: the sizes given, by the other name, asked for, in the background; wrong ones are refused at once."""
    sizes = [2, 0, 3][:n]
    whole = torch.arange(3.0 * sum(sizes)).reshape(-1, 3)
    mine = whole.split(sizes)[rank]
    for how in ({"output_split_sizes": sizes}, {}, {"output_split_sizes": sizes, "async_op": True}):
        got = torch.full_like(whole, -1)
        work = tutti.torch.all_gather_into_tensor_uneven(got, mine, **how)
        if how.get("async_op"):
            work.wait()
        assert torch.equal(got, whole), (how, got)
    got = torch.full_like(whole, -1)
    tutti.torch.all_gather_into_tensor(got, mine, output_split_sizes=sizes)
    assert torch.equal(got, whole), got
    for how in ({"input_split_sizes": sizes}, {}, {"input_split_sizes": sizes, "async_op": True}):
        part = torch.full_like(mine, -1)
        work = tutti.torch.reduce_scatter_tensor_uneven(part, whole, **how)
        if how.get("async_op"):
            work.wait()
        assert torch.equal(part, n * mine), (how, part)
    tutti.torch.reduce_scatter_tensor(part, whole + rank, dist.ReduceOp.MAX, input_split_sizes=sizes)
    assert torch.equal(part, mine + n - 1), part
    refused = message_of(tutti.torch.all_gather_into_tensor_uneven, got, mine, [1] * n)
    expect(refused, "output_split_sizes add up to", "expected 5" if n == 3 else "expected 2")
    refused = message_of(tutti.torch.reduce_scatter_tensor_uneven, whole, whole, sizes)
    expect(refused, "output has the shape")


def worked_examples(rank, n):
    own = torch.tensor([[1, 2], [3, 4, 5]][rank])
    got = torch.empty(5, dtype=torch.int64)
    tutti.torch.all_gather_into_tensor_uneven(got, own, [2, 3])
    assert got.tolist() == [1, 2, 3, 4, 5], got
    part = torch.empty(2 + rank, dtype=torch.int64)
    tutti.torch.reduce_scatter_tensor_uneven(part, torch.arange(1, 6) * 10 ** rank, [2, 3])
    assert part.tolist() == [[11, 22], [33, 44, 55]][rank], part


def uneven_on_gloo(rank, n):
    """PyTorch's own gloo gathers equal sizes only."""
    got = torch.empty(6)
    tutti.torch.all_gather_into_tensor_uneven(got, torch.full((rank + 1,), float(rank)), [1, 2, 3])
    assert got.tolist() == [0, 1, 1, 2, 2, 2], got


class Uneven(unittest.TestCase):
    @rows("E-902", "E-903")
    def test_worked_examples(self):
        ranks.run(2, worked_examples)

    def test_rows_of_each_rank(self):
        ranks.run(3, uneven_eager)

    def test_rows_of_each_rank_on_gloo(self):
        ranks.run(3, uneven_on_gloo, backend="gloo")


if __name__ == "__main__":
    main("python_torch_uneven")
