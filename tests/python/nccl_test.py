"""The backend nccl on a library that has NCCL's interface and works on host memory: the programs of the documents, hfai's
functions, options. What native groups give is what it has to give."""
import os
import pathlib
import sys
import unittest
from datetime import timedelta

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import documents_test as documents
import numpy as np
from ranks import run_ranks, run_script
from rows import main, rows

import tutti
import tutti.distributed as dist
import tutti.hfai.distributed as hfai


def built(name):
    """A file beside libtutti.so, in the package or where tutti was built; None where it was not."""
    program = pathlib.Path(os.environ.get("PROGRAM_UNDER_TEST", "/nowhere/bin/tutti"))
    places = (pathlib.Path(tutti.__file__).parent / "lib", program.parent.parent / "lib")
    return next((str(place / name) for place in places if (place / name).exists()), None)


LIBRARY, PLUG_IN = built("libtutti-nccl.so.2"), built("tutti/backends/libtutti-backend-nccl.so")


def on_nccl(program, *args):
    """A program of the documents, with a default group of this backend."""
    def run(rank):
        dist.init_process_group("nccl", *args)
        assert dist.get_backend() == "nccl"
        result = program(rank)
        dist.destroy_process_group()
        return result

    return run


def cluster(rank):
    hfai.set_nccl_opt_level(hfai.HFAI_NCCL_OPT_LEVEL.CUSTOM, {"NCCL_ALGO": "Ring"})
    hfai.init_process_group("nccl")
    assert dist.group.WORLD.timeout == timedelta(seconds=1800)  # hfai's own
    hfai.barrier()
    objs = ["to broadcast"] if rank == 0 else [None]
    hfai.broadcast(objs, src=0)
    collected = [None, None] if rank == 0 else None
    hfai.gather({"rank": rank}, collected)
    lists = [np.zeros(2 + i, dtype=np.int64) for i in range(2)]
    hfai.all_gather(lists, np.arange(2 + rank, dtype=np.int64) + 1 + 2 * rank)
    x = np.full(3, rank + 1.0)
    hfai.all_reduce(x)
    part = np.zeros(2)
    hfai.reduce_scatter(part, [np.full(2, rank + 1.0), np.full(2, 10.0)])
    applied = hfai.pairwise_apply(lambda a, b: float(a.sum() + b.sum()), np.ones(1 + rank) * rank)
    later = hfai.gather(rank, [None, None] if rank == 1 else None, dst=1, async_op=True)
    later.wait()
    hfai.destroy_process_group()
    return [objs, collected, [t.tolist() for t in lists], x.tolist(), part.tolist(), applied]


def options_and_groups(rank):
    options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
    options.config.min_ctas = 1
    options.config.comm_name = "tests"
    dist.init_process_group("nccl", pg_options=options)
    times = [dist.group.WORLD.timeout.total_seconds()]
    pair = dist.new_group([0, 1], backend="nccl", pg_options=dist.ProcessGroupNCCL.Options())
    other = dist.new_group([0, 2])
    mapped = dist.new_group(backend="cpu:nccl")
    native = dist.new_group(backend="native")
    times += [mapped.timeout.total_seconds(), native.timeout.total_seconds()]
    values = []
    for group in (pair, other, mapped, native):
        x = np.full(3, rank + 1.0)
        dist.all_reduce(x, group=group)
        values.append(x.tolist()[0])
    premultiplied = np.full(2, rank + 1, np.float32)
    dist.all_reduce(premultiplied, op=dist._make_nccl_premul_sum(0.5))
    split = dist.split_group(split_ranks=[[0, 1], [2]])
    y = np.ones(1)
    dist.all_reduce(y, group=split)
    try:
        dist.new_group(backend="nccl", pg_options={"is_high_priority_stream": True})
    except TypeError as error:
        refused = str(error)
    dist.destroy_process_group()
    return times, values, premultiplied.tolist(), y.tolist(), refused


WITHOUT = """
import tutti.distributed as dist
print(dist.is_nccl_available())
try:
    dist.ProcessGroupNCCL.Options()
except dist.DistBackendError as error:
    print(error)
dist.init_process_group(world_size=1, rank=0, store=dist.HashStore())  # it is not asked for
print(dist.get_backend())
dist.destroy_process_group()
try:
    dist.init_process_group("nccl", world_size=1, rank=0, store=dist.HashStore())
except dist.DistBackendError as error:
    print(error)
"""


class WithoutTheLibrary(unittest.TestCase):
    @unittest.skipUnless(PLUG_IN, "no plug-in for NCCL when tutti was built")
    @rows("S1-036", "A-01")
    def test_nccl_is_not_available_and_says_why(self):
        available, options, backend, error = run_script(WITHOUT, env={"TUTTI_NCCL_LIB": "/nowhere/libnccl.so.2"}).splitlines()
        self.assertEqual((available, backend), ("False", "native"))
        self.assertIn("ProcessGroupNCCL.Options: the backend nccl cannot be used here", options)
        self.assertIn("/nowhere/libnccl.so.2", error)


@unittest.skipUnless(LIBRARY and PLUG_IN, "no libtutti-nccl, or no plug-in for NCCL, when tutti was built")
class Nccl(unittest.TestCase):
    def setUp(self):
        os.environ["TUTTI_NCCL_LIB"] = LIBRARY

    def tearDown(self):
        del os.environ["TUTTI_NCCL_LIB"]

    @rows("S2-021")
    def test_the_programs_of_the_documents_give_what_they_give_natively(self):
        for program, size in ((documents.article, 4), (documents.tensors, 2), (documents.exchanges, 4),
                              (documents.complex_exchanges, 4), (documents.loops_of_scatter, 4), (documents.objects, 3),
                              (documents.meshes, 8), (documents.communication_hooks, 2)):
            with self.subTest(program=program.__name__):
                self.assertEqual(run_ranks(on_nccl(program), size, init=False), run_ranks(program, size))

    def test_hfais_functions_work_on_it(self):
        first, second = run_ranks(cluster, init=False)
        self.assertEqual([first[0], second[0]], [["to broadcast"]] * 2)
        self.assertEqual([first[1], second[1]], [[{"rank": 0}, {"rank": 1}], None])
        self.assertEqual(first[2], [[1, 2], [3, 4, 5]])
        self.assertEqual((first[3], first[4], second[4]), ([3.0] * 3, [3.0] * 2, [20.0] * 2))
        self.assertEqual([first[5], second[5]], [[0.0, 2.0], [2.0, 4.0]])

    @rows("A-03", "S1-018", "S4-006")
    def test_groups_have_options_and_times_of_their_own(self):
        results = run_ranks(options_and_groups, 3, init=False)
        for rank, (times, values, premultiplied, split, refused) in enumerate(results):
            self.assertEqual(times, [600, 600, 1800])
            mine = rank + 1.0
            self.assertEqual(values, [3.0 if rank < 2 else mine, 4.0 if rank != 1 else mine, 6.0, 6.0])
            self.assertEqual((premultiplied, split), ([3.0, 3.0], [2.0 if rank < 2 else 1.0]))
            self.assertEqual(refused, "new_group: pg_options is of type dict: expected a ProcessGroupNCCL.Options or None")


if __name__ == "__main__":
    main("python_" + pathlib.Path(__file__).stem)
