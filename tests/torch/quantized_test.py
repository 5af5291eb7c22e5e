"""Quantised collectives on PyTorch's tensors, and DistributedDataParallel that averages gradients by them."""

import unittest

import ranks
import torch
import torch._dynamo  # noqa: F401: so that no rank loads it
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import tutti.torch


def example(rank: int, n: int) -> list:
    x = torch.tensor([[100, 100, -3, 4], [100, 27, 3, 5]][rank], dtype=torch.int8)
    out = torch.zeros(4, dtype=torch.float16)
    assert tutti.torch.quantized_all_reduce(x, output=out, scale=0.5, quantize_results=False) is None
    return out.tolist()


def options(rank: int, n: int) -> list:
    results = []
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for type in ("int8", "int4", "float8_e4m3fn", "float8_e5m2"):
            for block in (64, "row", "tensor"):
                for scales in ("per_rank", "shared"):
                    values = torch.linspace(-1, 1, 777).reshape(7, 111) * (rank + 1)
                    x = values.to(dtype, copy=True)
                    work = tutti.torch.quantized_all_reduce(x, dist.ReduceOp.AVG, None, True, type=type, block=block,
                                                            scales=scales)
                    work.wait()
                    exact = values / (rank + 1) * (n + 1) / 2
                    assert (x.float() - exact).abs().max() < 0.35 * n, (dtype, type, block)
                    results.append(x.float().tolist())
    whole = torch.zeros(n * 5)
    tutti.torch.quantized_all_gather(whole, torch.full((5,), rank + 1.0))
    torch.testing.assert_close(whole, torch.arange(1.0, n + 1).repeat_interleave(5))
    piece = torch.zeros(rank + 1)
    tutti.torch.quantized_reduce_scatter(piece, torch.ones(n * (n + 1) // 2), counts=list(range(1, n + 1)))
    torch.testing.assert_close(piece, torch.full((rank + 1,), float(n)))
    strided = torch.full((2, 100), 127.0)[:, ::2]
    tutti.torch.quantized_all_reduce(strided)
    assert strided.eq(127 * n).all()
    group = dist.new_group(list(range(n)))
    reducer = tutti.torch.QuantizedReducer(dist.ReduceOp.AVG, group, type="int4")
    total, values = torch.zeros(300), torch.linspace(-1, 1, 300)
    for _ in range(50):
        x = values.clone()
        reducer.all_reduce(x)
        total += x
    assert (total / 50 - values).abs().max() < 0.02
    assert reducer.residual().numel() == 300
    reducer.reset()
    assert reducer.residual().numel() == 0
    return results


def refusals(rank: int, n: int) -> None:
    x = torch.zeros(8)
    for arguments, word in (({"type": "int5"}, "int5"), ({"block": 33}, "block 33"), ({"block": "column"}, "column"),
                            ({"block": -1}, "-1"), ({"scales": "mine"}, "mine"), ({"scale": -1.0}, "scale -1"),
                            ({"rounding": "up"}, "up"), ({"op": dist.ReduceOp.MAX}, "op"),
                            ({"output": torch.zeros(7)}, "7 elements: expected 8")):
        try:
            tutti.torch.quantized_all_reduce(x, **arguments)
        except (ValueError, RuntimeError) as error:
            assert word in str(error), (arguments, error)
        else:
            raise AssertionError(f"accepted: {arguments}")
    try:
        tutti.torch.quantized_all_reduce(torch.zeros(3, dtype=torch.float64))
    except (ValueError, RuntimeError) as error:
        assert "float64" in str(error), error
    else:
        raise AssertionError("float64 was accepted")


def trained(rank: int, n: int, hook: str) -> list:
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1)))
    if hook == "feedback":
        model.register_comm_hook(tutti.torch.QuantizedState(type="int4"), tutti.torch.quantized_hook)
    elif hook == "int8":
        model.register_comm_hook(tutti.torch.QuantizedState(error_feedback=False), tutti.torch.quantized_hook)
    elif hook == "composed":
        model.register_comm_hook(tutti.torch.QuantizedState(),
                                 default_hooks.fp16_compress_wrapper(tutti.torch.quantized_hook))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(rank)
    losses = []
    for _ in range(120):
        x = torch.rand(32, 8, generator=generator) * 2 - 1
        loss = torch.nn.functional.mse_loss(model(x), x.prod(dim=1, keepdim=True) + x.sum(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return [sum(losses[-20:]) / 20, [float(p.detach().sum()) for p in model.parameters()]]


class Quantized(unittest.TestCase):
    def test_the_documents_example(self) -> None:
        for out in ranks.run(2, example):
            self.assertEqual(out, [100, 63.5, 0, 4.5])

    def test_every_option_gives_all_ranks_one_result(self) -> None:
        first, *others = ranks.run(3, options)
        for other in others:
            self.assertEqual(other, first)

    def test_what_cannot_be_is_refused(self) -> None:
        ranks.run(2, refusals)

    def test_hooks_train_as_well_as_without_them(self) -> None:
        plain = ranks.run(2, trained, "")[0][0]
        for hook in ("feedback", "int8", "composed"):
            (loss, weights), (_, other) = ranks.run(2, trained, hook)
            self.assertEqual(weights, other, hook)
            self.assertLess(loss, plain * 1.1 + 1e-3, hook)


if __name__ == "__main__":
    unittest.main()
