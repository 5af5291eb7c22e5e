"""Joining a group, in every way; the options of groups; joining again; what the debug levels look after."""
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest
from datetime import timedelta

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import numpy as np
from ranks import free_port, run_ranks
from rows import main, rows

import tutti.distributed as dist


def total(rank):
    x = np.array([rank + 1.0])
    dist.all_reduce(x)
    return float(x[0])


def forget_environment():
    for name in ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"):
        os.environ.pop(name, None)


def ways(rank, port, folder):
    """Each way of joining, one after the other, with all_reduce's result."""
    env = {name: os.environ[name] for name in ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE")}
    results = {}

    def joined(name, **arguments):
        dist.init_process_group(**arguments)
        results[name] = total(rank)
        assert dist.get_rank() == rank and dist.get_backend() == "native"
        dist.destroy_process_group()
        assert not dist.is_initialized()

    joined("env")
    del os.environ["RANK"], os.environ["WORLD_SIZE"]
    os.environ["MASTER_PORT"] = str(port[0])
    joined("env, rank given", rank=rank, world_size=2, init_method="env://", group_name="ignored")
    if rank == 0:
        del os.environ["MASTER_ADDR"]
    joined("env, MASTER_ADDR missing on rank 0", rank=rank, world_size=2)
    forget_environment()
    joined("tcp", init_method=f"tcp://127.0.0.1:{port[1]}", rank=rank, world_size=2, backend="native")
    joined("tcp with a query", init_method=f"tcp://127.0.0.1:{port[2]}?rank={rank}&world_size=2", backend="NATIVE")
    joined("file", init_method=f"file://{folder}/shared", rank=rank, world_size=2)
    joined("another file", init_method=f"file://{folder}/second", rank=rank, world_size=2, device_id="cpu")
    store = dist.TCPStore("127.0.0.1", port[3], 2, rank == 0, timedelta(seconds=30))
    joined("store", store=store, rank=rank, world_size=2, backend="cpu:native", timeout=timedelta(seconds=25))
    joined("prefix store", store=dist.PrefixStore("again", store), rank=rank, world_size=2,
           backend=dist.Backend.NATIVE, determinism="layout_invariant", transport="tcp")
    os.environ.update(env)
    return results


def refused(rank):
    forget_environment()
    store, texts = dist.HashStore(), []
    for arguments in ({"store": store}, {"store": store, "rank": 0}, {"store": store, "init_method": "env://", "rank": 0,
                                                                     "world_size": 1},
                      {"init_method": "tcp://239.1.2.3:29500", "rank": 0, "world_size": 2},
                      {"init_method": "file:///tmp/x", "world_size": 2}, {"init_method": "tcp://127.0.0.1:1", "world_size": 2},
                      {"init_method": "env://", "rank": 0}, {"init_method": "what://x", "rank": 0, "world_size": 1},
                      {"store": store, "rank": 2, "world_size": 2}, {"backend": "nobody", "store": store, "rank": 0,
                                                                     "world_size": 1},
                      {"store": "here", "rank": 0, "world_size": 1}, {"store": store, "rank": 0, "world_size": 1,
                                                                      "timeout": 5},
                      {"store": store, "rank": 0, "world_size": 1, "transport": "mail"},
                      {"store": store, "rank": 0, "world_size": 1, "determinism": "always"},
                      {"store": store, "rank": 0, "world_size": 1, "device_id": "tpu:0"},
                      {"init_method": f"tcp://127.0.0.1:1?rank=1&world_size=2", "rank": 0},
                      {"init_method": "file:///d:/tmp/some_file", "rank": 0, "world_size": 1}):
        try:
            dist.init_process_group(**arguments)
            texts.append(f"accepted: {arguments}")
            dist.destroy_process_group()
        except (dist.DistError, ValueError) as error:
            texts.append(str(error))
    for call in (lambda: dist.barrier(), lambda: dist.all_reduce(np.zeros(1)), lambda: dist.get_world_size(),
                 lambda: dist.new_group([0]), lambda: dist.group_counters()):
        try:
            call()
            texts.append("accepted before joining")
        except dist.InvalidArgument as error:
            texts.append(str(error))
    return texts


def many_groups(rank):
    n = dist.get_world_size()
    world = dist.new_group()
    evens = dist.new_group(list(range(0, n, 2)), backend="native", group_desc="evens", device_id="cpu")
    x = np.array([rank + 1.0])
    if rank % 2 == 0:
        work = dist.all_reduce(x, group=evens, async_op=True)
        work.wait()
        assert dist.get_global_rank(evens, 1) == 2 and dist.get_group_rank(evens, 2) == 1
    else:
        assert evens is dist.GroupMember.NON_GROUP_MEMBER
    dist.all_reduce(x, group=world)
    texts = []
    for call in (lambda: dist.new_group([0, 0]), lambda: dist.new_group([n]), lambda: dist.new_group("01"),
                 lambda: dist.new_subgroups(2), lambda: dist.new_subgroups_by_enumeration([[0], [0]]),
                 lambda: dist.new_group([0], backend="nobody")):
        try:
            call()
            texts.append("accepted")
        except dist.InvalidArgument as error:
            texts.append(str(error))
    # Local synchronisation: the others do nothing, and need not come.
    if rank < 2:
        begin = time.monotonic()
        pair = dist.new_group([0, 1], use_local_synchronization=True, timeout=timedelta(seconds=9))
        assert time.monotonic() - begin < 5 and pair.timeout == timedelta(seconds=9)
        y = np.ones(1)
        dist.all_reduce(y, group=pair)
        assert y[0] == 2.0
    mine, every = dist.new_subgroups(1, timeout=timedelta(seconds=8), group_desc="alone")
    assert mine.timeout == timedelta(seconds=8) and mine.group_desc == "alone" and len(every) == n
    parent = dist.group.WORLD
    part = dist.split_group(parent, [[0, 2], [1]])
    assert part is not None and part.size() == (1 if rank == 1 else 2)
    dist.barrier(device_ids=[0])
    return float(x[0]), texts


def options_without_a_library(rank):
    del rank
    available = dist.is_nccl_available()
    try:
        dist.ProcessGroupNCCL.Options()
        return "" if available else "made without a backend"
    except dist.DistBackendError as error:
        return str(error)


def options_for_a_backend(rank):
    """A backend of the name nccl that the program registers gets ProcessGroupNCCL.Options."""
    del rank
    got = []

    class Nothing:
        def run(self, request, completion):
            completion.success()

    def make(options, pg_options):
        got.append((options.group_rank, options.group_size, options.global_ranks_in_group, options.timeout, pg_options))
        options.store.set("k", "v")
        return Nothing()

    dist.Backend.register_backend("nccl", make, extended_api=True, devices=["cpu"])
    assert dist.is_nccl_available() and dist.Backend.NCCL == "nccl"
    options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
    options.config.min_ctas = 4
    for bad in (lambda: setattr(options.config, "min_ctas", "4"), lambda: setattr(options.config, "nothing", 4),
                lambda: dist.ProcessGroupNCCL.Options(is_high_priority_stream=3)):
        try:
            bad()
            return "accepted"
        except dist.InvalidArgument:
            pass
    dist.init_process_group("nccl", pg_options=options, timeout=timedelta(seconds=7))
    dist.new_group([0], pg_options={"mine": 1})
    dist.all_reduce(np.zeros(1))
    (first, second) = got
    return first[:4], first[4] is options and options.config.min_ctas, second[4], options.backend


def detail(rank, how):
    """What two ranks hear at the level DETAIL; the group can be used on."""
    os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
    dist.init_process_group()
    assert dist.get_debug_level() == dist.DebugLevel.DETAIL
    text = ""
    try:
        if how == "shapes":
            dist.all_reduce(np.zeros(10 if rank == 0 else 20))
        elif how == "calls":
            dist.all_reduce(np.zeros(4)) if rank == 0 else dist.broadcast(np.zeros(4), src=0)
        else:
            group = dist.new_group()
            dist.group.WORLD.allreduce([np.zeros(5 + rank)]).wait()
            del group
    except dist.CollectiveMismatch as error:
        text = str(error)
    dist.set_debug_level(dist.DebugLevel.OFF)
    result = total(rank)
    dist.destroy_process_group()
    return text, result


def unwaited(rank):
    """Leaving and joining again, several times, at the same address; nobody waits for the others in between."""
    results = []
    for turn in range(8):
        if turn % 3 == rank:
            time.sleep(0.02)
        dist.init_process_group()
        results.append(total(rank))
        dist.destroy_process_group()
    return results


# A backend whose library cannot be loaded is a line of level DEBUG.
LOG = """
import tutti.distributed as dist
assert not dist.is_backend_available("broken")
"""


class Joining(unittest.TestCase):
    @rows("S1-001", "S1-006", "S1-007", "S1-009", "S1-011", "S1-012", "S1-013", "S1-014", "S1-015", "S1-017", "S1-021",
          "S1-024", "S1-026", "S1-028", "S1-032", "S1-033", "S3-001", "S3-002", "S3-003", "S3-004", "S18-003",
          "E-240")
    def test_every_way_of_joining_gives_a_group(self):
        with tempfile.TemporaryDirectory() as folder:
            first, second = run_ranks(ways, args=([free_port() for _ in range(4)], folder), init=False)
            self.assertEqual(os.listdir(folder), [])
        self.assertEqual(set(first.values()), {3.0})
        self.assertEqual(len(first), 9)
        self.assertEqual(first, second)

    @rows("S1-001", "S1-025", "S1-027", "S1-031", "S17-006")
    def test_what_cannot_be_joined_is_refused_at_once(self):
        texts = run_ranks(refused, 1, init=False)[0]
        self.assertEqual([text for text in texts if text.startswith("accepted")],
                         ["accepted: {'init_method': 'file:///d:/tmp/some_file', 'rank': 0, 'world_size': 1}"]
                         if os.path.isdir("/d:/tmp") else [])
        for text, part in zip(texts, ("rank", "world_size", "init_method", "multicast", "rank", "rank", "RANK", "what",
                                      "rank", "nobody", "store", "timeout", "mail", "always", "tpu")):
            self.assertIn(part, text)

    @rows("S18-003", "S18-001")
    def test_a_group_may_be_left_and_joined_again(self):
        self.assertEqual(run_ranks(unwaited, 3, init=False), [[6.0] * 8] * 3)

    @rows("S1-018", "S4-007", "S12-003", "S12-005")
    def test_options_reach_the_backend(self):
        text = run_ranks(options_without_a_library, 1, init=False)[0]
        self.assertIn("the backend nccl cannot be used here" if text else "", text)
        first, same, second, name = run_ranks(options_for_a_backend, 1, init=False)[0]
        self.assertEqual(first, (0, 1, [0], timedelta(seconds=7)))
        self.assertEqual((same, second, name), (4, {"mine": 1}, "nccl"))

    @rows("A-57", "S1-008", "S2-001", "S2-007", "S2-010", "S2-011", "S2-012", "E-241")
    def test_backends_have_names(self):
        self.assertIs(dist.distributed_c10d.is_xccl_available, dist.is_xccl_available)
        self.assertIs(dist.device_mesh.init_device_mesh, dist.init_device_mesh)
        self.assertEqual(dist.Backend("GLOO"), "gloo")
        self.assertEqual((dist.Backend.NCCL, dist.Backend.MPI, dist.Backend.XCCL, dist.Backend.UNDEFINED),
                         ("nccl", "mpi", "xccl", "undefined"))
        for name in ("nobody", "", "undefined"):
            with self.assertRaises(dist.InvalidArgument):
                dist.Backend(name)
        with self.assertRaises(dist.InvalidArgument):
            dist.Backend.register_backend(3, print)
        with self.assertRaises(dist.InvalidArgument):
            dist.Backend.register_backend("three", 3)
        self.assertFalse(dist.is_xccl_available())
        self.assertTrue(dist.is_backend_available("native"))
        self.assertEqual(run_ranks(lambda rank: dist.get_backend(), 1), ["native"])


class Groups(unittest.TestCase):
    @rows("S4-003", "S4-004", "S4-005", "S4-006", "S4-008", "S4-009", "S4-012", "S4-013", "S4-014", "S4-015", "S8-032")
    def test_groups_of_some_ranks_work_beside_each_other(self):
        for rank, (value, texts) in enumerate(run_ranks(many_groups, 3)):
            self.assertEqual(value, 4.0 + 2.0 + 4.0)
            self.assertNotIn("accepted", texts)
            self.assertIn("nobody", texts[-1])

    @rows("S16-012", "S16-014", "S16-015", "S16-016", "S3-017", "E-230")
    def test_detail_tells_every_rank_what_differs(self):
        for how in ("shapes", "calls", "object"):
            with self.subTest(how=how):
                for text, value in run_ranks(detail, args=(how,), init=False):
                    self.assertEqual(value, 3.0)
                    if how == "calls":
                        self.assertIn("Rank 0 is running collective: ALLREDUCE, but rank 1 is running collective: BROADCAST",
                                      text)
                    else:
                        self.assertIn("Error when verifying shape tensors for collective ALLREDUCE on rank", text)

    @rows("S3-016", "S16-010", "S16-013", "S16-021", "S16-022", "S16-023", "S16-024", "S16-026")
    def test_the_logs_level_follows_both_variables(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "libtutti-backend-broken.so").write_text("no library")
            for level in ("ERROR", "WARNING", "INFO"):
                for debug in ("OFF", "INFO", "DETAIL"):
                    done = subprocess.run([sys.executable, "-c", LOG], capture_output=True, text=True, timeout=60,
                                          env={**os.environ, "TORCH_CPP_LOG_LEVEL": level, "TUTTI_BACKEND_PATH": folder,
                                               "TORCH_DISTRIBUTED_DEBUG": debug})
                    with self.subTest(level=level, debug=debug):
                        self.assertEqual(done.returncode, 0, done.stderr)
                        shown = r"^D\d{4} \d{2}:\d{2}:\d{2}\.\d{6} +\d+ \S+:\d+\] backend \"broken\""
                        self.assertRegex(done.stderr, shown if level == "INFO" and debug != "OFF" else "^$")


if __name__ == "__main__":
    main("python_" + pathlib.Path(__file__).stem)
