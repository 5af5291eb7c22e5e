"""hfai.distributed: objects and arrays of different sizes, pairwise_apply, NCCL's tuning, and the backend over ZeroMQ."""
import asyncio
import os
import pathlib
import sys
import tempfile
import threading
import unittest
from datetime import timedelta

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import numpy as np
from ranks import run_ranks
from rows import main, rows

import tutti
import tutti.distributed
import tutti.hfai.distributed as dist
from tutti.hfai import tuning
from tutti.hfai.distributed import HFAI_NCCL_OPT_LEVEL

NAMES = ("NCCL_ALGO", "NCCL_PROTO", "NCCL_GRAPH_FILE", "NCCL_NET_GDR_LEVEL", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS",
         "NCCL_IB_DISABLE")


def cluster(rank, backend):
    dist.init_process_group(backend=backend)
    assert dist.is_initialized() and dist.get_world_size() == 2 and dist.get_rank() == rank
    dist.barrier()
    objs = ["to broadcast"] if rank == 0 else ["anything"]
    dist.broadcast(objs, src=0)
    collected = [None, None] if rank == 1 else None
    dist.gather({"rank": rank}, collected, dst=1)
    tensor_list = [np.zeros(2 + i, dtype=np.int64) for i in range(2)]
    dist.all_gather(tensor_list, np.arange(2 + rank, dtype=np.int64) + 1 + 2 * rank)
    again = [np.zeros(2 + i, dtype=np.int64) for i in range(2)]
    dist.all_gather(again, np.arange(2 + rank, dtype=np.int64) + 1 + 2 * rank, async_op=True).wait()
    assert [a.tolist() for a in again] == [t.tolist() for t in tensor_list]
    output, scale = np.zeros(2 + rank, dtype=np.int64), 10**rank
    inputs = [np.array([1, 2]) * scale, np.array([3, 4, 5]) * scale]
    dist.reduce_scatter(output, inputs, op=tutti.distributed.ReduceOp.SUM)
    work = dist.reduce_scatter(np.zeros(2 + rank, dtype=np.int64), inputs, async_op=True)
    work.wait()
    assert work.result()[0].tolist() == output.tolist()
    dist.barrier(async_op=True).wait()
    backend = tutti.distributed.get_backend()
    assert tutti.distributed.group.WORLD.timeout == timedelta(seconds=1800)
    dist.destroy_process_group()
    return objs, collected, [t.tolist() for t in tensor_list], output.tolist(), backend


def pairs(rank):
    def f(x, y, *more):
        return (x + y).tolist() + list(more)

    x = np.ones(1) * rank
    results = [dist.pairwise_apply(f, x), dist.pairwise_apply(f, x, args=("a", 2), equal_size=True)]
    group = tutti.distributed.new_group([1, 2])
    if rank in (1, 2):
        results.append(dist.pairwise_apply(lambda a, b: a.size * 10 + b.size, np.zeros((1, rank)), group=group))
    texts = []
    for bad in ({"x": np.zeros(1 if rank else 2), "equal_size": True}, {"x": np.zeros((1,) * (1 + rank % 2))},
                {"x": np.zeros(1, dtype=np.float32 if rank else np.float64)}):
        try:
            dist.pairwise_apply(f, **bad)
            texts.append("accepted")
        except tutti.InvalidArgument as error:
            texts.append(str(error))
    return results, texts


def long_pairs(rank):
    """x of all ranks from 0.5 to 1.5 MB; the calls of f, its own first, and what they saw."""
    n, seen = dist.get_world_size(), []
    x = np.full((1 + rank, 1 << 16), rank + 0.5)

    def f(mine, y, factor):
        seen.append((y.shape, float(y.min()), float(y.max())))
        y *= 0  # it is the caller's
        return float(mine[0, 0]) * factor + y.shape[0]

    for _ in range(3):
        results = dist.pairwise_apply(f, x, args=(10,))
        assert results == [10 * (rank + 0.5) + 1 + r for r in range(n)], results
        order = [(rank - step) % n for step in range(n)]
        assert seen == [((1 + r, 1 << 16), r + 0.5, r + 0.5) for r in order], seen
        seen.clear()
        assert float(x.min()) == rank + 0.5
    try:
        dist.pairwise_apply(lambda mine, y: 1 / float(y[0, 0] - 1.5), x)  # rank 1's
        raise AssertionError("no error")
    except ZeroDivisionError:
        pass
    dist.barrier()
    return True


def exchanges(rank, backend):
    dist.init_process_group(backend)
    lists = [[{"n": i, "a": np.full(3, i)}] if rank == i % 2 else [None] for i in range(4)]
    begun = [dist.broadcast(objs, src=i % 2, async_op=True) for i, objs in enumerate(lists)]
    x = np.ones(1)
    tutti.distributed.all_reduce(x)  # another collective in between
    collected = [None, None] if rank == 0 else None
    begun.append(dist.gather(f"rank {rank}", collected, async_op=True))
    for work in begun:
        assert work.wait() is True and work.is_completed() and work.is_success() and work.exception() is None
    assert begun[2].result() is lists[2] and asyncio.run(waited(begun[1])) is lists[1]
    several = [1, {"b": 2}] if rank == 0 else [None, None]
    dist.broadcast(several, src=0)
    assert several == [1, {"b": 2}], several
    lonely = tutti.distributed.new_group([1])
    alone = dist.broadcast(["x"], src=1, group=lonely, async_op=True)
    assert (alone is None) == (rank == 0) and (alone is None or alone.wait())
    failed = dist.gather(threading.Lock() if rank == 1 else "fine", [None, None] if rank == 0 else None, async_op=True)
    try:
        failed.wait()
        return "accepted"
    except tutti.ObjectError as error:
        text = str(error)
    assert failed.is_completed() and not failed.is_success() and isinstance(failed.exception(), tutti.ObjectError)
    if rank == 0:
        pending = dist.broadcast([None], src=1, async_op=True)
        try:
            pending.wait(timedelta(milliseconds=30))
            return "nobody has sent"
        except tutti.Timeout:
            pass
        tutti.distributed.barrier()
        pending.wait()
    else:
        tutti.distributed.barrier()
        dist.broadcast([1], src=1, async_op=True).wait()
    dist.destroy_process_group()
    return x[0], collected, [objs[0]["n"] for objs in lists], text


async def waited(work):
    return await work


class Cluster(unittest.TestCase):
    @rows("S19-001", "S19-002", "S19-005", "S19-006", "S19-007", "S19-008", "S19-009", "S19-010", "S19-011", "E-001",
          "E-002", "E-003", "E-901")
    def test_objects_and_arrays_of_different_sizes(self):
        self.check("native")

    @unittest.skipUnless(tutti.distributed.is_backend_available("hf_zmq"), "no ZeroMQ when tutti was built")
    @rows("S19-003", "S19-004", "S2-009")
    def test_the_backend_over_zeromq_has_two_names(self):
        for name in (dist.HF_ZMQ_BACKEND, "hf_barrier"):
            self.assertEqual(self.check(name), "hf_zmq")

    def check(self, backend):
        first, second = run_ranks(cluster, args=(backend,), init=False)
        self.assertEqual([first[0], second[0]], [["to broadcast"]] * 2)
        self.assertEqual([first[1], second[1]], [None, [{"rank": 0}, {"rank": 1}]])
        self.assertEqual([first[2], second[2]], [[[1, 2], [3, 4, 5]]] * 2)
        self.assertEqual([first[3], second[3]], [[11, 22], [33, 44, 55]])
        return first[4]

    @rows("S19-006", "S19-007", "A-05", "A-58")
    def test_objects_travel_while_the_program_goes_on(self):
        for backend in ("native", "hf_zmq"):
            if not tutti.distributed.is_backend_available(backend):
                continue
            with self.subTest(backend=backend):
                first, second = run_ranks(exchanges, args=(backend,), init=False)
                self.assertEqual(first[:3], (2.0, ["rank 0", "rank 1"], [0, 1, 2, 3]))
                self.assertEqual(second[:3], (2.0, None, [0, 1, 2, 3]))
                self.assertIn("could not be sent", first[3])
                self.assertIn("lock", second[3])

    @rows("A-27", "S19-025", "S19-026", "S19-027", "S19-028", "S19-029", "S19-030", "S19-031", "E-004")
    def test_a_function_of_each_pair(self):
        for rank, (results, texts) in enumerate(run_ranks(pairs, 4)):
            self.assertEqual(results[0], [[rank + i] for i in range(4)])
            self.assertEqual(results[1], [[rank + i, "a", 2] for i in range(4)])
            if rank in (1, 2):
                self.assertEqual(results[2], [10 * rank + 1, 10 * rank + 2])
            self.assertNotIn("accepted", texts)
            self.assertTrue(all("x of rank" in text for text in texts), texts)

    @rows("S19-032")
    def test_a_function_of_each_pair_works_while_later_arrays_are_on_their_way(self):
        self.assertEqual(run_ranks(long_pairs, 3), [True] * 3)


class Tuning(unittest.TestCase):
    def setUp(self):
        for name in NAMES:
            os.environ.pop(name, None)

    tearDown = setUp

    def test_the_levels_have_their_numbers(self):
        level = HFAI_NCCL_OPT_LEVEL
        self.assertEqual((level.DISABLED, level.AUTO, level.FULL, level.COVER_AUTO, level.CUSTOM), (0, 1, 3, 10, 101))

    @rows("S19-012", "S19-013", "S19-014", "S19-015", "S19-016", "S19-017", "S19-018", "E-005")
    def test_a_level_chooses_what_the_machine_has_a_use_for(self):
        with tempfile.TemporaryDirectory() as folder:
            system, tuning._SYSTEM = tuning._SYSTEM, pathlib.Path(folder)
            try:
                dist.set_nccl_opt_level(HFAI_NCCL_OPT_LEVEL.AUTO)
                self.assertEqual(self.chosen(), {"NCCL_IB_DISABLE": "1"})
                (pathlib.Path(folder) / "class/infiniband/mlx5_0").mkdir(parents=True)
                (pathlib.Path(folder) / "module/nvidia_peermem").mkdir(parents=True)
                dist.set_nccl_opt_level(HFAI_NCCL_OPT_LEVEL.AUTO)
                self.assertEqual(self.chosen(), {})
                dist.set_nccl_opt_level(HFAI_NCCL_OPT_LEVEL.FULL)
                self.assertEqual(self.chosen(), {"NCCL_NET_GDR_LEVEL": "SYS", "NCCL_MIN_NCHANNELS": "4"})
                os.environ["NCCL_ALGO"] = "Tree"  # the user's
                dist.set_nccl_opt_level(HFAI_NCCL_OPT_LEVEL.COVER_AUTO, {"NCCL_ALGO": "Ring", "GDR": False})
                self.assertEqual(self.chosen(), {"NCCL_NET_GDR_LEVEL": "LOC", "NCCL_ALGO": "Ring"})
                dist.set_nccl_opt_level()
                self.assertEqual(self.chosen(), {"NCCL_ALGO": "Tree"})
            finally:
                tuning._SYSTEM = system

    @rows("A-18", "S19-019", "S19-020", "S19-021", "S19-022", "S19-023", "S19-024", "E-006")
    def test_settings_of_the_user_are_checked_and_set(self):
        dist.set_nccl_opt_level(HFAI_NCCL_OPT_LEVEL.CUSTOM, {
            "GRAPH_OPT": "path/to/your/graph.txt", "NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple", "GDR": True,
            "MIN_NCHANNELS": "1", "MAX_NCHANNELS": "1"})
        wanted = {"NCCL_GRAPH_FILE": "path/to/your/graph.txt", "NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple",
                  "NCCL_NET_GDR_LEVEL": "SYS", "NCCL_MIN_NCHANNELS": "1", "NCCL_MAX_NCHANNELS": "1"}
        self.assertEqual(self.chosen(), wanted)
        for level, config, part in ((2, None, "OPT_LEVEL is 2"), ("AUTO", None, "OPT_LEVEL is 'AUTO'"),
                                    (101, {"NCCL_ALGO": "Star"}, "'Star'"), (101, {"NCCL_PROTO": 3}, "3"),
                                    (101, {"GDR": "True"}, "'True'"), (101, {"MIN_NCHANNELS": 1}, "1"),
                                    (101, {"MAX_NCHANNELS": "0"}, "'0'"), (101, {"NCHANNELS": "1"}, "'NCHANNELS'"),
                                    (101, ["GDR"], "type list"), (1, {"GDR": True}, "AUTO")):
            with self.subTest(level=level, config=config):
                with self.assertRaises(tutti.InvalidArgument) as caught:
                    dist.set_nccl_opt_level(level, config)
                self.assertIn(part, str(caught.exception))
                self.assertEqual(self.chosen(), wanted, "nothing is changed")
        dist.set_nccl_opt_level(HFAI_NCCL_OPT_LEVEL.CUSTOM, {"GRAPH_OPT_CUSTOM_FILE": pathlib.Path("other")})
        self.assertEqual(self.chosen(), {"NCCL_GRAPH_FILE": "other"})

    @staticmethod
    def chosen():
        return {name: os.environ[name] for name in NAMES if name in os.environ}


if __name__ == "__main__":
    main("python_" + pathlib.Path(__file__).stem)
