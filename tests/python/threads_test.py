"""Several threads of a rank at once: with the interpreter's lock, and in parallel where the interpreter has none."""
import concurrent.futures
import os
import pathlib
import sys
import sysconfig
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import numpy as np
from ranks import run_ranks
from rows import main

import tutti.distributed as dist
from tutti._core import decode_object, encode_object

THREADS = 4


def at_once(functions):
    with concurrent.futures.ThreadPoolExecutor(len(functions)) as pool:
        return [future.result(timeout=50) for future in [pool.submit(function) for function in functions]]


def own_groups(rank):
    """Each thread has a group of its own: works that are dropped, works, objects, and a setting of the group."""
    groups = [dist.new_group() for _ in range(THREADS)]

    def calls(group):
        total = 0.0
        for i in range(100):
            for _ in range(5):
                dist.all_reduce(np.full(2000, float(rank)), group=group, async_op=True)
            x = np.full(4, float(i))
            work = dist.all_reduce(x, group=group, async_op=True)
            work.wait()
            group.allow_pickle = i % 2 == 0
            objects = [{"i": i, "all": list(range(20))} if rank == 0 else None]
            dist.broadcast_object_list(objects, src=0, group=group)
            total += x[0] + objects[0]["i"] + group.allow_pickle
        return total

    return at_once([lambda group=group: calls(group) for group in groups])


def one_work(rank):
    """All threads wait for the same work."""
    for i in range(50):
        x = np.full(1000, float(i))
        work = dist.all_reduce(x, async_op=True)
        assert at_once([lambda: (work.wait(), work.result()[0][0])] * THREADS) == [(True, 2.0 * i)] * THREADS
    return True


class Threads(unittest.TestCase):
    @unittest.skipUnless(sysconfig.get_config_var("Py_GIL_DISABLED"), "this CPython has a lock")
    def test_the_package_leaves_the_lock_off(self):
        if os.environ.get("PYTHON_GIL") == "1":
            self.skipTest("PYTHON_GIL=1 asks for the lock")
        self.assertFalse(sys._is_gil_enabled())

    def test_threads_of_a_rank_call_at_once(self):
        self.assertEqual(run_ranks(own_groups), [[100 * 99 * 1.5 + 50] * THREADS] * 2)

    def test_threads_wait_for_one_work(self):
        self.assertEqual(run_ranks(one_work), [True, True])

    def test_an_object_that_other_threads_change_is_sent_as_it_was_or_refused(self):
        numbers, names = [[i] for i in range(100)], {str(i): [i] for i in range(100)}
        stop = []

        def change():
            i = 0
            while not stop:
                i += 1
                numbers.append([i])
                del numbers[:2]
                names[str(i % 150)] = [i]
                names.pop(str((i + 75) % 150), None)

        def look():
            for _ in range(1000):
                for container in (numbers, names):
                    try:
                        back = decode_object(encode_object(container))
                        self.assertTrue(all(isinstance(x, list) for x in (back if container is numbers else back.values())))
                    except dist.ObjectError as error:
                        self.assertIn("changed while it was being sent", str(error))
            return True

        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            changing = pool.submit(change)
            try:
                self.assertEqual(at_once([look] * (THREADS - 1)), [True] * (THREADS - 1))
            finally:
                stop.append(True)
            changing.result(timeout=20)


if __name__ == "__main__":
    main("python_" + pathlib.Path(__file__).stem)
