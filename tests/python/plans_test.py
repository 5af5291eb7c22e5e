"""Plans of every call, calls with a timeout of their own, calls of several arrays at once, hooks and counters."""
import cProfile
import io
import pathlib
import pickle
import pstats
import sys
import tempfile
import time
import unittest
from datetime import timedelta

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import numpy as np
from ranks import run_ranks
from rows import main, rows

import tutti
import tutti.distributed as dist
from tutti.distributed import plan


def calls(rank, n):
    """(name, arrays that are written, what makes the arguments): a function's arguments and those of its plan."""
    return {
        "broadcast": lambda: ([np.full(3, rank + 1.0)], {"src": 1}),
        "all_reduce": lambda: ([np.full(3, rank + 1.0)], {"op": dist.ReduceOp.MAX}),
        "scan": lambda: ([np.full(3, rank + 1.0)], {}),
        "exscan": lambda: ([np.full(3, rank + 1.0)], {"op": dist.ReduceOp.PRODUCT}),
        "reduce": lambda: ([np.full(3, rank + 1.0)], {"dst": 1}),
        "all_gather": lambda: ([[np.zeros(i + 1) for i in range(n)], np.full(rank + 1, float(rank))], {}),
        "all_gather_into_tensor": lambda: ([np.zeros(2 * n), np.full(2, float(rank))], {}),
        "gather": lambda: ([np.full(2, float(rank)), [np.zeros(2) for _ in range(n)] if rank == 1 else None], {"dst": 1}),
        "scatter": lambda: ([np.zeros(2), [np.full(2, i + 7.0) for i in range(n)] if rank == 0 else None], {}),
        "reduce_scatter": lambda: ([np.zeros(rank + 1), [np.full(i + 1, rank + 2.0) for i in range(n)]], {}),
        "reduce_scatter_tensor": lambda: ([np.zeros(2), np.arange(2.0 * n)], {"op": dist.ReduceOp.AVG}),
        "all_gather_v": lambda: ([np.zeros(sum(range(n + 1))), np.full(rank + 1, float(rank))],
                                                  {"output_split_sizes": [i + 1 for i in range(n)]}),
        "reduce_scatter_v": lambda: ([np.zeros(rank + 1), np.arange(float(sum(range(n + 1))))],
                                                 {"input_split_sizes": [i + 1 for i in range(n)]}),
        "gather_v": lambda: ([np.full(rank, float(rank)), np.zeros(sum(range(n))) if rank == 1 else None, list(range(n))],
                             {"dst": 1}),
        "scatter_v": lambda: ([np.zeros(rank), np.arange(9.0) if rank == 0 else None, list(range(n))], {}),
        "all_to_all_v": lambda: ([np.zeros(n), np.arange(float(n)) + 10 * rank], {"send_offsets": list(range(n))}),
        "all_to_all_single": lambda: ([np.zeros(n * (rank + 1)), np.repeat(float(rank), sum(range(n + 1)))],
                                      {"output_split_sizes": [rank + 1] * n,
                                       "input_split_sizes": [i + 1 for i in range(n)]}),
        "all_to_all": lambda: ([[np.zeros(rank + 1) for _ in range(n)], [np.full(i + 1, rank + 1.0) for i in range(n)]], {}),
        "barrier": lambda: ([], {}),
    }


def flat(values):
    return [item for value in values if value is not None
            for item in (flat(value) if isinstance(value, list) else [value if isinstance(value, int) else value.tolist()])]


def planned(rank):
    n, results = dist.get_world_size(), {}
    for name, make in calls(rank, n).items():
        arrays, options = make()
        getattr(dist, name)(*arrays, **options)
        wanted = flat(arrays)
        arrays, options = make()
        step = getattr(plan, name)(*arrays, **options)
        step.run()
        assert flat(arrays) == wanted, (name, flat(arrays), wanted)
        if name in ("all_gather", "gather", "all_to_all", "broadcast"):  # the same again from the same arrays
            step.start().wait()
            step.run()
            assert flat(arrays) == wanted, name
        results[name] = wanted
        # One rank has a plan, the others make the plain call.
        arrays, options = make()
        if rank == 0:
            getattr(plan, name)(*arrays, **options).run()
        else:
            getattr(dist, name)(*arrays, **options)
        assert flat(arrays) == wanted, name
    x = np.zeros(2)
    if rank == 0:
        for step in (plan.send(np.ones(2), 1, tag=3), plan.send(np.full(2, 2.0), group_dst=1)):
            step.run()
    elif rank == 1:
        first, second = plan.recv(x, tag=3), plan.recv(x, group_src=0)
        first.run()
        assert x.tolist() == [1.0, 1.0] and first.source_rank() == 0
        second.start().wait()
        assert x.tolist() == [2.0, 2.0]
    return results["reduce_scatter"]


def refused_plans(rank):
    x, texts = np.zeros(2), []
    frozen = np.zeros(2)
    frozen.flags.writeable = False
    for call in (lambda: plan.all_reduce(frozen), lambda: plan.broadcast(x), lambda: plan.gather(x, dst=0, group_dst=0),
                 lambda: plan.send(x), lambda: plan.send(x, dst=rank), lambda: plan.all_to_all_single(x, x, "12"),
                 lambda: plan.barrier(device_ids=[None]), lambda: plan.recv(x, timeout=3)):
        try:
            call()
            texts.append("accepted")
        except tutti.InvalidArgument as error:
            texts.append(str(error))
    return texts


def timed_out(rank):
    if rank == 1:
        time.sleep(0.8)  # the other ranks' calls are over by then
        return None
    took = []
    for call in (lambda: dist.recv(np.zeros(1), src=1, timeout=timedelta(milliseconds=50)),
                 lambda: dist.irecv(np.zeros(1), src=1, timeout=timedelta(milliseconds=50)).wait()):
        begin = time.monotonic()
        try:
            call()
            return "no timeout"
        except (dist.Timeout, dist.Aborted) as error:
            took.append((type(error).__name__, time.monotonic() - begin))
    try:
        dist.barrier(timeout=timedelta(seconds=-1))
        return "a negative timeout"
    except dist.InvalidArgument as error:
        return took, str(error)


def objects_timed_out(rank):
    if rank == 0:
        begin = time.monotonic()
        try:
            dist.all_gather_object([None, None], "x", timeout=timedelta(milliseconds=100))
        except dist.Timeout:
            return time.monotonic() - begin
    time.sleep(0.6)
    return None


def coalesced(rank):
    n = dist.get_world_size()
    a, b = np.full(2, rank + 1.0), np.full(3, rank * 2.0)
    dist.all_reduce_coalesced([a, b], op=dist.ReduceOp.SUM)
    outs = [[np.zeros(1), np.zeros(2)] for _ in range(n)]
    work = dist.all_gather_coalesced(outs, [np.full(1, float(rank)), np.full(2, rank + 5.0)], async_op=True)
    work.wait()
    assert work.result()[1] is outs[0][1]
    tos = [np.zeros(n), np.zeros((n, 2), dtype=np.int32)]
    dist.all_gather_into_tensor_coalesced(tos, [np.full(1, float(rank)), np.full(2, rank, dtype=np.int32)])
    scattered = [np.zeros(1), np.zeros(2)]
    dist.reduce_scatter_tensor_coalesced(scattered, [np.arange(float(n)), np.arange(2.0 * n)], dist.ReduceOp.SUM,
                                         timeout=timedelta(seconds=20))
    texts = []
    for call in (lambda: dist.all_reduce_coalesced([]), lambda: dist.all_gather_coalesced([None], [a]),
                 lambda: dist.all_gather_coalesced(a, [a]), lambda: dist.reduce_scatter_tensor_coalesced([a], [a, b]),
                 lambda: dist.all_gather_into_tensor_coalesced("ab", [a])):
        try:
            call()
            texts.append("accepted")
        except tutti.InvalidArgument as error:
            texts.append(str(error))
    return ([a.tolist(), b.tolist()], [[o.tolist() for o in out] for out in outs], [t.tolist() for t in tos],
            [s.tolist() for s in scattered], texts)


def profiled(rank):
    seen, x = [], np.zeros((20, 10))
    with dist.operation_hooks(lambda name: seen.append(name), lambda name, failed: seen.append((name, failed))):
        dist.all_reduce(x)
        dist.all_reduce(x, async_op=True).wait()
        if rank == 0:
            dist.send(x, 1)
        else:
            dist.recv(x, src=0)
        try:
            dist.broadcast(x)
        except dist.InvalidArgument:
            pass
        with dist.operation_hooks(after=lambda name, failed: 1 / 0):  # is printed, and changes nothing
            unraisable = []
            sys.unraisablehook = lambda args: unraisable.append(args.exc_type)
            dist.barrier()
            sys.unraisablehook = sys.__unraisablehook__
            assert unraisable == [ZeroDivisionError], unraisable
    dist.barrier()
    assert len(seen) == 10, seen
    try:
        with dist.operation_hooks(before="all_reduce"):
            return "accepted"
    except dist.InvalidArgument as error:
        assert "before is of type str" in str(error)
    profile, text = cProfile.Profile(), io.StringIO()
    profile.runcall(dist.all_reduce, x)
    pstats.Stats(profile, stream=text).print_stats()
    return seen[:8], "all_reduce" in text.getvalue()


def counted(rank):
    before = dist.group_counters()
    dist.all_reduce(np.zeros(1000))
    dist.all_reduce(np.zeros(1000), group=dist.group.WORLD)
    after = dist.group_counters(dist.group.WORLD)
    with tempfile.TemporaryDirectory() as folder:
        files = dist.dump_trace(folder, "a test")
        assert files and all(pathlib.Path(file).stat().st_size > 0 for file in files)
        try:
            dist.dump_trace(files[0])
            raise AssertionError("a file is no folder")
        except dist.InvalidArgument as error:
            assert files[0] in str(error)
        flights = dist.dump_flight_recorder(folder)
        assert [path[-7:] for path in flights] == [f"_rank_{rank}"], flights
        trace = pickle.loads(pathlib.Path(flights[0]).read_bytes())
        last = trace["entries"][-1]
        assert (last["profiling_name"], last["input_sizes"], last["state"]) == ("gloo:all_reduce", [[1000]], "completed"), last
        assert "plans_test.py" in last["frames"][0]["filename"] and last["frames"][0]["line"] > 0, last
    assert "tutti_bytes_total" in dist.prometheus_text() and "issued=" in repr(after)
    return (after.issued - before.issued, after.completed - before.completed, after.failed, after.bytes - before.bytes,
            len(after.waited_s), after.seconds >= 0)


class Plans(unittest.TestCase):
    def test_a_plan_of_every_call_does_what_the_plain_call_does(self):
        for rank, reduced in enumerate(run_ranks(planned, 3)):
            self.assertEqual(reduced[0], [9.0] * (rank + 1))

    def test_what_cannot_be_planned_is_named_at_once(self):
        for texts in run_ranks(refused_plans):
            self.assertNotIn("accepted", texts)
            for text, part in zip(texts, ("plan.all_reduce: tensor is read-only", "broadcast", "gather", "plan.send: none",
                                          "send", "plan.all_to_all_single: output_split_sizes",
                                          "plan.barrier: device_ids is of type NoneType", "plan.recv: timeout is of type int")):
                self.assertIn(part, text)

    @rows("S1-015", "S1-016", "S17-006")
    def test_a_call_may_have_a_timeout_of_its_own(self):
        (took, text), _ = run_ranks(timed_out)
        self.assertEqual(took[0][0], "Timeout")
        self.assertTrue(all(seconds < 0.6 for _, seconds in took), took)
        self.assertIn("timeout is -1 s: expected zero or more", text)
        self.assertLess(run_ranks(objects_timed_out)[0], 0.6)

    def test_calls_of_several_arrays_are_launched_together(self):
        for rank, (sums, gathered, into, scattered, texts) in enumerate(run_ranks(coalesced)):
            self.assertEqual(sums, [[3.0, 3.0], [2.0, 2.0, 2.0]])
            self.assertEqual(gathered, [[[0.0], [5.0, 5.0]], [[1.0], [6.0, 6.0]]])
            self.assertEqual(into, [[0.0, 1.0], [[0, 0], [1, 1]]])
            self.assertEqual(scattered, [[2.0 * rank], [4.0 * rank, 4.0 * rank + 2]])
            self.assertNotIn("accepted", texts)
            self.assertIn("output_tensor_lists[0] is of type NoneType: expected a list of arrays", texts[1])
            self.assertIn("output_tensor_list is of type str", texts[4])


class Traces(unittest.TestCase):
    @rows("S13-001", "S13-002", "E-232")
    def test_a_profiler_sees_every_call(self):
        for rank, (seen, in_profile) in enumerate(run_ranks(profiled)):
            message = ("send", "recv")[rank]
            self.assertEqual(seen, ["all_reduce", ("all_reduce", False)] * 2 + [message, (message, False)] +
                             ["broadcast", ("broadcast", True)])
            self.assertTrue(in_profile)

    def test_counters_tell_what_a_rank_has_done(self):
        self.assertEqual(run_ranks(counted), [(2, 2, 0, 16000, 2, True)] * 2)
        with self.assertRaises(dist.InvalidArgument):
            dist.group_counters()


if __name__ == "__main__":
    main("python_" + pathlib.Path(__file__).stem)
