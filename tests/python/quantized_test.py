"""Quantised collectives from Python: the document's example, every option, feedback, refused arguments."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import numpy as np
from ranks import run_ranks
from rows import main, rows

import tutti.distributed as dist


def example(rank):
    """E-904: one common scale; the sum is of int32, and does not saturate."""
    x = np.array([[100, 100, -3, 4], [100, 27, 3, 5]][rank], dtype=np.int8)
    out = np.zeros(4, dtype=np.float16)
    assert dist.quantized_all_reduce(x, output=out, scale=0.5, quantize_results=False) is None
    mine = np.zeros(2, dtype=np.float16)
    dist.quantized_reduce_scatter(mine, x, scale=0.5)
    gathered = np.zeros(4, dtype=np.float16)
    dist.all_gather_into_tensor(gathered, mine)
    again = np.zeros(4, dtype=np.float16)
    dist.quantized_all_reduce(x, output=again, scale=0.5)  # the second leg quantised, too
    return out.tolist(), gathered.tolist(), again.tolist()


def options(rank):
    n = dist.get_world_size()
    results = []
    for type in ("int8", "int4", "float8_e4m3fn", "float8_e5m2"):
        for block in (32, 256, "row", "tensor"):
            for scales in ("per_rank", "shared"):
                for quantize_results in (True, False):
                    x = np.linspace(-1, 1, 7 * 111).astype(np.float32).reshape(7, 111) * (rank + 1)
                    exact = x / (rank + 1) * sum(range(1, n + 1)) / n
                    work = dist.quantized_all_reduce(x, dist.ReduceOp.AVG, None, True, type=type, block=block, scales=scales,
                                                     quantize_results=quantize_results)
                    work.wait()
                    results.append((x.tobytes(), float(np.abs(x - exact).max())))
    whole = np.zeros(n * 5, dtype=np.float32)
    dist.quantized_all_gather(whole, np.full(5, rank + 1.0, dtype=np.float32))
    uneven = np.zeros(sum(range(1, n + 1)), dtype=np.float32)
    dist.quantized_all_gather(uneven, np.full(rank + 1, rank + 1.0, dtype=np.float32), counts=list(range(1, n + 1)))
    piece = np.zeros(rank + 1, dtype=np.float32)
    dist.quantized_reduce_scatter(piece, np.ones(uneven.size, dtype=np.float32), counts=list(range(1, n + 1)))
    seeded = [np.linspace(0, 1, 500, dtype=np.float32) for _ in range(3)]
    for array, seed in zip(seeded, (1, 1, 2)):
        dist.quantized_all_reduce(array, type="int4", rounding="stochastic", seed=seed)
    same = (seeded[0] == seeded[1]).all(), (seeded[0] == seeded[2]).all()
    return results, whole.tolist(), uneven.tolist(), piece.tolist(), same


def feedback(rank):
    reducer = dist.QuantizedReducer(dist.ReduceOp.AVG, type="int4")
    values = np.linspace(-1, 1, 300, dtype=np.float32)
    total = np.zeros_like(values)
    for _ in range(50):
        x = values.copy()
        if rank == 0:
            reducer.all_reduce(x)
        else:
            reducer.all_reduce(x, async_op=True).wait()
        total += x
    once = values.copy()
    dist.quantized_all_reduce(once, dist.ReduceOp.AVG, type="int4")
    residual = reducer.residual()
    reducer.reset()
    return (float(np.abs(total / 50 - values).max()), float(np.abs(once - values).max()), residual.shape,
            reducer.residual().size)


def refusals(rank):
    x = np.zeros(8, dtype=np.float32)
    found = []
    for arguments in ({"type": "int5"}, {"type": 8}, {"block": 33}, {"block": "column"}, {"block": -1}, {"block": 1.5},
                      {"scales": "mine"}, {"scale": "a"}, {"scale": -1.0}, {"rounding": "up"}, {"seed": -1},
                      {"quantize_results": 2}, {"output": np.zeros(7, dtype=np.float32)}, {"op": dist.ReduceOp.MAX}):
        try:
            dist.quantized_all_reduce(x, **arguments)
            found.append(f"accepted: {arguments}")
        except dist.InvalidArgument as error:
            found.append(str(error))
    for wrong in (np.zeros(3), np.zeros(3, dtype=np.int8)):
        try:
            dist.quantized_all_reduce(wrong)
            found.append("accepted")
        except dist.InvalidArgument as error:
            found.append(str(error))
    return found


class Quantized(unittest.TestCase):
    @rows("E-904", "S22-001", "S22-002", "S22-003", "S22-004", "S22-005")
    def test_the_documents_example(self):
        for out, gathered, again in run_ranks(example):
            self.assertEqual(out, [100, 63.5, 0, 4.5])
            self.assertEqual(gathered, out)
            np.testing.assert_allclose(again, out, atol=100 / 127 / 2 + 0.05)

    def test_every_option_gives_all_ranks_one_result_near_the_exact_one(self):
        for n in (1, 3):
            ranks = run_ranks(options, n)
            for results, whole, uneven, piece, same in ranks:
                self.assertEqual([r[0] for r in results], [r[0] for r in ranks[0][0]])
                self.assertLess(max(r[1] for r in results), 0.2 * n)
                np.testing.assert_allclose(whole, np.repeat(np.arange(1.0, n + 1), 5), rtol=1e-6)
                np.testing.assert_allclose(uneven, np.repeat(np.arange(1.0, n + 1), range(1, n + 1)), rtol=1e-6)
                np.testing.assert_allclose(piece, n, rtol=1e-6)
                self.assertEqual(same, (True, False))

    def test_feedback_makes_good_what_is_lost(self):
        for mean, once, shape, left in run_ranks(feedback):
            self.assertLess(mean, once / 8)
            self.assertEqual((shape, left), ((300,), 0))

    def test_what_cannot_be_is_refused_by_name(self):
        words = ["int5", "type", "block 33", "column", "block -1", "block", "mine", "scale", "scale -1", "up", "seed",
                 "quantize_results", "7 elements: expected 8", "op max", "float64", "int8"]
        for found in run_ranks(refusals):
            self.assertEqual(len(found), len(words))
            for text, word in zip(found, words):
                self.assertIn(word, text)
                self.assertNotIn("accepted", text)


if __name__ == "__main__":
    main("python_" + pathlib.Path(__file__).stem)
