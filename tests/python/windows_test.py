"""Windows from Python: puts, gets and signals against NumPy, the array of a window's memory, errors."""
import os
import pathlib
import sys
import unittest
from datetime import timedelta

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import numpy as np
from ranks import run_ranks
from rows import main

import tutti.distributed as dist


def model(rank):
    """All ranks play the same random puts on a model of all memories, and their own on the window."""
    n, random = dist.get_world_size(), np.random.default_rng(4711)
    memory = np.zeros((n, 600), np.float64)
    with dist.Window((3, 200), "float64", signals=n) as window:
        for turn in range(30):
            origin, target, count = int(random.integers(n)), int(random.integers(n)), int(random.integers(1, 500))
            offset = int(random.integers(600 - count))
            values = random.random(count)
            memory[target, offset:offset + count] = values
            if origin == rank:
                if turn % 2:
                    window.put_signal(values, target, offset, signal=origin)
                else:
                    window.iput_signal(values, target, offset, signal=origin).wait()
            window.fence()
        assert np.array_equal(window.local().ravel(), memory[rank])
        assert window.local().shape == (3, 200)
        for target in range(n):
            seen = np.zeros(600)
            window.get(seen, target)
            assert np.array_equal(seen, memory[target])
            part = np.zeros(10)
            window.iget(part, target, 590).wait()
            assert np.array_equal(part, memory[target, 590:])
            window.flush(target)
        window.flush()
        window.fence(timeout=timedelta(seconds=20))
        return sum(window.read_signal(signal) for signal in range(n))


def over_tcp(rank):
    os.environ["TUTTI_TRANSPORT"] = "tcp"
    dist.init_process_group()
    window = dist.Window(50_000, "int32")
    peer = 1 - rank
    assert window.is_mapped(rank) and not window.is_mapped(peer)
    step = window.iput(np.full(50_000, rank + 1, np.int32), peer)
    assert step is not None
    step.wait()
    window.signal(peer, 2, 5)
    window.wait_signal(2, 5)
    assert set(window.local().tolist()) == {peer + 1}
    try:
        window.map_remote(peer)
    except dist.InvalidArgument as error:
        refusal = str(error)
    window.close()
    dist.destroy_process_group()
    return refusal


def shared(rank):
    window = dist.Window(4, "float32")
    window.map_remote(1 - rank)[:] = rank + 1
    window.fence()
    kept = window.local()
    assert kept.tolist() == [2.0 - rank] * 4
    dist.all_reduce(kept)
    window.close()
    del window
    return kept.tolist()


def atomics(rank):
    """A counter of one rank alone, over shared memory and over TCP; every call once."""
    n, home = dist.get_world_size(), dist.get_world_size() - 1
    with dist.Window((3 if rank == home else 0, 2), "int64") as window:
        assert window.shape() == (3 if rank == home else 0, 2) and window.shape(home) == (3, 2)
        numbers = [window.fetch_add(1, home) for _ in range(50)]
        assert numbers == sorted(numbers)
        while window.compare_and_swap(0, rank + 1, home, 1) != 0:
            pass
        value = np.zeros(1, np.int64)
        window.get(value, home, 2)
        window.put(value + 1, home, 2)
        assert window.swap(0, home, 1) == rank + 1
        window.accumulate(np.array([rank, rank]), home, dist.ReduceOp.MAX, offset=3)
        work = window.iaccumulate(np.array([1]), home, offset=5)
        assert work is not None
        work.wait()
        window.fence()
        seen = np.zeros(6, np.int64)
        window.get_accumulate(np.zeros(6, np.int64), seen, home, "no_op")
        assert seen.tolist() == [50 * n, 0, n, n - 1, n - 1, n], seen
        work = window.iget_accumulate(np.zeros(0), seen, home, "no_op")
        assert work is not None
        work.wait()
        assert seen.tolist() == [50 * n, 0, n, n - 1, n - 1, n], seen
        window.fence()
        assert rank or (window.fetch(home, 5), window.fetch_op(5, home, dist.ReduceOp.MIN, 0)) == (n, 50 * n)
        window.fence()
        sentences = []
        for call in (lambda: window.fetch_add(1.5, home), lambda: window.fetch_add(2**63, home),
                     lambda: window.fetch_add(1, home, 6), lambda: window.accumulate(value, home, "sum"),
                     lambda: window.accumulate(value, home, dist.ReduceOp.AVG), lambda: window.swap(0, 0)):
            try:
                call()
                sentences.append("nothing")
            except (dist.InvalidArgument, TypeError) as error:
                sentences.append(str(error))
    with dist.Window(1, "float32") as floats:
        assert floats.fetch_add(1.5, rank) == 0.0 and floats.fetch(rank) == 1.5
    return numbers, sentences


def refused(rank):
    window = dist.Window(4, "float32", signals=2)
    x, sentences = np.zeros(4, np.float32), []
    for call in (lambda: window.put(x, 5), lambda: window.put(x, 0, -1), lambda: window.put(x, 0, 1),
                 lambda: window.put(x.astype(np.int8), 0), lambda: window.put(np.zeros(8, np.float32)[::2], 0),
                 lambda: window.signal(0, 2), lambda: window.put_signal(x, 0, value=-1), lambda: window.put(x, "1"),
                 lambda: dist.Window(4, "float32", signals=-1)):
        try:
            call()
            sentences.append("nothing")
        except dist.InvalidArgument as error:
            sentences.append(str(error))
    try:
        window.wait_signal(1, 1, timeout=timedelta(milliseconds=50))
    except dist.Timeout as error:
        sentences.append(str(error))
    window.close()
    window.close()
    try:
        window.put(x, 0)
    except dist.InvalidArgument as error:
        sentences.append(str(error))
    return sentences


class Windows(unittest.TestCase):
    def test_puts_and_gets_do_what_numpy_does(self):
        self.assertEqual(sum(run_ranks(model, 3)), 30)

    def test_between_hosts_messages_carry_them(self):
        for refusal in run_ranks(over_tcp, 2, init=False):
            self.assertIn("shares no memory with rank", refusal)

    def test_memory_of_the_same_host_is_shared(self):
        self.assertEqual(run_ranks(shared, 2), [[3.0] * 4] * 2)

    def test_updates_are_atomic_and_return_what_was(self):
        parts = ["value", "expected a number of int64", "offset 6 and 1 elements", "op \"sum\": expected a ReduceOp",
                 "op avg: expected sum", "the window's 0 elements on rank 0"]
        for transport in "auto", "tcp":
            with self.subTest(transport):
                os.environ["TUTTI_TRANSPORT"] = transport
                try:
                    answers = run_ranks(atomics, 3)
                finally:
                    del os.environ["TUTTI_TRANSPORT"]
                self.assertEqual(sorted(number for numbers, _ in answers for number in numbers), list(range(150)))
                for _, sentences in answers:
                    for part, sentence in zip(parts, sentences, strict=True):
                        self.assertIn(part, sentence)

    def test_what_does_not_fit_is_refused(self):
        parts = ["target 5: expected a rank", "offset -1: expected an integer from 0", "offset 1 and 4 elements",
                 "expected float32, as the window", "not in one piece", "signal 2: expected 0 to 1",
                 "value -1: expected an integer from 0", "target", "signals -1: expected 0 to 65536",
                 "signal 1 is 0, expected at least 1", "is closed"]
        for sentences in run_ranks(refused, 2):
            self.assertEqual(len(sentences), len(parts), sentences)
            for part, sentence in zip(parts, sentences):
                self.assertIn(part, sentence)


if __name__ == "__main__":
    main("python_windows")
