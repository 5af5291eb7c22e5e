"""Groups, meshes, stores, backends, spawn, debugging: the rest of the Python package."""
import contextlib
import io
import os
import pathlib
import signal
import sys
import tempfile
import threading
import time
import unittest
import warnings
from datetime import timedelta

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import numpy as np
from ranks import free_port, run_ranks
from rows import main, rows

import tutti
import tutti.distributed as dist
from tutti.distributed import distributed_c10d
from tutti.distributed.device_mesh import init_device_mesh


def state_of_outsider(group):
    x, kept = np.ones(1), ["unchanged"]
    assert dist.get_rank(group) == dist.get_world_size(group) == -1
    calls = {
        "all_reduce": (lambda: dist.all_reduce(x, group=group, async_op=True), None),
        "barrier": (lambda: dist.barrier(group=group), None),
        "monitored_barrier": (lambda: dist.monitored_barrier(group=group), None),
        "broadcast": (lambda: dist.broadcast(x, 1, group=group), None),
        "all_reduce_coalesced": (lambda: dist.all_reduce_coalesced([x], group=group), None),
        "quantized_all_reduce": (lambda: dist.quantized_all_reduce(np.ones(1, "float32"), group=group), None),
        "recv": (lambda: dist.recv(x, group=group), -1),
        "irecv": (lambda: dist.irecv(x, group=group), None),
        "isend": (lambda: dist.isend(x, 1, group=group), None),
        "all_gather_object": (lambda: dist.all_gather_object(kept, 1, group=group), None),
        "gather_object": (lambda: dist.gather_object(1, None, 1, group=group), None),
        "scatter_object_list": (lambda: dist.scatter_object_list(kept, None, 1, group=group), None),
        "broadcast_object_list": (lambda: dist.broadcast_object_list(kept, 1, group=group), None),
        "recv_object_list": (lambda: dist.recv_object_list(kept, group=group), -1),
    }
    for name, (call, result) in calls.items():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            got = [call() for _ in range(2)]
        assert got == [result] * 2, (name, got)
        said = [(warning.category, str(warning.message), warning.filename) for warning in caught]
        text = f"Running {name} on global rank 0 which does not belong to the given group."
        assert said == [(UserWarning, text, __file__)], said
    assert x[0] == 1 and kept == ["unchanged"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for send in (lambda: dist.send(x, 1, group=group), lambda: dist.send_object_list(kept, 1, group=group),
                     lambda: dist.batch_isend_irecv([dist.P2POp(dist.isend, x, 1, group)])):
            try:
                send()
                raise AssertionError("a message is lost")
            except ValueError as error:
                assert "this rank is not in the group" in str(error), error
        try:
            dist.all_reduce(x, group=group)
            raise AssertionError("no error of the warning")
        except UserWarning:
            pass


def state(rank):
    assert dist.is_initialized() and dist.get_rank() == rank and dist.get_world_size() == 2
    assert dist.get_backend() == "native" == dist.Backend("NATIVE") == dist.Backend.NATIVE
    world = dist.group.WORLD
    assert world == dist.GroupMember.WORLD and world.size() == 2 and dist.get_process_group_ranks(world) == [0, 1]
    assert dist.get_group_rank(world, 1) == dist.get_global_rank(world, 1) == 1
    try:
        dist.get_group_rank(world, 5)
    except RuntimeError:
        pass
    group = dist.new_group([1], timeout=timedelta(seconds=9), group_desc="one")
    if rank == 0:
        assert group is dist.GroupMember.NON_GROUP_MEMBER
        state_of_outsider(group)
    else:
        assert (group.size(), group.rank(), group.group_desc, group.timeout) == (1, 0, "one", timedelta(seconds=9))
    mine, every = dist.new_subgroups(1)
    assert mine.size() == 1 and len(every) == 2 and mine == every[rank]
    mine, _ = dist.new_subgroups_by_enumeration([[1, 0]])
    assert mine.size() == 2
    local = dist.new_group([rank], use_local_synchronization=True)
    assert local.size() == 1
    halves = world.split(0, key=-rank)
    assert halves.rank() == 1 - rank
    work = world.allreduce([np.full(2, 1.0)])
    work.wait()
    with dist.coalescing(world) as manager:
        a, b = np.ones(2), np.full(3, 2.0)
        dist.all_reduce(a)
        dist.all_reduce(b)
    assert (a[0], b[0]) == (2.0, 4.0) and manager.works[0].is_completed()
    step, x = dist.plan.all_reduce(a), a
    for _ in range(3):
        step.run()
    step.start().wait()
    assert x[0] == 2.0 * 2**4
    shared = dist.empty_symmetric((2, 3), "float32", None)
    shared[:] = rank
    dist.all_reduce(shared)
    assert shared.tolist() == [[1.0] * 3] * 2
    dist.destroy_process_group()
    assert not dist.is_initialized() and dist.group.WORLD is None
    os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) - 1 or 1)
    return True


def errors(rank):
    x = np.zeros(4)
    try:
        dist.all_reduce(x[: rank + 1])
    except dist.CollectiveMismatch as error:
        return isinstance(error, (dist.DistBackendError)) and isinstance(error, tutti.DistError), error.code, str(error)


def missing(rank):
    if rank == 1:
        time.sleep(0.6)
        return ""
    try:
        dist.monitored_barrier(timeout=timedelta(milliseconds=200))
    except dist.DistBackendError as error:
        return str(error)


def meshes(rank):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    assert mesh.mesh.tolist() == [[0, 1], [2, 3]] and mesh.shape == (2, 2) and mesh.ndim == 2 and mesh.size() == 4
    assert mesh.get_coordinate() == [rank // 2, rank % 2] and mesh.get_rank() == rank
    assert mesh.get_local_rank("tp") == mesh.get_local_rank(1) == mesh["tp"].get_local_rank() == rank % 2
    x = np.array([float(rank)])
    dist.all_reduce(x, group=mesh.get_group("dp"))
    y = np.array([float(rank)])
    dist.all_reduce(y, group=mesh["tp"])
    assert [g.size() for g in mesh.get_all_groups()] == [2, 2]
    with mesh as entered:
        assert dist.current_device_mesh() == entered
    again = dist.DeviceMesh("cpu", [[0, 1], [2, 3]], mesh_dim_names=("dp", "tp"))
    assert again == mesh and dist.DeviceMesh("cpu", np.arange(4)).size() == 4
    wrapped = dist.DeviceMesh.from_group(dist.group.WORLD, "cpu")
    assert wrapped.get_group().size() == 4
    for bad in (lambda: init_device_mesh("cpu:0", (4,)), lambda: init_device_mesh("cpu", (3,)), lambda: mesh.get_group(),
                lambda: init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "a")), lambda: mesh["pp"]):
        try:
            bad()
            raise AssertionError("accepted")
        except dist.InvalidArgument:
            pass
    return float(x[0]), float(y[0])


def stopped(rank):
    os.setsid()  # no terminal
    sys.stdin = io.StringIO("p 6 * secret\ncontinue\n")
    secret, out, begin = 7 + rank, io.StringIO(), time.monotonic()
    if rank == 1:
        time.sleep(0.2)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        dist.breakpoint(rank=1, skip=1)
        dist.breakpoint(rank=1, skip=1)
        secret += 1
    return out.getvalue(), secret, time.monotonic() - begin


def grow(rank, path):
    store = dist.FileStore(path)
    step, x = np.zeros(1, np.int64), np.array([float(rank + 1)])
    if rank == 2:
        group = dist.join(store, timeout=timedelta(seconds=30), label="the third")
        dist.set_default_group(group)
    else:
        dist.init_process_group(store=store, rank=rank, world_size=2)
        step[0] = 12
        old = dist.group.WORLD
        group = old.grow(store, count=1, timeout=timedelta(seconds=30))
        dist.set_default_group(group)
        old.destroy()
    group.adopt([step])
    dist.all_reduce(x)
    result = dist.get_rank(), dist.get_world_size(), int(step[0]), float(x[0])
    dist.destroy_process_group()
    return result


class Ring:
    """A backend that is written in Python, for one rank."""

    def __init__(self, store, rank, size, timeout):
        assert isinstance(timeout, timedelta) and size == 1 and rank == 0
        store.set("here", "1")
        self.calls = []

    def run(self, request, completion):
        self.calls.append(request.call)
        if request.output is not None and request.input is not None:
            request.output[:] = request.input * 3
        completion.success()

    def abort(self, reason):
        pass


def python_backend(rank):
    del rank
    made = []

    def make(*args):
        made.append(Ring(*args))
        return made[-1]

    dist.Backend.register_backend("mine", make, devices="cpu")
    assert dist.Backend.MINE == "mine" and dist.is_backend_available("mine")
    dist.init_process_group("mine")
    x = np.ones(2)
    dist.all_reduce(x)
    dist.barrier()
    return x.tolist(), dist.get_backend(), made[0].calls


def train(rank, base, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group(rank=rank, world_size=2)
    x = np.array([rank + base])
    dist.all_reduce(x)
    dist.destroy_process_group()
    assert x[0] == 1 + 2 * base


def fails(rank, how):
    if rank == 1:
        if how == "raise":
            raise ValueError("of this rank")
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        sys.exit(3)
    time.sleep(30)


class Groups(unittest.TestCase):
    @rows("S1-003", "S1-005", "S1-034", "S2-010", "S2-011", "S4-001", "S4-002", "S4-005", "S4-008", "S4-012", "S4-016",
          "S4-017", "S4-018", "S4-019", "S4-020", "S4-021", "S4-022", "S4-023", "S4-024", "S4-025", "S18-001")
    def test_groups_and_what_they_tell(self):
        self.assertTrue(dist.is_available())
        self.assertEqual(run_ranks(state), [True, True])

    @rows("S17-001", "S17-002", "S17-005")
    def test_a_mismatch_is_told_to_all_ranks(self):
        for good, code, text in run_ranks(errors):
            self.assertTrue(good)
            self.assertEqual(code, "collective_mismatch")
            self.assertIn("all_reduce", text)

    @rows("S8-034", "S16-004", "S16-008")
    def test_a_monitored_barrier_names_the_missing_rank(self):
        first, _ = run_ranks(missing)
        self.assertIn("Rank 1 failed to pass monitoredBarrier in 200 ms", first)

    @rows("S5-001", "S5-002", "S5-003", "S5-004", "S5-005", "S5-006", "S5-008", "S5-009", "S5-010", "S5-012", "S5-013",
          "S5-014", "S5-015", "S5-016")
    def test_a_mesh_has_groups_along_its_dimensions(self):
        self.assertEqual(run_ranks(meshes, 4), [(2.0, 1.0), (4.0, 1.0), (2.0, 5.0), (4.0, 5.0)])

    @rows("S12-001", "S12-002", "S12-004", "S12-007", "S2-013")
    def test_a_backend_may_be_written_in_python(self):
        self.assertEqual(run_ranks(python_backend, 1, init=False)[0], ([3.0, 3.0], "mine", ["all_reduce", "barrier"]))

    @rows("S16-001", "S16-002", "S16-003")
    def test_a_breakpoint_stops_one_rank_in_pdb_while_the_others_wait(self):
        (nothing, _, waited), (shown, secret, _) = run_ranks(stopped)
        self.assertEqual((nothing, secret), ("", 9))
        self.assertIn("48", shown)
        self.assertGreater(waited, 0.15)

    def test_a_newcomer_joins_and_adopts(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(run_ranks(grow, 3, args=(os.path.join(folder, "store"),), init=False),
                             [(0, 3, 12, 6.0), (1, 3, 12, 6.0), (2, 3, 12, 6.0)])

    @rows("S15-001", "S15-002")
    def test_spawn_runs_a_function_on_ranks(self):
        self.assertIsNone(tutti.multiprocessing.spawn(train, args=(5, free_port()), nprocs=2))

    def test_spawn_tells_which_rank_failed(self):
        spawn = tutti.multiprocessing.spawn
        with self.assertRaises(tutti.multiprocessing.ProcessRaisedException) as caught:
            spawn(fails, ("raise",), nprocs=2)
        self.assertIn("ValueError: of this rank", str(caught.exception))
        self.assertEqual(caught.exception.error_index, 1)
        for how, signal_name, code in (("kill", "SIGKILL", -9), ("exit", None, 3)):
            context = spawn(fails, (how,), nprocs=2, join=False)
            self.assertEqual(len(context.pids()), 2)
            with self.assertRaises(tutti.multiprocessing.ProcessExitedException) as caught:
                while not context.join(timeout=20):
                    pass
            self.assertEqual((caught.exception.signal_name, caught.exception.exit_code), (signal_name, code))

    @rows("S11-002", "S11-003", "S11-004", "S11-005", "S11-006", "S11-007", "S11-008", "S11-009", "S11-010", "S11-011",
          "S11-012", "S11-013", "S11-014", "S11-015", "S11-017", "S11-018", "S11-019", "S11-020", "S11-021", "S11-030",
          "S11-031", "S11-032", "S11-033", "S11-034", "S11-035", "S11-036", "S11-037", "S17-004")
    def test_stores_take_text_and_give_bytes(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "store")
            for store in (dist.HashStore(), dist.FileStore(path, 1), dist.PrefixStore("p", dist.HashStore()),
                          dist.TCPStore("127.0.0.1", 0, 1, True, timedelta(seconds=30))):
                with self.subTest(store=store):
                    self.check_store(store)
            file = dist.FileStore(path + "2")
            self.assertEqual(file.path, path + "2")
        tcp = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        client = dist.TCPStore("127.0.0.1", tcp.port)
        tcp.set("k", "v")
        self.assertEqual((client.get("k"), tcp.host, tcp.libuvBackend), (b"v", "127.0.0.1", True))
        prefixed = dist.PrefixStore("a", tcp)
        prefixed.set("k", "w")
        self.assertEqual((tcp.get("a/k"), prefixed.underlying_store.get("k")), (b"w", b"v"))

    def check_store(self, store):
        store.set("first", "value")
        self.assertEqual(store.get("first"), b"value")
        self.assertEqual([store.add("n", 1), store.add("n", 6), store.get("n")], [1, 7, b"7"])
        with self.assertRaises(dist.DistStoreError):
            store.add("first", 1)
        store.append("po", "tato")
        store.append("po", b"\0")
        self.assertEqual(store.get("po"), b"tato\0")
        self.assertTrue(store.check(["n", "po"]))
        self.assertFalse(store.check(["none"]))
        self.assertEqual(store.compare_set("first", "value", "second"), b"second")
        self.assertTrue(store.has_extended_api())
        store.multi_set(["a", "b"], ["1", "2"])
        self.assertEqual(store.multi_get(["b", "a"]), [b"2", b"1"])
        self.assertTrue(store.delete_key("a"))
        self.assertFalse(store.delete_key("a"))
        self.assertGreaterEqual(store.num_keys(), 4)
        store.set_timeout(timedelta(milliseconds=50))
        self.assertEqual(store.timeout, timedelta(milliseconds=50))
        for wait in (lambda: store.wait(["none"]), lambda: store.get("none"),
                     lambda: store.wait(["none"], timedelta(milliseconds=20))):
            with self.assertRaises(dist.DistStoreError):
                wait()
        with self.assertRaises(TypeError):
            store.set("k", 1)

    @rows("S1-014", "S1-013", "S1-012")
    def test_several_worlds_live_in_threads_of_one_process(self):
        store, results = dist.HashStore(), [None, None]

        def member(rank):
            group = dist.ProcessGroup(store, rank, 2)
            x = np.array([rank + 1.0])
            group.allreduce([x]).wait()
            results[rank] = float(x[0])
            group.destroy()

        threads = [threading.Thread(target=member, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        self.assertEqual(results, [3.0, 3.0])

    @rows("S1-035", "S1-036", "S1-037", "S1-038", "S1-039", "S10-013", "S16-017", "S16-018", "S16-019", "S2-012")
    def test_what_else_torch_has(self):
        for name in ("mpi", "nccl", "gloo", "xccl", "ucc"):
            self.assertIn(getattr(dist, f"is_{name}_available")(), (True, False))
        self.assertEqual(distributed_c10d.is_xccl_available(), dist.is_xccl_available())
        self.assertFalse(dist.is_torchelastic_launched())
        with contextlib.ExitStack() as stack:
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
            self.assertEqual(dist.reduce_op.SUM, dist.ReduceOp.SUM)
        dist.set_debug_level(dist.DebugLevel.DETAIL)
        self.assertEqual(dist.get_debug_level(), dist.DebugLevel.DETAIL)
        os.environ["TUTTI_DISTRIBUTED_DEBUG"] = "OFF"
        dist.set_debug_level_from_env()
        self.assertEqual(dist.get_debug_level(), dist.DebugLevel.OFF)
        with self.assertRaises(dist.InvalidArgument):
            dist.Backend("nothing")
        with self.assertRaises(dist.InvalidArgument):
            dist.get_rank()
        self.assertEqual(int(dist.ReduceOp.SUM), 0)


if __name__ == "__main__":
    main("python_" + pathlib.Path(__file__).stem)
