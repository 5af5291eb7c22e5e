"""all_to_all_v on thousands of random matrices of counts, with blocks at any places, against NumPy."""
import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import numpy as np
from ranks import run_ranks
from rows import main, rows

import tutti.distributed as dist

UNTOUCHED = -99


def random_counts(random, n):
    """counts[from, to]: dense, sparse, with empty rows and columns, skewed towards one rank, or nothing at all."""
    most = (1, 4, 60, 900)[random.integers(4)]
    counts = random.integers(0, most + 1, (n, n))
    kind = random.integers(6)
    if kind == 1:
        counts *= random.random((n, n)) < 0.3
    elif kind == 2:
        counts[random.integers(n), :] = 0
        counts[:, random.integers(n)] = 0
    elif kind == 3:
        counts[:, random.integers(n)] *= 9
    elif kind == 4 and random.integers(8) == 0:
        counts[:] = 0
    return counts


def random_places(random, counts):
    """Offsets in any order, with gaps or without, and the length of the array that holds them."""
    gaps = random.integers(0, 5, len(counts) + 1) * random.integers(0, 2)
    offsets, end = [0] * len(counts), 0
    for rank in random.permutation(len(counts)):
        end += int(gaps[rank])
        offsets[rank] = end
        end += int(counts[rank])
    return offsets, end + int(gaps[-1])


def exchange(rank, rounds, transport):
    os.environ["TUTTI_TRANSPORT"] = transport
    dist.init_process_group()
    n = dist.get_world_size()
    random = np.random.default_rng(2024)  # the same on all ranks
    moved = 0
    for turn in range(rounds):
        counts = random_counts(random, n)
        sends = [random_places(random, counts[r, :]) for r in range(n)]
        receives = [random_places(random, counts[:, r]) for r in range(n)]
        inputs = [np.arange(length, dtype=np.int32) + 100_000 * r for r, (_, length) in enumerate(sends)]
        offsets, length = receives[rank]
        output = np.full(length, UNTOUCHED, dtype=np.int32)
        work = dist.all_to_all_v(output, inputs[rank], send_counts=counts[rank, :].tolist(), send_offsets=sends[rank][0],
                                 receive_counts=counts[:, rank].tolist(), receive_offsets=offsets, async_op=turn % 5 == 4)
        if work is not None:
            work.wait()
        expected = np.full(length, UNTOUCHED, dtype=np.int32)
        for source in range(n):
            count, begin = counts[source, rank], sends[source][0][rank]
            expected[offsets[source]:offsets[source] + count] = inputs[source][begin:begin + count]
        assert np.array_equal(output, expected), f"matrix {turn}: {counts.tolist()}"
        moved += int(counts[:, rank].sum())
    dist.destroy_process_group()
    return moved


def together(rank):
    n = dist.get_world_size()
    x, y = np.arange(2 * n) + 100 * rank, np.arange(n) - 10 * rank
    a, b = np.full(2 * n, UNTOUCHED), np.full(n, UNTOUCHED)
    backwards = list(reversed(range(n)))
    with dist.coalescing() as scope:
        dist.all_to_all_v(a, x, send_counts=[1] * n, send_offsets=[2 * i for i in range(n)], receive_counts=[1] * n,
                          receive_offsets=[2 * i for i in backwards])
        dist.all_to_all_v(a, y, send_counts=[1] * n, receive_counts=[1] * n, receive_offsets=[2 * i + 1 for i in range(n)])
        dist.all_to_all_v(b, y, send_offsets=backwards)
    return a.tolist(), b.tolist()


class Blocks(unittest.TestCase):
    @rows("A-26", "S21-026")
    def test_ten_thousand_random_matrices_over_shared_memory(self):
        self.assertGreater(min(run_ranks(exchange, 4, (10_000, "shm"), init=False, timeout=120)), 0)

    def test_thousands_of_random_matrices_over_tcp(self):
        for size in (3, 5):  # of five ranks, which pass short blocks on for each other
            self.assertGreater(min(run_ranks(exchange, size, (1500, "tcp"), init=False, timeout=120)), 0)

    def test_calls_of_one_scope_are_launched_together(self):
        for rank, (a, b) in enumerate(run_ranks(together, 3)):
            self.assertEqual(a[0::2], [100 * r + 2 * rank for r in reversed(range(3))])
            self.assertEqual(a[1::2], [rank - 10 * r for r in range(3)])
            self.assertEqual(b, [2 - rank - 10 * r for r in range(3)])


if __name__ == "__main__":
    main("python_" + pathlib.Path(__file__).stem)
