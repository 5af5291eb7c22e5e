#!/usr/bin/env python3
"""tutti.dask.run on a real cluster of Dask on this machine: three workers, a process each."""
import os
import signal
import sys
import tempfile
import threading
import time
import unittest
from datetime import timedelta

import numpy as np
from distributed import Client, LocalCluster

import page
import tutti.dask
import tutti.distributed as dist
from command_lines import Watch
from training import train

N = 3
KNOWN = "0123456789abcdef" * 4
os.environ["TUTTI_DETERMINISM"] = "run_to_run"  # of the workers too


def make_secret_known():
    import tutti._engines

    tutti._engines.secrets.token_hex = lambda count: KNOWN


def total_and_wait(x):
    result = total(x)
    time.sleep(1)
    return result


def total(x, scale=1.0):
    x = x * (dist.get_rank() + 1)
    dist.all_reduce(x)
    return dist.get_rank(), dist.get_world_size(), os.getpid(), (scale * x).tolist()


def one_fails():
    if dist.get_rank() == 1:
        raise ValueError("the disk of rank 1 is full")
    dist.barrier()


def one_dies():
    pids = [None] * dist.get_world_size()
    dist.all_gather_object(pids, os.getpid())
    if dist.get_rank() == 0:
        time.sleep(0.5)
        os.kill(pids[2], signal.SIGKILL)
        killed = time.monotonic()
        try:
            dist.barrier()
        except dist.PeerLost as error:
            error.args = (f"{error} [after {time.monotonic() - killed:.2f} s]",)
            raise
    dist.barrier()


def slow_total(scale):
    x = np.full(2, scale * (dist.get_rank() + 1))
    for _ in range(20):
        time.sleep(0.01)
        dist.barrier()
    dist.all_reduce(x)
    return dist.get_world_size(), x.tolist()


def destroy_in_the_function():
    dist.barrier()
    dist.destroy_process_group()
    return "done"


def make_a_group_alone():
    dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)


def scratch(test):
    """Dask's own would stay behind."""
    return test.enterContext(tempfile.TemporaryDirectory(prefix="tutti-dask-"))


class Dask(unittest.TestCase):
    def setUp(self):
        self.cluster = LocalCluster(n_workers=N, threads_per_worker=1, dashboard_address=None, local_directory=scratch(self))
        self.client = Client(self.cluster)
        self.client.wait_for_workers(N)
        self.addCleanup(self.cluster.close)
        self.addCleanup(self.client.close)

    def test_the_program_of_the_page(self):
        self.assertIn("[(0, 8.0), (1, 8.0)]", page.run("Dask").replace("np.float64(8.0)", "8.0"))
        self.assertEqual(page.run("Dask", 1).count("(3, "), 3)

    def test_every_worker_is_a_rank_and_jobs_may_follow_each_other(self):
        for _ in range(2):
            results = tutti.dask.run(self.client, total, np.ones(2), scale=2.0)
            self.assertEqual([rank for rank, *_ in results], list(range(N)))
            self.assertEqual({size for _, size, *_ in results}, {N})
            self.assertEqual(len({pid for *_, pid, _ in results}), N)
            self.assertEqual([x for *_, x in results], [[12.0, 12.0]] * N)

    def test_the_secret_travels_in_the_tasks_and_is_on_no_command_line(self):
        self.client.run(make_secret_known)
        with Watch(KNOWN) as watch:
            results = tutti.dask.run(self.client, total_and_wait, np.ones(1))
        self.assertEqual([x for *_, x in results], [[6.0]] * N)
        self.assertEqual(watch.found, {})

    def test_ranks_are_in_the_order_of_the_workers_that_are_named(self):
        names = list(self.client.scheduler_info(n_workers=-1)["workers"])
        chosen = [names[2], names[0]]
        results = tutti.dask.run(self.client, total, np.ones(1), workers=chosen)
        self.assertEqual([x for *_, x in results], [[3.0]] * 2)
        with self.assertRaisesRegex(ValueError, "nowhere:1 is no worker of this cluster"):
            tutti.dask.run(self.client, total, np.ones(1), workers=["tcp://nowhere:1"])
        with self.assertRaisesRegex(ValueError, "named twice"):
            tutti.dask.run(self.client, total, np.ones(1), workers=[names[0], names[0]])

    def test_the_exception_of_the_rank_that_failed_is_raised_and_the_workers_can_be_used_again(self):
        with self.assertRaisesRegex(ValueError, "the disk of rank 1 is full"):
            tutti.dask.run(self.client, one_fails)
        self.assertEqual(len(tutti.dask.run(self.client, total, np.ones(1))), N)

    def test_a_worker_in_the_place_of_one_that_died_is_a_rank(self):
        for _ in range(2):
            tutti.dask.run(self.client, total, np.ones(1), workers=self.workers()[:2])
        with self.assertRaises(dist.PeerLost):
            tutti.dask.run(self.client, one_dies)
        self.wait_for_all()
        results = tutti.dask.run(self.client, total, np.ones(1), timeout=timedelta(seconds=30))
        self.assertEqual([x for *_, x in results], [[6.0]] * N)

    def test_a_worker_that_dies_is_replaced_in_the_job_that_goes_on_with_the_bits_of_an_undisturbed_one(self):
        undisturbed = tutti.dask.run(self.client, train, max_restarts=1)
        for victim in (1, 0):
            pids = tutti.dask.run(self.client, os.getpid)
            results = tutti.dask.run(self.client, train, dies_at={(30, victim)}, max_restarts=1)
            self.assertEqual([result[1:] for result in results], [result[1:] for result in undisturbed])
            self.assertEqual([old == pid for old, (pid, *_) in zip(pids, results)], [rank != victim for rank in range(N)])

    def test_a_spare_worker_takes_a_place_and_the_death_behind_the_last_restart_ends_the_job(self):
        results = tutti.dask.run(self.client, train, dies_at={(30, 1)}, workers=self.workers()[:2], max_restarts=1)
        self.assertEqual([size for _, size, _ in results], [2, 2])
        self.wait_for_all()
        with self.assertRaisesRegex(dist.PeerLost, r"or its replacement, is gone, and nobody fills its place \(max_restarts is 1"):
            tutti.dask.run(self.client, train, dies_at={(30, 1), (40, 0)}, max_restarts=1)
        self.wait_for_all()
        self.assertEqual(len(tutti.dask.run(self.client, total, np.ones(1))), N)

    def test_ranks_that_do_not_wait_for_a_replacement_end_without_it(self):
        results = tutti.dask.run(self.client, train, dies_at={(30, 1)}, wait=0, max_restarts=1)
        self.assertEqual([size for _, size, _ in results], [N - 1] * (N - 1))

    def wait_for_all(self):
        deadline = time.monotonic() + 120
        while len(self.workers()) < N and time.monotonic() < deadline:  # Dask's nanny starts another
            time.sleep(0.1)

    def workers(self):
        return list(self.client.scheduler_info(n_workers=-1)["workers"])

    def test_a_function_may_destroy_its_group(self):
        self.assertEqual(tutti.dask.run(self.client, destroy_in_the_function), ["done"] * N)
        self.assertEqual(len(tutti.dask.run(self.client, total, np.ones(1))), N)

    def test_a_worker_with_a_default_group_of_its_own_is_named(self):
        self.client.run(make_a_group_alone, workers=self.workers()[1:2])
        with self.assertRaisesRegex(ValueError, "the worker at .* has a default group that tutti.dask.run has not made"):
            tutti.dask.run(self.client, total, np.ones(1))
        self.client.run(dist.destroy_process_group, workers=self.workers()[1:2])
        self.assertEqual(len(tutti.dask.run(self.client, total, np.ones(1))), N)

    def test_a_worker_that_another_call_keeps_is_named_at_the_end_of_the_time(self):
        self.client.run(tutti.dask._reserve, "another job", workers=self.workers()[:1])
        with self.assertRaisesRegex(dist.Timeout, "is taken by another call of tutti.dask.run"):
            tutti.dask.run(self.client, total, np.ones(1), timeout=timedelta(seconds=1))
        self.client.run(tutti.dask._release, "another job", workers=self.workers()[:1])
        self.assertEqual(len(tutti.dask.run(self.client, total, np.ones(1))), N)

    def test_a_worker_that_dies_is_named_to_the_others_within_a_second(self):
        with self.assertRaisesRegex(dist.PeerLost, r"rank 2 .*is gone[\s\S]*rank 2 is worker .* at tcp://") as caught:
            tutti.dask.run(self.client, one_dies)
        if "[after" in str(caught.exception):
            self.assertLess(float(str(caught.exception).split("[after ")[1].split()[0]), 1)


class DaskWithThreads(unittest.TestCase):
    """Workers that run two tasks at once: a process has one default group all the same."""

    def test_calls_at_the_same_time_take_turns(self):
        with LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=None,
                          local_directory=scratch(self)) as cluster, Client(cluster) as client:
            client.wait_for_workers(2)
            results = {}

            def call(number):
                with Client(cluster) as own:  # as other programs would
                    results[number] = tutti.dask.run(own, slow_total, float(number), timeout=timedelta(seconds=60))

            callers = [threading.Thread(target=call, args=(number,)) for number in range(4)]
            for caller in callers:
                caller.start()
            for caller in callers:
                caller.join()
        self.assertEqual(results, {number: [(2, [3.0 * number] * 2)] * 2 for number in range(4)})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
