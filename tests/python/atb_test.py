"""tutti.atb: the program of ATB's document, NumPy arrays and PyTorch's tensors, domains, refused arguments."""
import importlib.util
import json
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import types
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import numpy as np
from ranks import free_port, run_ranks
from rows import main, rows

import tutti
import tutti.atb as atb
import tutti.distributed as dist
from tutti.atb.testing import compute_out_tensor_dim1, golden_compare

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None
has_torch = importlib.util.find_spec("torch") is not None

# The document's example.
INPUTS = [[[0, 1, 2, 3], [4, 5, 6, 7]], [[0, 1, 2], [3, 4, 6]]]
SEND_COUNTS, SEND_PLACES = [[2, 4], [2, 1]], [[0, 2], [0, 2]]
RECEIVE_COUNTS, RECEIVE_PLACES = [[2, 2], [4, 1]], [[0, 2], [0, 4]]
GOLDEN = [[[0, 1, 0, 1]], [2, 3, 4, 5, 2]]
DTYPES = ["int8", "int16", "int32", "int64", "float32", "float16", "bfloat16"]


def parameters(rank, size, **more):
    return json.dumps({"rank": rank, "rankSize": size, "rankRoot": 0, "backend": "hccl", **more})


def places(rank):
    return json.dumps({"sendCounts": SEND_COUNTS[rank], "sdispls": SEND_PLACES[rank],
                       "recvCounts": RECEIVE_COUNTS[rank], "rdispls": RECEIVE_PLACES[rank]})


def documents_worker(rank, world_size, kind):
    """What the document's main_worker does, with the arrays of `kind`."""
    if kind == "torch":
        import torch

        import tutti.atb.torch_classes

        operation = torch.classes.OperationTorch.OperationTorch("AllToAllVV2Operation")
        make = lambda values, dtype: torch.tensor(values, dtype=getattr(torch, dtype))
        numbers = [torch.from_numpy(np.array(n)).to(torch.int64)
                   for n in (SEND_COUNTS[rank], SEND_PLACES[rank], RECEIVE_COUNTS[rank], RECEIVE_PLACES[rank])]
    else:
        operation = atb.OperationTorch("AllToAllVV2Operation")
        make = lambda values, dtype: np.array(values, dtype=getattr(np, dtype, None) or getattr(ml_dtypes, dtype))
        numbers = [np.array(n) for n in (SEND_COUNTS[rank], SEND_PLACES[rank], RECEIVE_COUNTS[rank],
                                         RECEIVE_PLACES[rank])]
    for dtype in DTYPES:
        if dtype == "bfloat16" and kind == "numpy" and ml_dtypes is None:
            continue
        x = make(INPUTS[rank], dtype)
        operation.set_param(parameters(rank, world_size))
        operation.set_varaintpack_param(places(rank))
        result = operation.execute([x, *numbers, compute_out_tensor_dim1(RECEIVE_COUNTS[rank])])
        assert len(result) == 1 and type(result[0]) is type(x), result
        assert tuple(result[0].shape) == (1, len(np.ravel(GOLDEN[rank]))), result
        assert golden_compare(result[0], make(GOLDEN[rank], dtype)), (dtype, result[0])


def start(target, *args):
    """A process as the document's test starts them; no launcher's variables reach it."""
    for name in ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "TUTTI_JOB_SECRET"):
        os.environ.pop(name, None)
    process = multiprocessing.get_context("spawn").Process(target=target, args=args)
    process.start()
    return process


def finish(test, processes):
    for process in processes:
        process.join(60)
        test.assertEqual(process.exitcode, 0)


def exchange(rank):
    """A group of the caller's: the formula on random counts, with gaps, and refused arguments."""
    operation = atb.AllToAllVV2(atb.AllToAllVV2Param(hcclComm=dist.group.WORLD))
    size = dist.get_world_size()
    random = np.random.default_rng(4)
    for turn in range(20):
        counts = random.integers(0, 6, (size, size)) * random.integers(0, 2, (size, size))
        counts = counts * (200 if turn % 5 == 4 else 1)
        offsets = np.cumsum(counts, axis=1) - counts + turn % 2 * np.arange(size)
        inputs = [np.arange(int((offsets[r] + counts[r]).max()) + 1, dtype=np.float32) + 1000 * r for r in range(size)]
        received = counts[:, rank]
        starts = np.cumsum(received) - received + turn % 2 * np.arange(size)
        got = operation.execute(inputs[rank], counts[rank], offsets[rank], received, starts)
        want = np.zeros(got.size, dtype=np.float32)
        for j in range(size):
            piece = inputs[j][offsets[j][rank]:offsets[j][rank] + counts[j][rank]]
            want[starts[j]:starts[j] + received[j]] = piece
        assert got.shape == (1, want.size) and (got.ravel() == want).all(), (turn, got, want)
    mesh = dist.init_device_mesh("cpu", (size,))
    even = atb.AllToAllVV2(atb.AllToAllVV2Param(hcclComm=mesh)).execute(np.arange(2 * size) + 10 * rank)
    assert even.tolist() == [[10 * j + 2 * rank + i for j in range(size) for i in range(2)]]
    x = np.arange(4)
    codes = {}
    for name, arguments in {
            "negative": dict(sendCounts=[-1] * size), "long": dict(sendCounts=[5] * size, recvCounts=[1] * size),
            "overlap": dict(sendCounts=[1] * size, recvCounts=[1] * size, rdispls=[0] * size),
            "length": dict(sendCounts=[1] * (size + 1)), "shape": dict(sendCounts=[1] * size, recvCounts=[1] * size,
                                                                       tensorForInferShape=np.zeros(9, np.int8)),
            "type": dict(sendCounts=[0.5] * size), "dimensions": dict(sendCounts=np.ones((2, size), dtype=np.int64)),
            "spellings": dict(sendCounts=[1] * size, sendCount=[0] * size)}.items():
        try:
            operation.execute(x, **arguments)
            codes[name] = "accepted"
        except atb.Error as error:
            assert isinstance(error, tutti.InvalidArgument) and isinstance(error, ValueError)
            codes[name] = error.code
    assert operation.execute(x[:size], sendCount=[1] * size, recvCounts=[1] * size).size == size
    return codes


def mismatch(rank):
    operation = atb.AllToAllVV2(atb.AllToAllVV2Param(hcclComm=dist.group.WORLD))
    began = time.monotonic()
    try:
        operation.execute(np.zeros(4), [1, 3] if rank == 0 else [1, 1], recvCounts=[1, 1])
        text = "accepted"
    except tutti.CollectiveMismatch as error:
        text = str(error)
    seconds = time.monotonic() - began
    assert operation.execute(np.full(2, rank)).tolist() == [[0, 1]]
    return text, seconds


def kinds(rank):
    operation = atb.AllToAllVV2(atb.AllToAllVV2Param(rank=rank, rankSize=2))
    counts = dict(sendCounts=[1, 1], recvCounts=[1, 1])

    class Other:  # another library's array: DLPack and the array interface
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **keywords):
            return self.array.__dlpack__(**keywords)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

        def __array_namespace__(self, api_version=None):
            return types.SimpleNamespace(from_dlpack=Other)

    got = operation.execute(Other(np.array([1.5, 2.5]) + rank), **counts)
    buffer = operation.execute(bytearray([rank + 1, rank + 2]), **counts)
    columns = operation.execute(np.arange(8).reshape(2, 4)[:, rank], **counts)  # with strides
    return type(got).__name__, got.array.tolist(), type(buffer).__name__, str(buffer.dtype), buffer.tolist(), columns.tolist()


def refused_on_one_rank(rank, pipe):
    operation = atb.OperationTorch("AllToAllVV2Operation")
    operation.set_param(parameters(rank, 2, commDomain="refused"))
    texts = []
    for bad in ([np.zeros(2), [1, -1]], [np.zeros(2), ["one", 1]], []):
        try:
            operation.execute(bad if rank == 1 else [np.zeros(2)])
            texts.append("accepted")
        except atb.Error as error:
            texts.append(f"{error.code}, {error.peer}: {error}")
        assert operation.execute([np.full(2, rank)])[0].tolist() == [[0, 1]]
    pipe.send(texts)


def killed(rank, turns):
    operation = atb.AllToAllVV2(atb.AllToAllVV2Param(rank=rank, rankSize=2, commDomain="killed"))
    while True:
        assert operation.execute(np.full(200000, rank), [100000] * 2).sum() == 100000
        if turns is None:
            return
        turns[rank] += 1


class Parameters(unittest.TestCase):
    @rows("S21-003", "S21-004", "S21-005", "S21-006", "S21-007", "S21-008", "S21-009", "S21-010", "S21-011", "S21-012",
          "S21-013", "S21-014", "S21-015")
    def test_they_have_the_documents_members_and_defaults(self):
        p = atb.AllToAllVV2Param()
        self.assertEqual(vars(p), {
            "rank": -1, "rankSize": 0, "rankRoot": 0, "backend": "hccl", "hcclComm": None, "commMode": 0,
            "rankTableFile": "", "commDomain": "", "rsv": bytes(64)})
        self.assertEqual((atb.COMM_UNDEFINED, atb.COMM_MULTI_PROCESS, atb.COMM_MULTI_THREAD), (-1, 0, 1))
        self.assertIs(atb.CommMode.COMM_MULTI_THREAD, atb.COMM_MULTI_THREAD)

    @rows("S21-005", "S21-007", "S21-010", "S21-013")
    def test_what_cannot_be_is_refused_with_the_documents_code(self):
        for bad, word in ((dict(), "rankSize is 0"), (dict(rankSize=1, backend="lccl"), '"lccl"'),
                          (dict(rankSize=1, commMode=atb.COMM_UNDEFINED), "commMode is -1"),
                          (dict(rankSize=1, rankRoot=1), "rankRoot is 1"), (dict(rankSize=1, rsv=b"\1" * 64), "rsv[0] is 1"),
                          (dict(rankSize=1, rankTableFile="/no/such/file"), "/no/such/file")):
            with self.assertRaises(atb.Error) as raised:
                atb.AllToAllVV2(atb.AllToAllVV2Param(**bad))
            self.assertEqual(raised.exception.code, "ERROR_INVALID_PARAM")
            self.assertIn(word, str(raised.exception))
        for bad in (dict(rank="0"), dict(backend=None), dict(rsv=b""), dict(hcclComm="world")):
            with self.assertRaises(TypeError):
                atb.AllToAllVV2(atb.AllToAllVV2Param(**{"rankSize": 1, **bad}))
        operation = atb.OperationTorch("AllToAllVV2Operation")
        for call, word in ((lambda: atb.OperationTorch("Other"), '"Other"'), (lambda: operation.set_param("{"), "no JSON"),
                           (lambda: operation.set_param('{"ranks": 2}'), '"ranks" is no parameter'),
                           (lambda: operation.set_varaintpack_param('{"sdispl": []}'), '"sdispl" is no input'),
                           (lambda: operation.execute([np.zeros(1)]), "set_param before")):
            with self.assertRaises(atb.Error) as raised:
                call()
            self.assertIn(word, str(raised.exception))

    def test_a_number_of_inputs_that_cannot_be_is_refused(self):
        operation = atb.OperationTorch("AllToAllVV2Operation")
        operation.set_param(parameters(0, 1))
        for count in (0, 7):
            with self.assertRaises(atb.Error) as raised:
                operation.execute([np.zeros(1)] * count)
            self.assertEqual(raised.exception.code, "ERROR_INVALID_IN_TENSOR_NUM")
        self.assertEqual(operation.execute([np.arange(3), [2], None, [2], [1]])[0].tolist(), [[0, 0, 1]])


class Operation(unittest.TestCase):
    def run_document(self, kind):
        finish(self, [start(documents_worker, rank, 2, kind) for rank in range(2)])

    @rows("S21-001", "S21-016", "S21-017", "S21-018", "S21-019", "S21-020", "S21-021", "S21-022", "S21-023", "S21-024",
          "S21-025", "E-401")
    def test_the_documents_program_runs_with_numpy(self):
        self.run_document("numpy")

    @unittest.skipUnless(has_torch, "no torch")
    @rows("A-25", "S21-001", "S21-016", "S21-022", "S21-023", "S21-024", "S21-025", "E-401")
    def test_the_documents_program_runs_with_torch(self):
        self.run_document("torch")

    def test_torch_is_not_imported(self):
        done = subprocess.run(
            [sys.executable, "-c",
             "import sys, numpy as np, tutti.atb as a\n"
             "op = a.AllToAllVV2(a.AllToAllVV2Param(rankSize=1))\n"
             "assert op.execute(np.arange(3)).tolist() == [[0, 1, 2]]\n"
             "assert 'torch' not in sys.modules"], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)

    @rows("S21-008", "S21-026")
    def test_a_group_of_the_callers_carries_what_the_formula_says(self):
        for size in (2, 3):
            for codes in run_ranks(exchange, size):
                self.assertEqual(codes, {
                    "negative": "ERROR_INVALID_PARAM", "long": "ERROR_INVALID_PARAM", "overlap": "ERROR_INVALID_PARAM",
                    "length": "ERROR_INVALID_TENSOR_DIM", "shape": "ERROR_INVALID_TENSOR_DIM",
                    "type": "ERROR_INVALID_TENSOR_DTYPE", "dimensions": "ERROR_INVALID_TENSOR_DIM",
                    "spellings": "ERROR_INVALID_PARAM"})

    @rows("S21-002")
    def test_a_matrix_is_transposed_across_ranks(self):
        whole, results = np.arange(24).reshape(4, 6), {}

        def body(rank):
            operation = atb.AllToAllVV2(atb.AllToAllVV2Param(rank=rank, rankSize=2, commMode=atb.COMM_MULTI_THREAD,
                                                             commDomain="transpose"))
            mine = whole[2 * rank:2 * rank + 2]  # two rows of four; three columns are wanted
            results[rank] = operation.execute(mine.T.copy(), [6, 6], recvCounts=[6, 6]).reshape(2, 3, 2)

        self.run_threads(body)
        for rank in range(2):
            columns = np.concatenate([results[rank][j].T for j in range(2)])
            self.assertEqual(columns.tolist(), whole[:, 3 * rank:3 * rank + 3].tolist())

    def run_threads(self, body):
        errors = []

        def guarded(rank):
            try:
                body(rank)
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=guarded, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        self.assertEqual(errors, [])

    def test_a_pair_that_disagrees_is_named_on_every_rank(self):
        for text, seconds in run_ranks(mismatch):
            self.assertIn("rank 0 sends float64 × 3 to rank 1, which expects float64 × 1", text)
            self.assertLess(seconds, 1)

    def test_a_result_is_of_the_kind_that_came_in(self):
        for rank, result in enumerate(run_ranks(kinds, init=False)):
            self.assertEqual(result, ("Other", [[1.5 + rank, 2.5 + rank]], "ndarray", "uint8", [[1 + rank, 2 + rank]],
                                      [[4 * rank, 4 * rank + 1]]))

    def test_a_call_that_is_refused_on_one_rank_is_refused_on_all_and_the_next_one_works(self):
        pipes = [multiprocessing.Pipe() for _ in range(2)]
        processes = [start(refused_on_one_rank, rank, pipes[rank][1]) for rank in range(2)]
        finish(self, processes)
        others, own = pipes[0][0].recv(), pipes[1][0].recv()
        for text, code in zip(own, ("ERROR_INVALID_PARAM", "ERROR_INVALID_TENSOR_DTYPE", "ERROR_INVALID_IN_TENSOR_NUM")):
            self.assertTrue(text.startswith(code), text)
        for text, mine, word in zip(others, own, ("sendCounts[1] is -1", "'one'", "0 inputs")):
            code = mine.split(",")[0]
            self.assertTrue(text.startswith(f"{code}, 1: rank 1 was refused: ") and word in text, text)

    @rows("S21-009", "S21-011", "S21-015")
    def test_threads_are_ranks_in_several_domains(self):
        def body(rank):
            for domain in ("a", "b"):
                operation = atb.OperationTorch("AllToAllVV2Operation")
                operation.set_param(parameters(rank, 2, commMode=1, commDomain=domain))
                assert operation.group.size() == 2
                assert operation.execute([np.full(2, rank)])[0].tolist() == [[0, 1]]

        self.run_threads(body)

    @rows("S21-010")
    def test_a_rank_table_makes_a_domain(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            devices = [{"device_id": str(i), "device_ip": f"192.0.2.{i + 1}", "rank_id": str(i)} for i in range(2)]
            json.dump({"status": "completed", "version": "1.0", "server_count": "1",
                       "server_list": [{"server_id": "node_0", "device": devices}]}, file)
            file.flush()

            def body(rank):
                operation = atb.AllToAllVV2(atb.AllToAllVV2Param(rank=rank, rankTableFile=file.name))
                assert operation.execute(np.full(2, rank)).tolist() == [[0, 1]]

            self.run_threads(body)
            file.seek(0)
            file.truncate()
            file.write('{"server_list": [{"server_id": "a", "device": [{"device_id": 0, "rank_id": 1}]}]}')
            file.flush()
            with self.assertRaises(atb.Error) as raised:
                atb.AllToAllVV2(atb.AllToAllVV2Param(rank=0, rankTableFile=file.name))
            self.assertIn(f"{file.name}, /server_list/0/device/0/rank_id: rank 1", str(raised.exception))
            self.assertEqual(raised.exception.code, "ERROR_INVALID_PARAM")

    @rows("A-59", "S21-014", "S21-027")
    def test_nothing_of_a_job_that_was_killed_is_in_the_way_of_the_next(self):
        before = set(os.listdir("/dev/shm"))
        for _ in range(2):
            turns = multiprocessing.get_context("spawn").RawArray("i", 2)
            processes = [start(killed, rank, turns) for rank in range(2)]
            until = time.monotonic() + 60
            while min(turns) < 10 and time.monotonic() < until:
                time.sleep(0.01)
            self.assertGreaterEqual(min(turns), 10, "the job has not begun")
            for process in processes:
                os.kill(process.pid, signal.SIGKILL)
            for process in processes:
                process.join(30)
                self.assertEqual(process.exitcode, -signal.SIGKILL)
            finish(self, [start(killed, rank, None) for rank in range(2)])
        self.assertEqual({name for name in set(os.listdir("/dev/shm")) - before if "tutti" in name or "sem" in name}, set())


if __name__ == "__main__":
    main("python_" + pathlib.Path(__file__).stem)
