"""Calls whose memory overlaps, messages to oneself, and the line of the program in verdicts and dumps."""

import pathlib
import tempfile
import threading
import unittest

import numpy as np
from ranks import run_ranks

import tutti.distributed as dist


def same_array_twice(rank):
    n = dist.get_world_size()
    for count in (6, 60_000):
        x = np.ones(count, np.float32)
        dist.all_reduce_coalesced([x, x])
        assert (x == n).all(), x[0]
        y = np.arange(float(count))
        with dist.coalescing():
            dist.all_reduce(y[:count // 2 + 1])
            dist.all_reduce(y[2:])
            dist.all_reduce(y[::-2])
        assert (y[:count // 2 + 1] == n * np.arange(float(count))[:count // 2 + 1]).all()
        assert (y == n * np.arange(float(count))).all()
        out = np.zeros(2 * n)
        dist.all_gather_into_tensor_coalesced([out, out], [np.ones(2), np.full(2, 2.0)])
        assert (out == 2).all()
        swapped = np.full(count, float(rank))
        with dist.coalescing():
            dist.send(swapped, 1 - rank)
            dist.recv(swapped, 1 - rank)
        assert (swapped == 1 - rank).all()


def messages_to_oneself(rank):
    x, y = np.full(3, float(rank)), np.zeros(3)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, x, rank), dist.P2POp(dist.irecv, y, rank)])
    assert len(works) == 2
    for work in works:
        work.wait()
    z = np.zeros(3)
    with dist.coalescing():
        dist.send(x, rank, tag=3)
        dist.recv(z, rank, tag=3)
    assert (y == rank).all() and (z == rank).all()


def threads(rank):
    """A scope of one thread collects nothing of another."""
    n = dist.get_world_size()
    opened, done, wrong = threading.Event(), threading.Event(), []

    def collectives():
        opened.wait(10)
        for k in range(20):
            x = np.full(10, float(rank + k))
            dist.all_reduce(x)
            if not (x == sum(r + k for r in range(n))).all():
                wrong.append(x[0])
        done.set()

    other = threading.Thread(target=collectives)
    other.start()
    y = np.zeros(4)
    with dist.coalescing():
        dist.send(np.full(4, float(rank)), 1 - rank)
        dist.recv(y, 1 - rank)
        opened.set()
        assert done.wait(20)
    other.join()
    assert not wrong and (y == 1 - rank).all(), wrong


def step(count):
    dist.all_reduce(np.ones(count))  # one line


def lines(rank, folder):
    """What dumps and a verdict say."""
    step(4)
    work = dist.all_reduce(np.ones(4), async_op=True)  # another line
    work.wait()
    with dist.coalescing():
        dist.all_reduce(np.ones(4))
        dist.all_reduce(np.ones(3))  # the scope's end is where they are launched, behind this line
    plan = dist.plan.all_reduce(np.ones(4))
    plan.run()  # a plan's line
    dumps = b"".join(pathlib.Path(file).read_bytes() for file in dist.dump_trace(folder))
    try:
        if rank == 0:
            step(8)
        else:
            dist.barrier()  # the other's line
    except dist.DistBackendError as error:
        said = str(error)
    here = pathlib.Path(__file__)
    at = {text: number for number, line in enumerate(here.read_text().splitlines(), 1) for text in [line.partition("  # ")[2]]}
    for text, function in (("one line", "step"), ("another line", "lines"), ("a plan's line", "lines")):
        assert f"{here.name}:{at[text]} in {function}".encode() in dumps, (text, dumps)
    for text, function in (("one line", "step"), ("the other's line", "lines")):
        assert f"called at {here}:{at[text]} in {function}" in said, said
    assert b".so+0x" not in dumps and ".so+0x" not in said, (dumps, said)


class Calls(unittest.TestCase):
    def test_the_same_array_twice(self):
        run_ranks(same_array_twice)

    def test_messages_to_oneself(self):
        run_ranks(messages_to_oneself)

    def test_a_scope_and_another_thread(self):
        run_ranks(threads)

    def test_verdicts_and_dumps_name_the_line_of_the_program(self):
        with tempfile.TemporaryDirectory() as folder:
            run_ranks(lines, args=(folder,))


if __name__ == "__main__":
    unittest.main()
