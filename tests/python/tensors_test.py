"""PyTorch's tensors as arrays and inside objects, where torch can be imported."""
import dataclasses
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from ranks import run_ranks
from rows import main

import tutti
import tutti.distributed as dist
from tutti._core import decode_object, encode_object

try:
    import torch
except ImportError:
    torch = None


@dataclasses.dataclass
class Shard:
    name: str
    weights: object


def in_place(rank):
    base = torch.arange(12.0).reshape(3, 4) * (rank + 1)
    kept = base.clone()
    dist.all_reduce(base.t()[1:3])  # a view with strides: in place
    assert torch.equal(base[:, 1:3], kept[:, 1:3] / (rank + 1) * 3) and torch.equal(base[:, 0], kept[:, 0])
    results = {}
    for dtype in (torch.bfloat16, torch.float16, torch.float64, torch.int8, torch.complex64, torch.float8_e5m2):
        x = torch.ones(5).to(dtype)[::2]
        dist.all_reduce(x)
        results[str(dtype)] = (x.dtype == dtype, x.to(torch.float64 if dtype != torch.complex64 else dtype).real.tolist())
    parameter = torch.nn.Parameter(torch.full((2,), rank + 1.0))
    dist.all_reduce(parameter)
    work = dist.all_reduce(torch.ones(3), async_op=True)
    work.wait()
    mixed = torch.zeros(2)
    import numpy as np

    dist.all_gather([mixed, np.zeros(2, dtype=np.float32)], torch.full((2,), float(rank)))
    texts = []
    for bad in (torch.ones(2, device="meta"), torch.eye(2).to_sparse()):
        try:
            dist.all_reduce(bad)
            texts.append("accepted")
        except tutti.InvalidArgument as error:
            texts.append(str(error))
    dist.barrier()
    return results, parameter.tolist(), work.result()[0].tolist(), texts


def as_objects(rank):
    sent = [Shard("w", torch.full((3,), 2.0, requires_grad=True)), {"b": torch.ones(2, 2).to(torch.bfloat16).t()}]
    got = sent if rank == 0 else [None, None]
    dist.broadcast_object_list(got, src=0)
    dist.all_gather_object([None, None], got[0])
    return got[0].weights.tolist(), got[0].weights.requires_grad, str(got[1]["b"].dtype), got[1]["b"].float().sum().item()


@unittest.skipUnless(torch, "no torch")
class Tensors(unittest.TestCase):
    def test_calls_work_on_tensors_in_place(self):
        for results, parameter, output, texts in run_ranks(in_place):
            for dtype, (same, values) in results.items():
                self.assertTrue(same, dtype)
                self.assertEqual(values, [2.0, 2.0, 2.0], dtype)
            self.assertEqual((parameter, output), ([3.0, 3.0], [2.0, 2.0, 2.0]))
            self.assertNotIn("accepted", texts)
            self.assertTrue(all("all_reduce: tensor" in text for text in texts), texts)

    def test_tensors_travel_in_objects_without_pickle(self):
        self.assertEqual(run_ranks(as_objects), [([2.0] * 3, True, "torch.bfloat16", 4.0)] * 2)
        for value in (torch.tensor(3), torch.zeros(0, 2), torch.arange(6).reshape(2, 3)[:, ::2], torch.tensor([True]),
                      torch.tensor([1 + 2j]), torch.ones(2).to(torch.float8_e4m3fn)):
            back = decode_object(encode_object([value]))[0]
            self.assertEqual((back.dtype, back.shape, type(back)), (value.dtype, value.shape, type(value)))
            self.assertEqual(back.tolist(), value.tolist())
        with self.assertRaises(tutti.ObjectError):
            encode_object(torch.nn.Linear(1, 1))


if __name__ == "__main__":
    main("python_" + pathlib.Path(__file__).stem)
