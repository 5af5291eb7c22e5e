"""Work, futures, await, Ctrl-C, dropped handles, and the end of the interpreter."""
import asyncio
import os
import pathlib
import signal
import sys
import threading
import time
import unittest
from datetime import timedelta

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import numpy as np
from ranks import run_ranks, run_script
from rows import main, rows

import tutti.distributed as dist
from tutti.futures import collect_all, wait_all


def works(rank):
    x = np.full(100_000, float(rank))
    work = dist.all_reduce(x, async_op=True)
    assert work.wait() is True and work.is_completed() and work.is_success() and work.exception() is None
    assert work.result()[0] is x and x[0] == 1.0
    work.synchronize()
    assert dist.Work.unbox(work.boxed()) is work
    y = np.zeros(1)
    pending = dist.irecv(y, src=1 - rank, tag=9)
    try:
        pending.wait(timedelta(milliseconds=20))
        raise AssertionError("nothing was sent yet")
    except dist.Timeout:
        pass
    assert not pending.is_completed()
    try:
        pending.result()
        raise AssertionError("a result before the end")
    except dist.InvalidArgument:
        pass
    dist.barrier()
    dist.send(np.ones(1), 1 - rank, tag=9)
    pending.wait()
    assert pending.get_future_result().wait() == dist.WorkResult.SUCCESS
    return float(y[0])


def futures(rank):
    x, y = np.full(4, float(rank)), np.full(4, rank + 1.0)
    first = dist.all_reduce(x, async_op=True).get_future()
    second = dist.all_reduce(y, async_op=True).get_future().then(lambda f: f.value()[0] * 10)
    values = wait_all([first, second])
    assert values[0][0] is x and second.done() and collect_all([first, second]).wait() == [first, second]
    failed = first.then(lambda f: 1 / 0)
    try:
        failed.wait()
        raise AssertionError("no error")
    except ZeroDivisionError:
        pass

    async def awaited():
        z = np.full(2, 1.0)
        result = await dist.all_reduce(z, async_op=True)
        works = [dist.all_reduce(np.full(2, float(i)), async_op=True) for i in range(3)]
        return result[0].tolist(), [float((await work)[0][0]) for work in works]

    return values[1].tolist(), asyncio.run(awaited())


def interrupted(rank, blocking):
    dist.barrier()
    x = np.zeros(1)
    if rank == 1:
        if blocking:  # the other's call is over, so is this one
            try:
                dist.recv(x, src=0)
            except dist.Aborted as error:
                return str(error)
        time.sleep(0.5)
        dist.send(np.ones(1), 0)
        return None
    sent = []

    def interrupt():
        time.sleep(0.2)
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    work = None if blocking else dist.irecv(x, src=1)
    try:
        if blocking:
            dist.recv(x, src=1)
        else:
            work.wait()
        raise AssertionError("not interrupted")
    except KeyboardInterrupt:
        took = time.monotonic() - sent[0]
    if not blocking:
        work.wait()
        assert x[0] == 1.0
    return took


def handled(rank):
    calls = []
    signal.signal(signal.SIGALRM, lambda *_: calls.append(1))
    dist.barrier()
    if rank == 0:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        x = np.zeros(1)
        dist.recv(x)
        return calls, float(x[0])
    time.sleep(0.4)
    dist.send(np.full(1, 3.0), 0)
    return None


def dropped(rank):
    for _ in range(20):
        dist.all_reduce(np.full(300_000, float(rank)), async_op=True)
    x = np.full(10, float(rank))
    dist.all_reduce(x)
    return x.tolist()


class Waiting(unittest.TestCase):
    @rows("S7-002", "S7-005", "S7-006", "S7-007", "S7-008", "S7-010", "S7-011", "S7-012", "S7-013", "S7-014", "S7-016",
          "S7-017")
    def test_a_work_tells_how_its_operation_does(self):
        self.assertEqual(run_ranks(works), [1.0, 1.0])

    @rows("S7-009", "S7-018", "S7-019", "S7-020", "S7-021")
    def test_futures_and_await_give_the_outputs(self):
        for then, (awaited, several) in run_ranks(futures):
            self.assertEqual(then, [30.0] * 4)
            self.assertEqual(awaited, [2.0, 2.0])
            self.assertEqual(several, [0.0, 2.0, 4.0])

    def test_ctrl_c_ends_a_blocking_call_on_all_ranks(self):
        took, other = run_ranks(interrupted, args=(True,))
        self.assertLess(took, 0.1)
        self.assertIn("rank 0 was interrupted by a signal", other)

    def test_ctrl_c_ends_a_wait_whose_operation_goes_on(self):
        took, _ = run_ranks(interrupted, args=(False,))
        self.assertLess(took, 0.1)

    def test_a_signal_handler_that_raises_nothing_runs_while_the_call_waits(self):
        (calls, value), _ = run_ranks(handled)
        self.assertEqual((calls, value), ([1], 3.0))

    def test_arrays_of_a_dropped_work_stay_alive(self):
        self.assertEqual(run_ranks(dropped), [[1.0] * 10] * 2)

    def test_the_interpreter_ends_with_work_pending(self):
        run_script("""
import numpy as np, os
import tutti.distributed as dist
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
work = dist.irecv(np.zeros(4), src=0)
work.get_future().then(lambda f: print("never"))
""")

    def test_the_package_is_imported_without_numpy_and_torch(self):
        loaded = run_script("import sys, tutti\nprint(sorted({'numpy', 'torch', 'asyncio'} & set(sys.modules)))")
        self.assertEqual(loaded.strip(), "[]")


if __name__ == "__main__":
    main("python_" + pathlib.Path(__file__).stem)
