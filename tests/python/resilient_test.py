"""Loops that outlive their ranks: killed ranks are replaced, and the result is that of an undisturbed run, bit for bit."""
import multiprocessing
import os
import pathlib
import signal
import sys
import time
import unittest
from datetime import timedelta

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import numpy as np
from rows import main

import tutti
import tutti.distributed as dist

STEPS, SIZE = 300, 4


class Launcher:
    """What a launcher gives that replaces lost ranks: a store, and the variables of ranks and newcomers."""

    def __init__(self, function):
        self.function, self.processes, self.results = function, [], multiprocessing.get_context("fork").Queue()
        self.store = None

    def start(self, rank=None):
        # The first are forked before there is a server with its thread.
        process = multiprocessing.get_context("fork").Process(target=self._run, args=(rank, self.port), daemon=True)
        process.start()
        self.processes.append(process)
        return process

    def _run(self, rank, port):
        names = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", "TUTTI_LAUNCHER_MASTER_PORT": "1",
                 "TUTTI_STORE_PORT": str(port.value if port.value else self._wait(port)), "TUTTI_REPLACES": "1"}
        own = {"TUTTI_NEWCOMER": "1"} if rank is None else {"RANK": str(rank), "WORLD_SIZE": str(SIZE)}
        os.environ.update(names, **own)
        dist.init_process_group(timeout=timedelta(seconds=30))
        self.results.put(self.function())
        dist.destroy_process_group()

    @staticmethod
    def _wait(port):
        while not port.value:
            time.sleep(0.005)
        return port.value

    def __enter__(self):
        self.port = multiprocessing.get_context("fork").Value("i", 0)
        return self

    def serve(self):
        self.store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.port.value = self.store.port

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.join()


def train(slow=0.002):
    weights, history = np.ones(1000, np.float32), bytearray()
    recoveries = [0]

    def load(data):
        history[:] = data

    def step(r):
        time.sleep(slow)
        x = weights * np.float32(0.01 * (r.group.rank() + 1)) + np.float32(r.step % 7)
        weights[0] += 3  # a step that fails has changed the state
        dist.all_reduce(x)
        weights[0] -= 3
        weights[:] = weights * np.float32(0.9) + x * np.float32(0.1)
        history.append(r.step % 251)
        recoveries[0] = r.recoveries

    group = dist.resilient(step, [weights], steps=STEPS, save=lambda: bytes(history), load=load)
    return (weights.tobytes(), bytes(history), group.size()), recoveries[0]


class ResilientTest(unittest.TestCase):
    def outcome(self, victims, newcomers):
        with Launcher(train) as job:
            ranks = [job.start(rank) for rank in range(SIZE)]
            for _ in range(newcomers):
                job.start()
            job.serve()
            for victim in victims:
                time.sleep(0.2)
                os.kill(ranks[victim].pid, signal.SIGKILL)
            return [job.results.get(timeout=40) for _ in range(SIZE)]

    def test_the_result_is_that_of_an_undisturbed_run(self):
        undisturbed = self.outcome([], 0)
        (_, history, size), _ = undisturbed[0]
        self.assertEqual((history, size), (bytes(i % 251 for i in range(STEPS)), SIZE))
        for victims in ([1], [0, 2]):
            outcome = self.outcome(victims, len(victims))
            self.assertEqual([result for result, _ in outcome], [undisturbed[0][0]] * SIZE)
            self.assertEqual(max(recoveries for _, recoveries in outcome), len(victims))

    def test_an_error_of_the_step_is_raised_as_it_is(self):
        def step(r):
            if r.step == 3:
                raise KeyError("of the step")

        dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
        try:
            with self.assertRaisesRegex(KeyError, "of the step"):
                dist.resilient(step, steps=5)
        finally:
            dist.destroy_process_group()

    def test_as_a_decorator(self):
        seen = []

        @dist.resilient(steps=3, first=1)
        def step(r, *arguments, **named):
            """What it says."""
            seen.append((r.step, arguments, named))

        self.assertEqual((step.__name__, step.__doc__, seen), ("step", "What it says.", []))
        dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
        try:
            self.assertEqual(step("x", y=2).size(), 1)
            self.assertEqual(seen, [(1, ("x",), {"y": 2}), (2, ("x",), {"y": 2})])
        finally:
            dist.destroy_process_group()

    def test_the_loop_is_seen_only_in_a_step(self):
        seen = []
        dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
        try:
            def step(r):
                seen.append((r, r.step, r.is_new_group, r.recoveries, r.group.size()))
                if r.step == 2:
                    r.stop()

            dist.resilient(step, steps=10, first=1)
            self.assertEqual([entry[1:] for entry in seen], [(1, True, 0, 1), (2, False, 0, 1)])
            with self.assertRaisesRegex(tutti.errors.InvalidArgument, "its loop has ended"):
                seen[0][0].stop()
            with self.assertRaisesRegex(tutti.errors.InvalidArgument, "one of save and load is given"):
                dist.resilient(step, steps=1, save=bytes)
            self.assertFalse(dist.group.WORLD.is_newcomer())
        finally:
            dist.destroy_process_group()


if __name__ == "__main__":
    main("python_" + pathlib.Path(__file__).stem)
