#!/usr/bin/env python3
"""tutti.ray between actors of a real Ray on this machine: every operation over NumPy and PyTorch, errors that name actors, time
limits, and the time of an all_reduce beside Ray's own group over gloo.
"""
import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest
from datetime import timedelta

import numpy as np
import ray
from ray.util import collective
from ray.util.collective.types import ReduceOp

import page
import tutti.ray
from command_lines import Watch
from training import train

try:
    import torch
except ImportError:
    torch = None

N = 2
KNOWN = "0123456789abcdef" * 4
os.environ["TUTTI_DETERMINISM"] = "run_to_run"  # of the actors too


@ray.remote(num_cpus=0)
class Worker:
    def __init__(self, rank, world_size=N, backend="tutti", group="default", limit=30.0, join=60.0):
        import tutti.ray as ours

        ours.TuttiGroup.default_timeout = timedelta(seconds=limit)
        ours.TuttiGroup.join_timeout = timedelta(seconds=join)
        self.rank, self.n, self.group = rank, world_size, group
        self.place = (world_size, rank, backend, group)

    def join(self):
        collective.init_collective_group(*self.place)
        return os.getpid()

    def make_secret_known(self):
        import tutti._engines

        tutti._engines.secrets.token_hex = lambda count: KNOWN

    def is_up(self):
        return True

    def sum_of(self, value):
        x = np.array([value])
        collective.allreduce(x, self.group)
        return x.tolist()

    def leave(self):
        collective.destroy_collective_group(self.group)

    def all_operations(self, make, read):
        """Each method once; what came out, as lists."""
        r, n, g = self.rank, self.n, self.group
        out = {}
        x = make([r + 1.0, 10.0])
        collective.allreduce(x, g)
        out["sum"] = read(x)
        for op in (ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX):
            x = make([r + 1.0, 10.0])
            collective.allreduce(x, g, op)
            out[op.name] = read(x)
        x = make([r + 1.0])
        collective.reduce(x, 1, g)
        out["reduce"] = read(x)
        x = make([float(r)])
        collective.broadcast(x, 1, g)
        out["broadcast"] = read(x)
        xs = [make([0.0, 0.0]) for _ in range(n)]
        collective.allgather(xs, make([float(r), 7.0]), g)
        out["allgather"] = [read(x) for x in xs]
        x = make([0.0])
        collective.reducescatter(x, [make([float(10 * i + r)]) for i in range(n)], g)
        out["reducescatter"] = read(x)
        collective.barrier(g)
        x = make([float(r), 3.0])
        if r == 0:
            collective.send(x, 1, g)
        elif r == 1:
            collective.recv(x, 0, g)
        out["recv"] = read(x)
        return out

    def numpy_operations(self):
        return self.all_operations(lambda values: np.array(values), lambda x: x.tolist())

    def torch_operations(self):
        return self.all_operations(lambda values: torch.tensor(values), lambda x: x.tolist())

    def all_reduce_time(self, elements, rounds):
        x = np.ones(elements, np.float32)
        times = []
        for _ in range(rounds):
            collective.barrier(self.group)
            begin = time.perf_counter()
            collective.allreduce(x, self.group)
            times.append(time.perf_counter() - begin)
        return sorted(times)[rounds // 2]

    def call_and_time(self, operation):
        begin = time.monotonic()
        try:
            getattr(collective, operation)(np.ones(4), group_name=self.group)
        except Exception as error:
            return time.monotonic() - begin, type(error).__name__, str(error)
        return time.monotonic() - begin, "", ""


@ray.remote(num_cpus=0)
class Trainer:
    def pid(self):
        return os.getpid()

    def train(self, job, rank, **options):
        with job.member(rank):
            return train(**options)


# A job beside this one: its actors of rank 0 and 1 come when they are told to, in a group of the name that the first word says.
OTHER_JOB = """
import sys
import ray
from ray_test import Worker

ray.init(namespace=sys.argv[2] or None, log_to_driver=False, logging_level="ERROR")
workers = [Worker.remote(rank, group=sys.argv[1]) for rank in range(2)]
ray.get([worker.is_up.remote() for worker in workers], timeout=60)
joined = {}
for line in sys.stdin:
    rank = int(line)
    joined[rank] = workers[rank].join.remote()
    print("called", flush=True)
    if len(joined) == 2:
        break
ray.get(list(joined.values()), timeout=90)
print(ray.get([worker.sum_of.remote(100.0) for worker in workers], timeout=60), flush=True)
"""


class Ray(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR", namespace="shared")

    @classmethod
    def tearDownClass(cls):
        ray.shutdown()

    def workers(self, n=N, **options):
        workers = [Worker.remote(rank, n, **options) for rank in range(n)]
        self.addCleanup(lambda: [ray.kill(worker) for worker in workers])
        return workers

    def joined(self, n=N, **options):
        workers = self.workers(n, **options)
        return workers, ray.get([worker.join.remote() for worker in workers], timeout=90)

    def check_operations(self, method, group):
        workers, _ = self.joined(group=group)
        zero, one = ray.get([getattr(worker, method).remote() for worker in workers], timeout=60)
        for out in (zero, one):
            self.assertEqual(out["sum"], [3.0, 20.0])
            self.assertEqual(out["PRODUCT"], [2.0, 100.0])
            self.assertEqual(out["MIN"], [1.0, 10.0])
            self.assertEqual(out["MAX"], [2.0, 10.0])
            self.assertEqual(out["broadcast"], [1.0])
            self.assertEqual(out["allgather"], [[0.0, 7.0], [1.0, 7.0]])
            self.assertEqual(out["recv"], [0.0, 3.0])
        self.assertEqual((zero["reduce"], one["reduce"]), ([1.0], [3.0]))  # others keep what they had
        self.assertEqual((zero["reducescatter"], one["reducescatter"]), ([1.0], [21.0]))
        ray.get([worker.leave.remote() for worker in workers])
        ray.get([worker.join.remote() for worker in workers], timeout=60)  # a group of the same name again

    def test_every_operation_takes_arrays_of_numpy(self):
        self.check_operations("numpy_operations", "numpy")

    @unittest.skipIf(torch is None, "left out: ray_test: there is no PyTorch")
    def test_every_operation_takes_tensors_of_torch(self):
        self.check_operations("torch_operations", "torch")

    def test_the_program_of_the_page(self):
        address = ray.get_runtime_context().gcs_address
        self.assertIn("8.0", page.run("Ray", env={**os.environ, "RAY_ADDRESS": address}))
        self.assertEqual(page.run("Ray", 1, env={**os.environ, "RAY_ADDRESS": address}).count("(3, "), 3)

    def test_the_secret_comes_by_rays_store_and_is_on_no_command_line(self):
        workers = self.workers(group="known")
        ray.get([worker.make_secret_known.remote() for worker in workers], timeout=60)
        with Watch(KNOWN) as watch:
            ray.get([worker.join.remote() for worker in workers], timeout=90)
            results = ray.get([worker.call_and_time.remote("allreduce") for worker in workers], timeout=60)
            time.sleep(1)
        self.assertEqual([kind for _, kind, _ in results], ["", ""])
        self.assertEqual(watch.found, {})

    def test_a_group_that_the_driver_declares(self):
        workers = self.workers(group="declared")
        collective.create_collective_group(workers, N, [0, 1], "tutti", "declared")
        results = ray.get([worker.call_and_time.remote("allreduce") for worker in workers], timeout=60)
        self.assertEqual([kind for _, kind, _ in results], ["", ""])

    def test_an_actor_that_dies_is_named_to_the_others_within_a_second(self):
        workers, pids = self.joined(3, group="mortal")
        calls = [worker.call_and_time.remote("allreduce") for worker in workers[:2]]
        time.sleep(1)
        killed = time.monotonic()
        os.kill(pids[2], signal.SIGKILL)
        for _, kind, text in ray.get(calls, timeout=30):
            self.assertEqual(kind, "PeerLost", text)
            self.assertIn("rank 2", text)
            self.assertRegex(text, rf"rank 2 is actor .*Worker.* pid {pids[2]}")
        self.assertLess(time.monotonic() - killed, 1 + 1)  # a second, and Ray's way back

    def test_an_actor_that_does_not_call_is_named_after_the_time_limit(self):
        workers, pids = self.joined(group="late", limit=2.0)
        took, kind, text = ray.get(workers[0].call_and_time.remote("allreduce"), timeout=30)
        self.assertEqual(kind, "Timeout", text)
        self.assertRegex(text, rf"rank 1 is actor .*pid {pids[1]}")
        self.assertLess(took, 6)

    def test_actors_that_call_different_operations_are_both_told(self):
        workers, _ = self.joined(group="mismatch")
        results = ray.get([workers[0].call_and_time.remote("allreduce"), workers[1].call_and_time.remote("broadcast")],
                          timeout=30)
        self.assertEqual([kind for _, kind, _ in results], ["CollectiveMismatch"] * 2, results)

    def test_two_jobs_with_groups_of_one_name_do_not_mix(self):
        address = ray.get_runtime_context().gcs_address
        here = str(pathlib.Path(__file__).resolve().parent)
        # The order in which ranks come: 0 and 1 are of this job, a and b of the other.
        for number, order in enumerate(("0ab1", "a01b", "1ab0", "0a1b")):
            with self.subTest(order=order):
                namespace = "shared" if number % 2 else ""
                other = subprocess.Popen([sys.executable, "-c", OTHER_JOB, f"shared_{number}", namespace], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, text=True,
                                         env={**os.environ, "RAY_ADDRESS": address, "PYTHONPATH": here})
                self.addCleanup(other.stdout.close)
                self.addCleanup(other.kill)
                workers = self.workers(group=f"shared_{number}")
                ray.get([worker.is_up.remote() for worker in workers], timeout=60)
                joining = []
                for who in order:
                    if who in "ab":
                        other.stdin.write(f"{'ab'.index(who)}\n")
                        other.stdin.flush()
                        self.assertEqual(other.stdout.readline(), "called\n")
                    else:
                        joining.append(workers[int(who)].join.remote())
                    time.sleep(1)  # until it looks for the others
                ray.get(joining, timeout=90)
                self.assertEqual(ray.get([worker.sum_of.remote(1.0) for worker in workers], timeout=60), [[2.0]] * 2)
                self.assertEqual(other.stdout.readline(), f"{[[200.0]] * 2}\n")
                other.stdin.close()
                self.assertEqual(other.wait(30), 0)

    def test_two_groups_of_one_name_in_one_job_at_a_time_are_an_error_that_names_both_actors(self):
        first, second = Worker.remote(0, group="twice"), Worker.remote(0, group="twice")
        self.addCleanup(lambda: [ray.kill(worker) for worker in (first, second)])
        ray.get([worker.is_up.remote() for worker in (first, second)], timeout=60)
        joining = first.join.remote()
        time.sleep(2)
        with self.assertRaisesRegex(ray.exceptions.RayTaskError, "(?s)actor .*Worker.* is rank 0 of a group of this name that is "
                                    "being made, and so wants to be actor .*Worker"):
            ray.get(second.join.remote(), timeout=60)
        partner = Worker.remote(1, group="twice")
        self.addCleanup(lambda: ray.kill(partner))
        ray.get([joining, partner.join.remote()], timeout=60)

    def test_an_actor_whose_partner_never_comes_says_so(self):
        lonely = self.workers(group="lonely", join=2.0)[1]
        with self.assertRaisesRegex(ray.exceptions.RayTaskError, "rank 1 has not found rank 0 within 2 s"):
            ray.get(lonely.join.remote(), timeout=30)

    def test_what_an_actor_left_behind_that_died_before_the_group_was_whole_is_not_taken_for_the_group(self):
        dead = Worker.remote(0, group="stale")
        dead.join.remote()
        time.sleep(2)
        ray.kill(dead)
        self.joined(group="stale")

    def trained(self, job, trainers, **options):
        return [trainer.train.remote(job, rank, **options) for rank, trainer in enumerate(trainers)]

    def test_an_actor_that_dies_is_replaced_in_the_job_that_goes_on_with_the_bits_of_an_undisturbed_one(self):
        trainers = [Trainer.options(max_restarts=2, max_task_retries=2).remote() for _ in range(3)]
        self.addCleanup(lambda: [ray.kill(trainer) for trainer in trainers])
        undisturbed = ray.get(self.trained(tutti.ray.Job(3), trainers), timeout=180)
        for victim in (1, 0):
            pids = ray.get([trainer.pid.remote() for trainer in trainers], timeout=60)
            results = ray.get(self.trained(tutti.ray.Job(3), trainers, dies_at={(30, victim)}), timeout=180)
            self.assertEqual([result[1:] for result in results], [result[1:] for result in undisturbed])
            self.assertEqual([old == pid for old, (pid, *_) in zip(pids, results)], [rank != victim for rank in range(3)])

    def test_another_actor_takes_the_place_of_one_that_is_not_restarted(self):
        trainers = [Trainer.remote() for _ in range(3)]
        self.addCleanup(lambda: [ray.kill(trainer) for trainer in trainers])
        job = tutti.ray.Job(3)
        calls = self.trained(job, trainers, dies_at={(30, 2)})
        with self.assertRaises(ray.exceptions.RayActorError):
            ray.get(calls[2], timeout=180)
        trainers[2] = Trainer.remote()
        calls[2] = trainers[2].train.remote(job, 2)
        outcomes = {result[1:] for result in ray.get(calls, timeout=180)}
        self.assertEqual([size for size, _ in outcomes], [3])

    @unittest.skipIf(torch is None, "left out: ray_test, the time of an all_reduce: Ray's own group needs PyTorch")
    def test_an_all_reduce_of_one_megabyte_takes_a_quarter_of_the_time_of_rays_own_group(self):
        medians = {}
        for backend in ("gloo", "tutti"):
            workers, _ = self.joined(backend=backend, group=f"{backend}_time")
            medians[backend] = max(ray.get([w.all_reduce_time.remote(1 << 18, 41) for w in workers], timeout=120))
        ratio = medians["tutti"] / medians["gloo"]
        print(f"\nall_reduce of 1 MB between two actors: tutti {1e6 * medians['tutti']:.0f} us, Ray's gloo "
              f"{1e6 * medians['gloo']:.0f} us: {ratio:.2f} (target 0.25)", flush=True)
        self.assertLess(ratio, 1)  # a busy machine says no more; the figure is printed


class RayTrain(unittest.TestCase):
    @unittest.skipIf(torch is None, "left out: ray_test, Ray Train: there is no PyTorch")
    def test_torch_config_takes_the_backend_by_its_name(self):
        import ray.train
        from ray.train import ScalingConfig
        from ray.train.torch import TorchConfig, TorchTrainer

        def train():
            import torch
            import torch.distributed as dist

            x = torch.full((4,), float(dist.get_rank() + 1))
            dist.all_reduce(x)
            model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
            model(x).sum().backward()
            assert dist.get_backend() == "tutti", dist.get_backend()
            assert x.tolist() == [3.0] * 4, x
            ray.train.report({"sum": x.sum().item()})  # a failed assertion is fit()'s exception

        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        try:
            result = TorchTrainer(train, scaling_config=ScalingConfig(num_workers=2),
                                  torch_config=TorchConfig(backend="tutti")).fit()
            self.assertIsNone(result.error)
        finally:
            ray.shutdown()


if __name__ == "__main__":
    assert tutti.ray.TuttiGroup.backend() == "TUTTI"
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
