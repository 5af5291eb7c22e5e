"""The collectives and messages of the Python package, on NumPy arrays."""
import concurrent.futures
import copy
import os
import pathlib
import pickle
import sys
import unittest
from datetime import timedelta

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import numpy as np
from ranks import run_ranks
from rows import main, rows

import tutti.distributed as dist


def reductions(rank):
    results = {}
    for name, op in (("SUM", dist.ReduceOp.SUM), ("PRODUCT", dist.ReduceOp.PRODUCT), ("MIN", dist.ReduceOp.MIN),
                     ("MAX", dist.ReduceOp.MAX), ("AVG", dist.ReduceOp.AVG),
                     ("PREMUL", dist._make_nccl_premul_sum(0.5))):
        x = np.array([rank + 1.0, 2.0], dtype=np.float32)
        assert dist.all_reduce(x, op) is None
        results[name] = x.tolist()
    for name in ("BAND", "BOR", "BXOR"):
        x = np.array([rank + 1], dtype=np.int32)
        dist.all_reduce(x, op=getattr(dist.ReduceOp, name))
        results[name] = x.tolist()
    z = np.array([1 + 1j * rank], dtype=np.complex64)
    dist.all_reduce(z)
    results["complex"] = z.tolist()
    try:
        dist.all_reduce(z, op=dist.ReduceOp.MAX)
    except dist.InvalidArgument as error:
        results["complex max"] = str(error)
    x = np.array([rank + 1.0])
    dist.reduce(x, dst=1)
    results["reduce"] = x.tolist()
    return results


class Exported:
    """What another library hands over: DLPack, and nothing else of NumPy's."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **kwargs):
        return self.array.__dlpack__(**kwargs)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def prefixes(rank):
    x = np.array([rank + 1.0, 2.0])
    assert dist.scan(x) is None
    before = np.array([rank + 1, 7])
    dist.exscan(before, dist.ReduceOp.MAX, async_op=True).wait()
    exported = np.array([rank + 1], dtype=np.int16)
    dist.scan(Exported(exported), op=dist.ReduceOp.PRODUCT)
    grid = np.full((2, 4), rank + 1, dtype=np.float32)
    dist.exscan(grid[:, ::2], dist._make_nccl_premul_sum(10))
    texts = []
    for call in (dist.scan, dist.exscan):
        try:
            call(x, dist.ReduceOp.AVG)
        except dist.InvalidArgument as error:
            texts.append(str(error))
    return x.tolist(), before.tolist(), exported.tolist(), grid.tolist(), texts


def gathers(rank):
    n = dist.get_world_size()
    outs = [np.zeros(i + 1, dtype=np.int64) for i in range(n)]
    dist.all_gather(outs, np.full(rank + 1, rank, dtype=np.int64))
    into = np.zeros((n, 2))
    dist.all_gather_into_tensor(into, np.full(2, float(rank)))
    listed = [np.zeros(1) for _ in range(n)] if rank == 0 else None
    dist.gather(np.array([rank * 10.0]), listed)
    got = np.zeros(2, dtype=np.int16)
    dist.scatter(got, [np.full(2, i, dtype=np.int16) for i in range(n)] if rank == 1 else None, src=1)
    scattered = np.zeros(1)
    dist.reduce_scatter(scattered, [np.array([i + 1.0]) for i in range(n)])
    block = np.zeros(2)
    dist.reduce_scatter_tensor(block, np.arange(2.0 * n))
    single = np.zeros(n, dtype=np.int64)
    dist.all_to_all_single(single, np.arange(n) + 10 * rank)
    uneven = np.zeros(n * (rank + 1), dtype=np.int64)
    dist.all_to_all_single(uneven, np.repeat(rank, sum(range(n + 1))), [rank + 1] * n, [i + 1 for i in range(n)])
    sent = [np.full(i + 1, rank) for i in range(n)]
    received = [np.zeros(rank + 1, dtype=sent[0].dtype) for _ in range(n)]
    dist.all_to_all(received, sent)
    apart = np.full(n * (rank + 2), -1)  # as `uneven`, in falling order of ranks, with a gap before each block
    dist.all_to_all_v(apart, np.repeat(rank, sum(range(n + 1))), send_counts=[i + 1 for i in range(n)],
                      receive_counts=[rank + 1] * n, receive_offsets=[(n - 1 - i) * (rank + 2) + 1 for i in range(n)])
    assert apart.tolist() == [v for i in reversed(range(n)) for v in [-1] + [i] * (rank + 1)], apart
    uneven_gathers(rank, n)
    rooted_blocks(rank, n)
    whole = np.full(3, rank)
    dist.broadcast(whole, src=1)
    dist.barrier()
    dist.monitored_barrier()
    return [[o.tolist() for o in outs], into.tolist(), [o.tolist() for o in listed or []], got.tolist(),
            scattered.tolist(), block.tolist(), single.tolist(), uneven.tolist(), [r.tolist() for r in received],
            whole.tolist()]


def uneven_gathers(rank, n):
    """Rank i has i + 1 rows of two; the sizes are given, given by the other name, or asked for."""
    sizes = [i + 1 for i in range(n)]
    rows = np.arange(2.0 * sum(sizes)).reshape(-1, 2)
    mine = slice(sum(sizes[:rank]), sum(sizes[:rank + 1]))
    for how in ({"output_split_sizes": sizes}, {}):
        gathered = np.zeros_like(rows)
        dist.all_gather_v(gathered, rows[mine], **how)
        assert (gathered == rows).all(), gathered
    gathered = np.zeros_like(rows)
    dist.all_gather_into_tensor(gathered, rows[mine], output_split_sizes=sizes, async_op=True).wait()
    assert (gathered == rows).all(), gathered
    for how in ({"input_split_sizes": sizes}, {}):
        part = np.zeros((rank + 1, 2))
        dist.reduce_scatter_v(part, rows, **how)
        assert (part == n * rows[mine]).all(), part
    dist.reduce_scatter_tensor(part, rows, dist.ReduceOp.MAX, input_split_sizes=sizes)
    assert (part == rows[mine]).all(), part


def rooted_blocks(rank, n):
    """Rank i has i elements; on the root they lie in falling order of ranks, with a gap before each."""
    counts = list(range(n))
    offsets = [sum(counts[i + 1:]) + n - i for i in range(n)]
    mine, whole = np.full(rank, rank + 0.5), np.full(sum(counts) + n, -1.0)
    want = [v for i in reversed(range(n)) for v in [-1.0] + [i + 0.5] * i]
    for how in ({}, {"async_op": True}):
        all_of_them = whole.copy() if rank == 1 else None
        given = (all_of_them, counts, offsets) if rank == 1 else ()
        work = dist.gather_v(mine, *given, dst=1, **how)
        if how:
            work.wait()
        assert rank != 1 or all_of_them.tolist() == want, all_of_them
        back = np.zeros(rank)
        work = dist.scatter_v(back, *given, group_src=1, **how)
        if how:
            work.wait()
        assert back.tolist() == mine.tolist(), back
    everywhere = whole.copy()
    dist.all_gather_v(everywhere, mine, counts, output_offsets=offsets)
    assert everywhere.tolist() == want, everywhere
    assert dist.reduce_scatter_tensor_uneven is dist.reduce_scatter_v
    assert dist.all_gather_into_tensor_uneven is dist.all_gather_v
    if rank == 1:
        for call, text in ((lambda: dist.gather_v(mine, whole, counts, [0] * n, dst=1), "overlap in output"),
                           (lambda: dist.scatter_v(mine, whole, [1, "x"], src=1), "send_counts[1]")):
            try:
                call()
                raise AssertionError(f"nothing refuses what should say {text}")
            except (dist.InvalidArgument, TypeError) as error:
                assert text in str(error), error


def messages(rank):
    x = np.arange(3.0) + rank
    if rank == 0:
        dist.send(x, 1, tag=7)
        dist.send(x, group_dst=1)
    else:
        sources = [dist.recv(x, tag=7), dist.recv(x, src=0)]
        assert sources == [0, 0]
    inbox = np.zeros(2)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, np.full(2, float(rank)), 1 - rank),
                                    dist.P2POp(dist.irecv, inbox, 1 - rank)])
    for work in works:
        work.wait()
    mine = np.zeros(1)
    receipt = dist.irecv(mine, src=rank)
    dist.isend(np.array([5.0]), rank).wait()
    receipt.wait()
    assert receipt.source_rank() == rank
    return x.tolist(), inbox.tolist(), mine.tolist()


def as_in_mpi(rank):
    """The classic programs: a circle, an open line, in place, receives of unknown length, threads."""
    n, results = dist.get_world_size(), []
    right, left = (rank + 1) % n, (rank - 1) % n
    came = np.zeros(2)
    results.append(dist.sendrecv(np.full(2, float(rank)), right, came, left, send_tag=3, recv_tag=3) == left)
    work = dist.isendrecv(came, group_dst=right, recv_tensor=came[::-1], group_src=left)
    assert work is not None and work.wait() and work.source_rank() == left
    results.append(came.tolist() == [float((rank - 2) % n)] * 2)
    line = np.full(3, -1)
    sender = dist.sendrecv(np.arange(3) + rank if rank + 1 < n else None, right if rank + 1 < n else dist.NO_RANK,
                           line if rank > 0 else None, left if rank > 0 else dist.NO_RANK)
    results.append((sender, line[2]) == ((left, left + 2) if rank > 0 else (dist.NO_RANK, -1)))
    long = np.full(100_000, float(rank))
    dist.sendrecv_replace(long, right, left)
    results.append(bool((long == left).all()))
    work = dist.isend(np.arange(rank + 1, dtype=np.int16), right, tag=9)
    what = dist.probe()
    results.append((what.source, what.group_source, what.tag, what.dtype, what.count, what.nbytes) ==
                   (left, left, 9, "int16", left + 1, 2 * left + 2))
    message = dist.matched_probe(src=left)
    results.append(message.info == what and dist.iprobe(tag=9) is None and dist.matched_iprobe(tag=9) is None)
    message.release()
    again = dist.iprobe(tag=9)
    results.append(again == what and again is not None and "int16" in repr(again))
    message = dist.matched_iprobe(group_src=left)
    assert message is not None
    try:
        message.recv(np.zeros(1))
        results.append(False)
    except dist.InvalidArgument as error:
        results.append(f"expected int16 × {left + 1}" in str(error))
    results.append(message.recv().tolist() == list(range(left + 1)))
    work.wait()

    work = dist.isend(np.arange(5), right)
    threads = concurrent.futures.ThreadPoolExecutor(2)
    got = list(threads.map(lambda _: dist.matched_probe().recv(timeout=timedelta(seconds=20)).tolist(), range(1)))
    results.append(got == [list(range(5))])
    threads.shutdown()
    work.wait()
    work = dist.isend(np.arange(5), right, tag=2)
    held = dist.matched_probe(tag=2)
    into = np.zeros(5, np.int64)
    receipt = held.irecv(into)
    assert receipt is not None
    results.append(receipt.wait() and into.tolist() == list(range(5)))
    work.wait()
    work = dist.isend(np.arange(4), right, tag=2)
    del held
    held = dist.matched_probe(tag=2)
    del held  # it is back at its place
    results.append(dist.probe(tag=2).count == 4)
    dist.recv(np.zeros(4, np.int64), tag=2)
    work.wait()
    dist.barrier()
    return results


def rejections(rank):
    del rank
    texts = []
    frozen = np.zeros(2)
    frozen.flags.writeable = False
    x = np.zeros(2)
    for call in (lambda: dist.all_reduce(frozen), lambda: dist.all_reduce([1.0]), lambda: dist.all_reduce("text"),
                 lambda: dist.all_reduce(x.astype(">f8")), lambda: dist.all_reduce(np.array(["a"])),
                 lambda: dist.broadcast(x), lambda: dist.broadcast(x, src=0, group_src=0), lambda: dist.send(x),
                 lambda: dist.send(x, dst=dist.get_rank()), lambda: dist.all_gather(x, x),
                 lambda: dist.all_gather([x], x), lambda: dist.all_reduce(x, group="dp"),
                 lambda: dist.P2POp(dist.send, x, 0), lambda: dist.all_reduce(x, op="sum"),
                 lambda: dist.all_reduce(x, async_op="yes"), lambda: dist.send(x, 0, tag="a"),
                 lambda: dist.irecv(x, tag=None), lambda: dist.monitored_barrier(wait_all_ranks=2),
                 lambda: dist.split_group("dp", [[0]]), lambda: dist.split_group(None, [0]), lambda: dist.broadcast(x, src="0"),
                 lambda: dist.all_reduce(np.zeros(2, dtype=[("a", "i4"), ("b", "f4")])["b"].view())):
        try:
            call()
            texts.append("accepted")
        except dist.InvalidArgument as error:
            texts.append(f"{type(error).__name__}: {error}")
    dist.barrier()
    return texts


def layouts(rank):
    import ml_dtypes

    base = np.arange(24.0).reshape(4, 6) * (rank + 1)
    view = base[::2, ::-3]
    expected = 1.5 * 2 * view / (rank + 1)
    dist.all_reduce(view)
    assert np.array_equal(view, expected), view
    assert base[1, 1] == 7.0 * (rank + 1), "what is beside the view stays"
    for dtype in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, np.float16, np.bool_, np.uint8,
                  np.int8, np.uint16, np.uint32, np.uint64, np.complex128):
        x = np.ones(5, dtype=dtype)[::2]
        dist.all_reduce(x)
        assert x.dtype == dtype and x.tolist() == ([1, 1, 1] if dtype is np.bool_ else [2, 2, 2]), (dtype, x)
    import array

    buffers = bytearray(b"\1\2"), array.array("d", [1, 2]), memoryview(bytearray(b"\3"))
    for buffer in buffers:
        dist.all_reduce(buffer)
    zero = np.array(rank)
    dist.all_reduce(zero)
    empty = np.zeros((0, 3))
    dist.all_reduce(empty)
    return [list(b) for b in buffers], int(zero)


class Collectives(unittest.TestCase):
    @rows("S8-006", "S8-007", "S8-008", "S8-009", "S10-001", "S10-002", "S10-003", "S10-004", "S10-005", "S10-006",
          "S10-007", "S10-008", "S10-009", "S10-010", "S10-011", "S10-012", "S8-035")
    def test_reductions_are_in_place_and_equal_on_all_ranks(self):
        first, second = run_ranks(reductions)
        self.assertEqual(first["SUM"], [3.0, 4.0])
        self.assertEqual(first["PRODUCT"], [2.0, 4.0])
        self.assertEqual([first["MIN"], first["MAX"]], [[1.0, 2.0], [2.0, 2.0]])
        self.assertEqual([first["AVG"], first["PREMUL"]], [[1.5, 2.0], [1.5, 2.0]])
        self.assertEqual([first["BAND"], first["BOR"], first["BXOR"]], [[0], [3], [3]])
        self.assertEqual(first["complex"], [2 + 1j])
        self.assertIn("not defined for complex64", first["complex max"])
        self.assertEqual([first.pop("reduce"), second.pop("reduce")], [[1.0], [3.0]])
        self.assertEqual(first, second)

    @rows("S20-010", "S20-011", "S8-001", "S8-002", "S8-003", "S8-004", "S8-010", "S8-011", "S8-013", "S8-014", "S8-016", "S8-018", "S8-019",
          "S8-020", "S8-021", "S8-022", "S8-024", "S8-026", "S8-027", "S8-029", "S8-031", "S8-034", "S8-036", "S24-001", "S24-002",
          "S24-003", "S24-004")
    def test_every_rank_gets_what_the_others_gave(self):
        for rank, got in enumerate(run_ranks(gathers, 3)):
            self.assertEqual(got[0], [[0], [1, 1], [2, 2, 2]])
            self.assertEqual(got[1], [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]])
            self.assertEqual(got[2], [[0.0], [10.0], [20.0]] if rank == 0 else [])
            self.assertEqual(got[3], [rank, rank])
            self.assertEqual(got[4], [3.0 * (rank + 1)])
            self.assertEqual(got[5], [3.0 * (2 * rank), 3.0 * (2 * rank + 1)])
            self.assertEqual(got[6], [rank, 10 + rank, 20 + rank])
            self.assertEqual(got[7], sum(([i] * (rank + 1) for i in range(3)), []))
            self.assertEqual(got[8], [[i] * (rank + 1) for i in range(3)])
            self.assertEqual(got[9], [1, 1, 1])

    def test_prefixes_are_those_of_the_ranks_up_to_oneself_or_before(self):
        first, second, third = run_ranks(prefixes, 3)
        self.assertEqual([r[0] for r in (first, second, third)], [[1.0, 2.0], [3.0, 4.0], [6.0, 6.0]])
        self.assertEqual([r[1] for r in (first, second, third)], [[1, 7], [1, 7], [2, 7]])
        self.assertEqual([r[2] for r in (first, second, third)], [[1], [2], [6]])
        self.assertEqual(first[3], [[1.0] * 4] * 2, "rank 0 keeps its values, and they are not multiplied")
        self.assertEqual(second[3], [[10.0, 2.0] * 2] * 2)
        self.assertEqual(third[3], [[30.0, 3.0] * 2] * 2)
        for text, name in zip(first[4], ("scan", "exscan"), strict=True):
            self.assertIn(f"{name}: op avg: expected another one", text)

    @rows("S6-001", "S6-002", "S6-003", "S6-004", "S6-006", "S6-007", "S6-008", "S6-009", "S6-013", "S6-014", "S6-015",
          "S6-016", "S7-015")
    def test_messages_meet_by_peer_and_tag(self):
        first, second = run_ranks(messages)
        self.assertEqual([first[1], second[1]], [[1.0, 1.0], [0.0, 0.0]])
        self.assertEqual(second[0], [0.0, 1.0, 2.0])
        self.assertEqual([first[2], second[2]], [[5.0], [5.0]])

    @rows("P2P-001", "P2P-002", "P2P-003", "P2P-004", "P2P-005")
    def test_messages_meet_as_in_mpi(self):
        for results in run_ranks(as_in_mpi):
            self.assertEqual(results, [True] * 12)

    @rows("S17-006", "S7-004")
    def test_bad_arguments_are_named_before_anything_is_sent(self):
        for texts in run_ranks(rejections):
            self.assertNotIn("accepted", texts[:-1])
            self.assertIn("tensor is read-only", texts[0])
            self.assertIn("tensor is of type list: expected a NumPy array", texts[1])
            self.assertIn("byte order", texts[3])
            self.assertIn("expected exactly one", texts[7])
            self.assertIn("group is of type str", texts[11])
            for text, part in zip(texts[13:], (
                    "all_reduce: op is of type str: expected a ReduceOp", "all_reduce: async_op is of type str: expected True",
                    "send: tag is of type str", "irecv: tag is of type NoneType: expected an integer",
                    "monitored_barrier: wait_all_ranks is of type int", "split_group: parent_pg is of type str",
                    "split_group: split_ranks is [0]: expected a list of lists")):
                self.assertIn(part, text)

    def test_an_operator_can_be_copied_and_pickled(self):
        for op in (*(dist.ReduceOp(kind) for kind in type(dist.ReduceOp.SUM.op)), dist._make_nccl_premul_sum(0.25)):
            pickled = [pickle.loads(pickle.dumps(op, protocol)) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
            for again in (copy.copy(op), copy.deepcopy(op), *pickled):
                self.assertEqual((again, again.op, again.factor, hash(again)), (op, op.op, op.factor, hash(op)))
        with self.assertRaises(TypeError):
            dist.ReduceOp(99)

    def test_options_and_enums_can_be_copied_and_pickled(self):
        options = dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp.MAX
        self.assertEqual(vars(copy.deepcopy(options)), vars(pickle.loads(pickle.dumps(options))))
        for value in (dist.DebugLevel.INFO, dist.WorkResult.TIMEOUT, dist.ReduceOp.MIN.op, dist.Backend.GLOO, dist.Backend("gloo")):
            for again in (copy.copy(value), copy.deepcopy(value), *(pickle.loads(pickle.dumps(value, p)) for p in range(6))):
                self.assertEqual((again, hash(again), type(again)), (value, hash(value), type(value)))

    @rows("S8-012", "S7-001")
    def test_any_layout_type_and_buffer_will_do(self):
        for buffers, zero in run_ranks(layouts):
            self.assertEqual(buffers, [[2, 4], [2.0, 4.0], [6]])
            self.assertEqual(zero, 1)


if __name__ == "__main__":
    main("python_" + pathlib.Path(__file__).stem)
