#!/usr/bin/env python3
"""tutti.spark.init in the tasks of a real Spark's barrier stage on this machine. Needs Java."""
import os
import signal
import sys
import time
import unittest

from pyspark.sql import SparkSession

import page
from command_lines import Watch

N = 2
os.environ["PYSPARK_PYTHON"] = sys.executable


def total(rows):
    import numpy as np

    import tutti.distributed as dist
    import tutti.spark

    tutti.spark.init()
    x = np.array([float(sum(rows))])
    dist.all_reduce(x)
    rank, size = dist.get_rank(), dist.get_world_size()
    dist.destroy_process_group()
    yield rank, size, x.tolist()


def one_dies(rows):
    from pyspark import BarrierTaskContext

    import tutti.distributed as dist
    import tutti.spark

    tutti.spark.init()
    pids = [None] * N
    dist.all_gather_object(pids, os.getpid())
    if dist.get_rank() == 0:
        os.kill(pids[1], signal.SIGKILL)
        begin = time.monotonic()
        try:
            dist.barrier()
        except dist.PeerLost as error:
            raise RuntimeError(f"rank 0 was told after {time.monotonic() - begin:.2f} s: {error}") from None
    time.sleep(20)
    BarrierTaskContext.get().barrier()
    yield 0


def total_without_an_end(rows):
    import numpy as np

    import tutti.distributed as dist
    import tutti.spark

    tutti.spark.init()
    x = np.array([float(sum(rows))])
    dist.all_reduce(x)
    yield dist.get_world_size(), x.tolist()


def twice_in_a_task(rows):
    import tutti.distributed as dist
    import tutti.spark

    tutti.spark.init()
    try:
        tutti.spark.init()
    except dist.InvalidArgument as error:
        yield str(error)
    dist.barrier()
    dist.destroy_process_group()


KNOWN = "0123456789abcdef" * 4


def total_with_a_known_secret(rows):
    import tutti._engines

    tutti._engines.secrets.token_hex = lambda count: KNOWN
    yield from total(rows)
    time.sleep(1)


def train(scale):
    """For TorchDistributor, as its users write it: the name of the backend is all that is tutti's."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("tutti")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1, bias=False))
    torch.nn.init.ones_(model.module.weight)
    model(torch.full((1, 4), scale * (dist.get_rank() + 1))).sum().backward()
    gradient = model.module.weight.grad.tolist()
    ranks = [None] * dist.get_world_size()
    dist.all_gather_object(ranks, dist.get_rank())
    backend = dist.get_backend()
    dist.barrier()
    dist.destroy_process_group()
    return backend, ranks, gradient


def has_torch():
    try:
        import torch
        import tutti.torch
    except ImportError:
        return False
    return True


class Spark(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.session = (SparkSession.builder.master(f"local[{N},1]").config("spark.ui.enabled", "false")
                       .config("spark.driver.host", "127.0.0.1").getOrCreate())
        cls.context = cls.session.sparkContext
        cls.context.setLogLevel("OFF")

    @classmethod
    def tearDownClass(cls):
        cls.session.stop()

    def test_the_tasks_of_a_barrier_stage_are_the_ranks(self):
        for _ in range(2):  # stages may follow each other in the same processes
            results = self.context.parallelize(range(10), N).barrier().mapPartitions(total).collect()
            self.assertEqual(results, [(0, N, [45.0]), (1, N, [45.0])])

    def test_stages_of_other_widths_follow_each_other_in_the_same_processes(self):
        for width in (N, 1, N, 1, 1, N):
            results = self.context.parallelize(range(10), width).barrier().mapPartitions(total).collect()
            self.assertEqual(results, [(rank, width, [45.0]) for rank in range(width)])

    def test_a_function_that_forgets_to_destroy_its_group_is_in_nobodys_way(self):
        for width in (N, 1, N):
            results = self.context.parallelize(range(10), width).barrier().mapPartitions(total_without_an_end).collect()
            self.assertEqual(results, [(width, [45.0])] * width)
        results = self.context.parallelize(range(10), N).barrier().mapPartitions(total).collect()
        self.assertEqual(results, [(rank, N, [45.0]) for rank in range(N)])

    def test_a_task_that_calls_init_twice_is_told(self):
        said = self.context.parallelize(range(10), N).barrier().mapPartitions(twice_in_a_task).collect()
        self.assertEqual(len(said), N)
        for text in said:
            self.assertIn("there is a default group already, which this task has made", text)

    def test_the_secret_comes_by_spark_and_is_on_no_command_line(self):
        with Watch(KNOWN) as watch:
            results = self.context.parallelize(range(10), N).barrier().mapPartitions(total_with_a_known_secret).collect()
        self.assertEqual(results, [(0, N, [45.0]), (1, N, [45.0])])
        self.assertEqual(watch.found, {})

    def test_the_programs_of_the_page(self):
        self.assertIn("[45.0, 45.0]", page.run("Spark"))
        if has_torch():
            self.assertIn("16.0", page.run("Spark", 1).split())  # four elements of 2 + 2

    def test_torch_distributor_takes_tutti_by_its_name(self):
        if not has_torch():
            self.skipTest("the Python of TORCH_PYTHON has no PyTorch, or make torch has not been run")
        from pyspark.ml.torch.distributor import TorchDistributor

        for local in (True, False):  # on the driver; in tasks of a barrier stage
            with self.subTest(local_mode=local):
                distributor = TorchDistributor(num_processes=N, local_mode=local, use_gpu=False)
                backend, ranks, gradient = distributor.run(train, 2.0)
                self.assertEqual((backend, ranks), ("tutti", [0, 1]))
                self.assertEqual(gradient, [[3.0] * 4])  # the mean of 2 and 4

    def test_outside_of_a_barrier_stage_it_says_what_was_expected(self):
        with self.assertRaisesRegex(Exception, "no task of a barrier stage: expected rdd.barrier"):
            self.context.parallelize(range(4), N).mapPartitions(total).collect()

    def test_a_task_that_dies_is_named_to_the_others_within_a_second(self):
        with self.assertRaises(Exception) as caught:
            self.context.parallelize(range(4), N).barrier().mapPartitions(one_dies).collect()
        text = str(caught.exception)
        if "rank 0 was told" in text:  # Spark may end the stage for the dead worker first
            self.assertRegex(text, r"after 0\.\d+ s: .*rank 1 .*is gone")
        else:
            self.assertRegex(text, "worker exited unexpectedly|crashed")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
