"""tutti.graph over arrays: captures, proofs, passes and replays on real ranks, beside what the plain calls give."""
import gc
import inspect
import pathlib
import sys
import threading
import unittest
import weakref

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import numpy as np
from ranks import run_ranks, run_script
from rows import main

import tutti
import tutti.distributed as dist
import tutti.graph as graph


def line():
    return inspect.currentframe().f_back.f_lineno


def message_of(error, function, *arguments, **options):
    try:
        function(*arguments, **options)
    except error as raised:
        return str(raised)
    raise AssertionError(f"{function} raised nothing")


class Step:
    """Every kind of call on arrays of its own."""

    def __init__(self, rank, n):
        self.rank, self.n = rank, n
        self.arrays = {name: np.zeros(6, np.float32) for name in ("x", "y", "z", "sent", "received", "planned", "list")}
        self.wide = np.zeros(6 * n, np.float32)
        self.plan = dist.plan.all_reduce(self.arrays["planned"])

    def fill(self, turn):
        for i, array in enumerate(self.arrays.values()):
            array[:] = np.arange(6) + 10 * self.rank + turn + i
        self.wide[:] = -1

    def run(self):
        a = self.arrays
        graph.compute([a["x"], a["y"]], [a["y"]], lambda: np.add(a["x"], a["y"], out=a["y"]), name="add", cost_us=3)
        dist.all_reduce(a["x"])
        dist.broadcast(a["y"], src=1)
        work = dist.all_gather_into_tensor(self.wide, a["z"], async_op=True)
        sends = dist.isend(a["sent"], (self.rank + 1) % self.n, tag=4)
        dist.recv(a["received"], (self.rank - 1) % self.n, tag=4)
        sends.wait()
        self.plan.run()
        work.wait()
        dist.all_reduce(a["list"], op=dist.ReduceOp.MAX)

    def results(self):
        return [array.tolist() for array in (*self.arrays.values(), self.wide)]


def replays(rank):
    n = dist.get_world_size()
    step = Step(rank, n)
    step.fill(0)
    before = step.results()
    captured = graph.capture(step.run)
    assert step.results() == before, "a capture moves nothing"
    assert not graph.is_capturing()
    again = graph.Graph.from_text(captured.to_text())
    assert again == captured and again.hash() == captured.hash() and hash(again) == hash(captured)
    assert again.predicted_us() == captured.predicted_us() > 0
    optimised = graph.optimise(captured, overlap_us=0, stages=True)
    passes = [change.name for change in optimised.changes]
    assert passes == ["algebra", "dead values", "buckets", "split", "overlap", "memory"], optimised.to_text()
    assert optimised.changes[-1].after == optimised.graph
    everyone = [None] * n
    dist.all_gather_object(everyone, captured.to_text())
    graphs = [graph.Graph.from_text(text) for text in everyone]
    assert graph.prove(graphs), graph.prove(graphs).faults
    alone = graph.optimise(graphs, overlap_us=0)
    assert alone[rank].graph == optimised.graph
    assert graph.prove(graphs, [one.graph for one in alone])
    message = message_of(tutti.InvalidArgument, graph.instantiate, again)
    assert "expected one of capture()" in message, message
    for executable in (graph.instantiate(captured), graph.Executable(optimised.graph)):
        for turn in range(1, 4):
            step.fill(turn)
            step.run()
            wanted = step.results()
            step.fill(turn)
            executable.replay()
            assert step.results() == wanted, (rank, turn, executable.graph.to_text())


def buckets(rank):
    arrays = [np.zeros(16, np.float32) for _ in range(20)]
    captured = graph.capture(lambda: [dist.all_reduce(array) for array in arrays])
    optimised = graph.optimise(captured, bucket_bytes=1 << 20)
    assert [node.kind for node in optimised.graph.nodes] == ["all_reduce"], optimised.to_text()
    assert len(optimised.graph.nodes[0].pieces) == 20 and optimised.graph.changed
    assert "20 calls became one" in optimised.to_text()
    assert graph.optimise(captured, alike=True, bucket_bytes=1 << 20).graph == optimised.graph
    step = graph.Executable(optimised.graph)
    for turn in range(3):
        for i, array in enumerate(arrays):
            array[:] = rank + i + turn
        step.replay()
        assert [array[3] for array in arrays] == [1 + 2 * (i + turn) for i in range(20)]


def binding(rank):
    x, y = np.zeros(4), np.zeros((2, 4))
    seen = []

    def double(reads, writes):
        seen.append((reads[0], writes[0]))
        np.multiply(reads[0], 2, out=writes[0])

    def program():
        graph.compute([x], [y[0]], double, name="double")
        dist.all_reduce(y[0])

    step = graph.Executable(graph.capture(program))
    x[:] = rank
    step.replay()
    assert y[0].tolist() == [2] * 4 and y[1].tolist() == [0] * 4
    assert seen[-1][0] is x
    other, rows = np.full(4, 5.0), np.zeros((2, 4))
    message = message_of(tutti.InvalidArgument, step.bind, np.zeros(4), other)
    assert "captured is float64[4] at 0x" in message and "which no node of the graph uses" in message, message
    message = message_of(tutti.InvalidArgument, step.bind, x, y[0])
    assert "would stand for two tensors of the graph" in message, message
    step.bind(x, other)
    step.bind(y[0], rows[1])
    released = weakref.ref(rows)
    step.replay()
    assert rows.tolist() == [[0] * 4, [20] * 4] and y[0].tolist() == [2] * 4
    assert seen[-1][0] is other and seen[-1][1].base is not None
    last = np.zeros(4)
    seen.clear()
    step.bind(rows[1], last)
    del rows
    gc.collect()
    assert released() is None, "what is bound no more is kept no more"
    step.replay()
    assert last.tolist() == [20] * 4
    assert "expected the captured tensor's type and size" in message_of(tutti.InvalidArgument, step.bind, other, np.zeros(3))
    plain = graph.Executable(graph.capture(lambda: graph.compute([x], [], lambda: None, name="plain")))
    said = message_of(tutti.InvalidArgument, plain.bind, x, other)
    assert 'compute step "plain"' in said and "takes its views" in said, said


def host_reads(rank):
    x, y = np.zeros(1), np.zeros(1)
    lines = {}

    def program():
        lines["write"] = line() + 1
        dist.all_reduce(x)
        assert graph.item(y) == 0
        lines["read"] = line() + 1
        graph.item(x)

    try:
        graph.capture(program)
    except graph.HostRead as error:
        assert isinstance(error, tutti.InvalidArgument)
        assert error.read_at.endswith(f"graph_test.py:{lines['read']} in program"), error.read_at
        assert error.written_at.endswith(f"graph_test.py:{lines['write']} in program"), error.written_at
        assert error.read_at in str(error) and error.written_at in str(error), error
    else:
        raise AssertionError("nothing was raised")
    assert not graph.is_capturing()
    dist.all_reduce(x)

    def computes():
        lines["compute"] = line() + 1
        graph.compute([], [x], lambda: None, name="makes it")
        graph.check_host_read(x, "the test")

    said = message_of(graph.HostRead, graph.capture, computes)
    assert "the test reads" in said and "makes it" in said and f"graph_test.py:{lines['compute']} in computes" in said, said
    assert graph.item(np.full((1, 1), 3, np.int8)) == 3
    assert "expected one element" in message_of(tutti.InvalidArgument, graph.item, np.zeros(2))


def failures(rank):
    x = np.zeros(4, np.float32)

    class Mine(Exception):
        pass

    def fails():
        raise Mine("on purpose")

    assert message_of(Mine, graph.capture, fails) == "on purpose"
    step = graph.Executable(graph.capture(lambda: graph.compute([x], [x], fails, name="fails")))
    for _ in range(2):
        assert message_of(Mine, step.replay) == "on purpose"
    dist.all_reduce(x)
    nested = lambda: graph.capture(lambda: None)  # noqa: E731
    assert "one capture at a time" in message_of(tutti.InvalidArgument, graph.capture, nested)
    assert "outside of capture()" in message_of(
        tutti.InvalidArgument, graph.capture, lambda: dist.all_gather_object([None, None], 1))
    recursive = []
    recursive.append(graph.Executable(graph.capture(
        lambda: graph.compute([x], [x], lambda: recursive[0].replay(), name="again"))))
    assert "one replay at a time" in message_of(tutti.InvalidArgument, recursive[0].replay)
    for arguments, options, expected in (
            (([x], [x], 3), {}, "function is of type int: expected a function"),
            (([x], [x], lambda a: None), {}, "function takes (a): expected one that takes nothing, or (reads, writes)"),
            (([x], [x[::2]], fails), {}, "with gaps: expected a tensor in one piece"),
            (([x], [x], fails), {"cost_us": -1}, "cost_us is -1: expected microseconds from 0"),
            (([x], ["x"], fails), {}, "writes[0] is of type str")):
        said = message_of(tutti.InvalidArgument, graph.capture, lambda: graph.compute(*arguments, **options))
        assert expected in said, said
    assert 'order "sorted"' in message_of(tutti.InvalidArgument, graph.optimise, graph.capture(nothing), order="sorted")
    assert "capture: function is of type int" in message_of(tutti.InvalidArgument, graph.capture, 3)
    assert "captures nothing" in message_of(tutti.InvalidArgument, graph.temporary, x)


def nothing():
    pass


def at_once(rank):
    x, y = np.ones(3), np.zeros(3)
    graph.compute([x], [y], lambda: np.copyto(y, x), name="outside")
    assert y.tolist() == [1, 1, 1]
    graph.compute([x], [y], lambda reads, writes: np.multiply(reads[0], 4, out=writes[0]))
    assert y.tolist() == [4, 4, 4]


def dead_values(rank):
    x, y = np.ones(3, np.float32), np.zeros(3, np.float32)
    ran = []

    def program():
        graph.compute([x], [y], lambda: ran.append("dead"), name="dead")
        graph.temporary(y)
        dist.all_reduce(x)

    optimised = graph.optimise(graph.capture(program)).graph
    assert [node.kind for node in optimised.nodes] == ["all_reduce"]
    graph.Executable(optimised).replay()
    assert ran == [] and x.tolist() == [2, 2, 2]


def released(rank):
    """Other threads run while a replay waits; a graph keeps its arrays, and nothing keeps them longer."""
    x = np.zeros(4, np.float32)
    gone = weakref.ref(x)

    def program(x=x):
        dist.all_reduce(x)
        dist.all_gather_into_tensor(np.zeros(8, np.float32), x, async_op=True)

    step = graph.Executable(graph.capture(program))
    del x, program
    gc.collect()
    assert gone() is not None
    dist.barrier()  # else rank 1's wait may be over before rank 0 begins
    if rank == 0:
        ticks = []
        stop = threading.Event()
        ticking = threading.Thread(target=lambda: [ticks.append(1) for _ in iter(lambda: stop.wait(0.01), True)])
        ticking.start()
        step.replay()
        stop.set()
        ticking.join()
        assert len(ticks) > 3, len(ticks)
    else:
        threading.Event().wait(0.3)
        step.replay()
    del step
    gc.collect()
    assert gone() is None


class Graphs(unittest.TestCase):
    def test_replays_do_what_the_program_does(self):
        run_ranks(replays, 3)

    def test_small_calls_become_one(self):
        run_ranks(buckets)

    def test_an_executable_runs_on_other_arrays(self):
        run_ranks(binding)

    def test_a_read_on_the_host_names_both_places(self):
        run_ranks(host_reads)

    def test_exceptions_pass_through_and_wrong_arguments_are_named(self):
        run_ranks(failures)

    def test_a_compute_step_outside_of_a_capture_runs_at_once(self):
        run_ranks(at_once)

    def test_what_nobody_reads_is_left_out(self):
        run_ranks(dead_values)

    def test_a_replay_lets_other_threads_run_and_a_graph_keeps_its_arrays(self):
        run_ranks(released)

    def test_a_value_shows_its_nodes_edges_and_groups(self):
        (text, lines), _ = run_ranks(described)
        g = graph.Graph.from_text(text)
        self.assertEqual([node.kind for node in g.nodes], ["compute", "all_reduce", "wait"])
        self.assertEqual((g.nodes[0].name, g.nodes[0].cost_us), ("fill", 7))
        for node, number in zip(g.nodes, lines):
            self.assertTrue(node.site.endswith(f"graph_test.py:{number} in program"), node.site)
        self.assertEqual((g.nodes[1].dtype, g.nodes[1].op, g.nodes[1].asynchronous), ("float32", "avg", True))
        self.assertEqual(g.nodes[2].of, g.nodes[1].id)
        self.assertEqual([(e.from_, e.to, e.hazard) for e in g.edges() if e.hazard == "wait"], [(1, 2, "wait")])
        self.assertNotEqual(g, "a text")
        self.assertIn((0, 1, "read_after_write"), [(e.from_, e.to, e.hazard) for e in g.edges()])
        piece = g.nodes[1].pieces[0]
        self.assertEqual([(r.buffer, r.offset, r.bytes) for r in piece.reads], [(0, 0, 32)])
        self.assertEqual((g.groups[0].ranks, g.groups[0].rank, g.groups[0].determinism), ([0, 1], 0, "fast"))
        self.assertEqual(g.buffers, [32])
        with self.assertRaisesRegex(tutti.InvalidArgument, r"line 2, column 1: expected group, buffer"):
            graph.Graph.from_text("tutti graph 1\nnonsense\n")

    def test_a_proof_that_fails_says_why(self):
        text = run_ranks(described)[0][0]
        first = graph.Graph.from_text(text)
        other = graph.Graph.from_text(text.replace("rank 0 fast", "rank 1 fast").replace("float32 avg", "float32 max"))
        proof = graph.prove([first, other])
        self.assertFalse(proof)
        self.assertIn("all_reduce", proof.faults[0])
        self.assertRegex(graph.prove([first]).faults[0], "rank 1, of which there is no graph")
        with self.assertRaisesRegex(tutti.InvalidArgument, "the captured graphs cannot run"):
            graph.optimise([first, other])
        with self.assertRaisesRegex(tutti.InvalidArgument, "alike is for one graph"):
            graph.optimise([first, other], alike=True)

    def test_importing_it_imports_no_pytorch(self):
        out = run_script("import sys, tutti, tutti.graph\ntutti.graph.capture\n"
                         "print([m for m in sys.modules if m.split('.')[0] == 'torch'])")
        self.assertEqual(out, "[]\n")

    def test_what_is_for_pytorch_says_where_it_is(self):
        said = run_script("import sys\nsys.modules['torch'] = None\nimport tutti.graph\n"
                          "try:\n    tutti.graph.patch_for_hcom()\nexcept ImportError as error:\n    print(error)")
        self.assertRegex(said, "pip install (libtutti-)?torch")


def described(rank):
    x = np.zeros(8, np.float32)
    lines = [line() + 3, line() + 4, line() + 4]

    def program():
        graph.compute([], [x], lambda: None, name="fill", cost_us=7)
        work = dist.all_reduce(x, op=dist.ReduceOp.AVG, async_op=True)
        work.wait()

    return graph.capture(program).to_text(), lines


if __name__ == "__main__":
    main("python_graph_test")
