"""Python programs under tutti's launcher: what they get, and the forms of torchrun, torch.distributed.launch, DeepSpeed."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import numpy as np
from ranks import free_port, run_ranks
from rows import main, rows

import tutti.distributed as dist
import tutti.multiprocessing

# What a script sees, as a line of JSON; both spellings of the argument are declared, as the documentation advises.
SCRIPT = """
import argparse, json, os
import numpy as np
import tutti.distributed as dist
import tutti.multiprocessing
parser = argparse.ArgumentParser()
parser.add_argument("--local-rank", "--local_rank", type=int, default=-1)
parser.add_argument("words", nargs="*")
arguments = parser.parse_args()
dist.init_process_group(init_method="env://")
x = np.array([dist.get_rank() + 1])
dist.all_reduce(x)
print(json.dumps({"argument": arguments.local_rank, "words": arguments.words, "sum": int(x[0]),
                  "elastic": dist.is_torchelastic_launched(),
                  **{name: os.environ.get(name) for name in (
                      "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR",
                      "MASTER_PORT", "TORCHELASTIC_RUN_ID")}}))
dist.destroy_process_group()
"""


def every_call(rank, backend):
    """The operations of the capability table."""
    dist.init_process_group(backend)
    n, x = dist.get_world_size(), np.full(2, rank + 1.0)
    if rank == 0:
        dist.send(x, 1)
    else:
        dist.recv(x)
    dist.broadcast(x, src=0)
    dist.all_reduce(x)
    dist.reduce(x, dst=0)
    dist.all_gather([np.zeros(2) for _ in range(n)], x)
    into = np.zeros(2 * n)
    dist.all_gather_into_tensor(into, x)
    assert np.array_equal(into[2 * rank:2 * rank + 2], x) and into.all(), into
    dist.gather(x, [np.zeros(2) for _ in range(n)] if rank == 0 else None)
    dist.scatter(x, [np.full(2, i + 5.0) for i in range(n)] if rank == 0 else None)
    out = np.zeros(1)
    dist.reduce_scatter(out, [np.ones(1)] * n)
    dist.reduce_scatter_tensor(out, np.ones(n))
    swapped = np.zeros(n)
    dist.all_to_all([swapped[i:i + 1] for i in range(n)], [np.full(1, rank * 10.0 + i) for i in range(n)])
    averaged = np.array([float(rank)])
    dist.all_reduce(averaged, op=dist.ReduceOp.AVG)
    bits = np.array([rank + 1], dtype=np.int32)
    dist.all_reduce(bits, op=dist.ReduceOp.BXOR)
    dist.barrier()
    dist.monitored_barrier()
    future = dist.all_reduce(np.ones(1), async_op=True).get_future()
    future.wait()
    name = dist.get_backend()
    dist.destroy_process_group()
    return name, x.tolist(), out.tolist(), swapped.tolist(), averaged.tolist(), bits.tolist()


def meshes_of_groups(rank):
    rows_of = dist.new_subgroups_by_enumeration([[0, 1], [2, 3]])[0]
    columns = dist.new_subgroups_by_enumeration([[0, 2], [1, 3]])[0]
    mesh = dist.DeviceMesh.from_group([columns, rows_of], "cpu", [[0, 1], [2, 3]], mesh_dim_names=("dp", "tp"))
    x = np.array([rank + 1.0])
    dist.all_reduce(x, group=mesh.get_group("dp"))
    texts = []
    for bad in (lambda: dist.DeviceMesh.from_group([columns, rows_of], "cpu"),
                lambda: dist.DeviceMesh.from_group([columns, rows_of], "cpu", [0, 1, 2, 3], mesh_dim_names=("a", "b")),
                lambda: dist.DeviceMesh("cpu", [[0, 1], [2]]), lambda: dist.DeviceMesh("cpu", [["0"]]),
                lambda: dist.DeviceMesh("cpu", [0, 1], mesh_dim_names="dp")):
        try:
            bad()
            texts.append("accepted")
        except dist.InvalidArgument as error:
            texts.append(str(error))
    dist.barrier()
    return float(x[0]), mesh.get_coordinate(), texts


def in_a_circle(rank):
    """Ranks that wait for each other in a circle are told so."""
    order = {0: [[0, 1], [0, 2]], 1: [[1, 2], [0, 1]], 2: [[0, 2], [1, 2]]}[rank]
    try:
        for pair in order:
            dist.new_group(pair, use_local_synchronization=True)
    except dist.InvalidArgument as error:
        time.sleep(1 if rank == 0 else 0)  # with rank 0 goes the store, in which the others look
        return str(error)
    return "made"


class Launched(unittest.TestCase):
    def launch(self, *flags, words=(), env=None):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "script.py")
            path.write_text(SCRIPT)
            done = subprocess.run([os.environ["PROGRAM_UNDER_TEST"], *flags, "--no-prefix", str(path), *words],
                                  capture_output=True, text=True, timeout=90,
                                  env={**os.environ, "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}",
                                       **(env or {})})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return sorted((json.loads(line) for line in done.stdout.splitlines()), key=lambda seen: int(seen["RANK"]))

    @unittest.skipUnless("PROGRAM_UNDER_TEST" in os.environ, "PROGRAM_UNDER_TEST names no tutti")
    @rows("S14-002", "S14-005", "S14-006", "S14-010", "S14-012", "S14-016", "S3-003", "S3-004", "S3-005",
          "S3-006", "S1-039", "E-242")
    def test_ranks_get_their_places_by_the_environment(self):
        for flags in (["run", "--standalone", "--nproc-per-node=3"], ["run", "-n", "3", "--use-env"]):
            seen = self.launch(*flags, words=("a", "b"))
            for rank, one in enumerate(seen):
                self.assertEqual((one["RANK"], one["LOCAL_RANK"], one["WORLD_SIZE"], one["LOCAL_WORLD_SIZE"]),
                                 (str(rank), str(rank), "3", "3"))
                self.assertEqual((one["sum"], one["words"], one["argument"], one["elastic"]), (6, ["a", "b"], -1, True))
                self.assertTrue(one["MASTER_ADDR"] and one["MASTER_PORT"] and one["TORCHELASTIC_RUN_ID"])

    @unittest.skipUnless("PROGRAM_UNDER_TEST" in os.environ, "PROGRAM_UNDER_TEST names no tutti")
    @rows("S14-001", "S14-013", "S14-014")
    def test_the_older_launcher_passes_an_argument(self):
        seen = self.launch("launch", "--nproc_per_node", "2")
        self.assertEqual([one["argument"] for one in seen], [0, 1])
        self.assertEqual([one["argument"] for one in self.launch("launch", "--nproc-per-node=2", "--use-env=True")],
                         [-1, -1])

    @unittest.skipUnless("PROGRAM_UNDER_TEST" in os.environ, "PROGRAM_UNDER_TEST names no tutti")
    @rows("S14-003", "S14-004", "S14-007", "S14-008", "S14-009", "S14-017", "E-243")
    def test_two_nodes_are_one_job(self):
        port = str(free_port())
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "script.py")
            path.write_text(SCRIPT)
            nodes = [subprocess.Popen([os.environ["PROGRAM_UNDER_TEST"], "run", "--num_gpus", "2", "--nnodes=2",
                                       f"--node-rank={node}", "--master-addr=127.0.0.1", f"--master-port={port}",
                                       "--no-prefix", "--timeout", "60", sys.executable, str(path)],
                                      stdout=subprocess.PIPE, text=True,
                                      env={**os.environ, "TUTTI_JOB_SECRET": "a secret of two nodes, long enough"})
                     for node in range(2)]
            texts = [node.communicate(timeout=80)[0] for node in nodes]
        self.assertEqual([node.returncode for node in nodes], [0, 0], texts)
        seen = [json.loads(line) for text in texts for line in text.splitlines()]
        self.assertEqual(sorted(one["RANK"] for one in seen), ["0", "1", "2", "3"])
        self.assertEqual({(one["sum"], one["WORLD_SIZE"], one["LOCAL_WORLD_SIZE"]) for one in seen}, {(10, "4", "2")})
        self.assertEqual(sorted((one["GROUP_RANK"], one["LOCAL_RANK"]) for one in seen),
                         [("0", "0"), ("0", "1"), ("1", "0"), ("1", "1")])


def in_the_world_of_spawn(rank, size, folder):
    """Twice, without a word about it; what came out goes into a file."""
    with open(f"{folder}/{rank}", "w") as out:
        for _ in range(2):
            dist.init_process_group()
            x = np.full(2, dist.get_rank() + 1)
            dist.all_reduce(x)
            print(dist.get_rank(), dist.get_world_size(), x.tolist(), file=out)
            dist.destroy_process_group()


def with_a_spawn_inside(rank, size, folder):
    os.mkdir(f"{folder}/inside {rank}")
    tutti.multiprocessing.spawn(in_the_world_of_spawn, (2, f"{folder}/inside {rank}"), 2)
    in_the_world_of_spawn(rank, size, folder)


def with_a_rank_of_its_own(rank, size, folder):
    dist.init_process_group(rank=size - 1 - rank, world_size=size)
    with open(f"{folder}/{rank}", "w") as out:
        print(dist.get_rank(), dist.get_world_size(), file=out)
    dist.barrier()
    dist.destroy_process_group()


class Spawned(unittest.TestCase):
    """Ranks of tutti.multiprocessing.spawn that say nothing to init_process_group are a world."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def check(self, folder, size):
        for rank in range(size):
            with open(f"{folder}/{rank}") as file:
                self.assertEqual(file.read(), f"{rank} {size} {[size * (size + 1) // 2] * 2}\n" * 2)

    def spawn(self, function, size, **options):
        tutti.multiprocessing.spawn(function, (size, self.folder), size, **options)

    @rows("S15-001")
    def test_the_rank_and_the_number_are_those_of_spawn_with_every_start_method(self):
        for method in ("spawn", "fork", "forkserver"):
            for size in (1, 3):
                self.spawn(in_the_world_of_spawn, size, start_method=method)
                self.check(self.folder, size)

    def test_the_job_of_the_caller_is_another(self):
        job = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
               "MASTER_PORT": "1"}
        with unittest.mock.patch.dict(os.environ, job):
            for size in (1, 2):
                self.spawn(in_the_world_of_spawn, size)
                self.check(self.folder, size)

    def test_a_spawn_inside_is_a_world_of_its_own(self):
        self.spawn(with_a_spawn_inside, 2)
        self.check(self.folder, 2)
        for rank in range(2):
            self.check(f"{self.folder}/inside {rank}", 2)

    def test_what_the_program_says_wins(self):
        self.spawn(with_a_rank_of_its_own, 3)
        for rank in range(3):
            with open(f"{self.folder}/{rank}") as file:
                self.assertEqual(file.read(), f"{2 - rank} 3\n")


class Backends(unittest.TestCase):
    @rows("S2-001", "S2-002", "S2-003", "S8-015", "S8-025", "S10-009", "S10-008", "A-02")
    def test_every_operation_works_on_every_backend_that_is_here(self):
        for backend in ("native", "cpu:native", "gloo", "hf_zmq"):
            if ":" not in backend and not dist.is_backend_available(backend):
                continue
            with self.subTest(backend=backend):
                first, second = run_ranks(every_call, args=(backend,), init=False)
                self.assertEqual(first[0], backend.rpartition(":")[2])
                self.assertEqual((first[1], second[1]), ([5.0, 5.0], [6.0, 6.0]))
                self.assertEqual(first[2:], ([2.0], [0.0, 10.0], [0.5], [3]))
                self.assertEqual(second[3], [1.0, 11.0])

    @rows("S5-010", "S5-011")
    def test_a_mesh_of_several_groups(self):
        for rank, (value, coordinate, texts) in enumerate(run_ranks(meshes_of_groups, 4)):
            self.assertEqual(value, [4.0, 6.0][rank % 2])
            self.assertEqual(coordinate, [rank // 2, rank % 2])
            self.assertNotIn("accepted", texts)

    @rows("S4-010")
    def test_ranks_that_wait_for_each_other_in_a_circle_are_told(self):
        self.assertTrue(all("new_group" in text for text in run_ranks(in_a_circle, 3)))


if __name__ == "__main__":
    main("python_" + pathlib.Path(__file__).stem)
