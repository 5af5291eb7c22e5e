"""What people who know MPI, mpi4py or PyTorch get wrong most often: each row has the call with its wrong value, and what
the error says: the call, the argument, the value, and what was expected. tests/conformance/misuses_test.cpp has the same
for C++."""
import datetime
import os
import pathlib
import socket
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import numpy as np
from ranks import run_ranks
from rows import main

import tutti
import tutti.distributed as dist


def told(rows, kind=dist.InvalidArgument):
    """The rows whose calls say something else than they should; [] is what a test wants."""
    wrong = []
    for what, call, message in rows:
        try:
            wrong.append(f"{what}: no error, but {call()!r}")
        except kind as error:
            if message not in str(error):
                wrong.append(f"{what}: {error}\n    expected: {message}")
            if isinstance(error, dist.DistError) and not error.hint:
                wrong.append(f"{what}: there is no hint in {error}")
        except Exception as error:
            wrong.append(f"{what}: {type(error).__name__}: {error}\n    expected: {message}")
    return wrong


def floats(count=4):
    return np.zeros(count, dtype=np.float32)


class Unsendable:
    pass


def one_rank(rank):
    other = 1 - rank
    alone = [dist.new_group([0]), dist.new_group([1])]
    mine, theirs = alone[rank], alone[other]
    frozen = floats()
    frozen.flags.writeable = False
    wrong = told([
        ("a root that is no rank", lambda: dist.broadcast(floats(), src=2), "broadcast: src 2: expected 0 to 1"),
        ("MPI_PROC_NULL as root", lambda: dist.reduce(floats(), dst=-1), "reduce: dst -1: expected 0 to 1"),
        ("no root", lambda: dist.broadcast(floats()), "broadcast: no src is given: expected src or group_src"),
        ("two roots", lambda: dist.broadcast(floats(), src=0, group_src=0),
         "broadcast: src and group_src are both given: expected one"),
        ("a root as text", lambda: dist.broadcast(floats(), src="0"),
         "broadcast: src is of type str: expected a rank, an integer"),
        ("a rank of the group for a global rank", lambda: dist.broadcast(floats(), src=other, group=mine),
         f"broadcast: src {other} is not in group \"{mine.group_name}\": expected one of its global ranks {rank}"),
        ("a message to itself", lambda: dist.send(floats(), dst=rank),
         f"send: rank {rank} sends to itself: expected another rank (isend can)"),
        ("MPI_ANY_TAG", lambda: dist.recv(floats(), src=other, tag=-1), "recv: tag -1: expected zero or more"),
        ("a peer that is no rank", lambda: dist.send(floats(), dst=7), "send: dst 7: expected 0 to 1"),
        ("bits of floats", lambda: dist.all_reduce(floats(), dist.ReduceOp.BAND),
         "all_reduce: op band is not defined for float32: expected one of sum, avg, product, min, max, premul_sum"),
        ("the mean of bools", lambda: dist.all_reduce(np.zeros(2, dtype=bool), dist.ReduceOp.AVG),
         "all_reduce: op avg is not defined for bool: expected one of sum, product, min, max, band, bor, bxor"),
        ("NumPy's dtype for an operator", lambda: dist.all_reduce(floats(), op="sum"),
         "all_reduce: op is of type str: expected a ReduceOp, such as ReduceOp.SUM"),
        ("async_op in the place of op", lambda: dist.all_reduce(floats(), True),
         "all_reduce: op is of type bool: expected a ReduceOp, such as ReduceOp.SUM"),
        ("the number of a group", lambda: dist.all_reduce(floats(), dist.ReduceOp.SUM, 1),
         "all_reduce: group is of type int: expected a ProcessGroup, a DeviceMesh of one dimension, or None"),
        ("a list of numbers", lambda: dist.all_reduce([1.0, 2.0]),
         "all_reduce: tensor is of type list: expected a NumPy array, as numpy.array makes of lists and numbers"),
        ("a number", lambda: dist.all_reduce(3.0), "all_reduce: tensor is of type float: expected a NumPy array"),
        ("an array of objects", lambda: dist.all_reduce(np.array([Unsendable()])),
         "all_reduce: tensor has elements of format 'O': expected numbers of this machine's byte order"),
        ("a frozen array", lambda: dist.all_reduce(frozen),
         "all_reduce: tensor is read-only: expected an array that can be written, such as its copy()"),
        ("an output without room", lambda: dist.all_gather_into_tensor(floats(), floats()),
         "all_gather_into_tensor: output has 4 elements: expected 8, for each of 2 ranks as many as input has, 4"),
        ("an output of another type", lambda: dist.all_gather_into_tensor(np.zeros(8), floats()),
         "all_gather_into_tensor: output is float64[8]: expected float32, as the other tensor"),
        ("a short list", lambda: dist.all_gather([floats()], floats()),
         "all_gather: output_list has 1 tensors: expected 2, one per rank"),
        ("one array for a list", lambda: dist.all_gather(floats(8), floats()),
         "all_gather: tensor_list is of type ndarray: expected a list of arrays; all_gather_into_tensor"),
        ("a list off the root", lambda: dist.gather(floats(), [floats(), floats()], dst=other),
         f"gather: gather_list is given on rank {rank}: expected it only on the root, rank {other}"),
        ("no list on the root", lambda: dist.scatter(floats(), src=rank),
         "scatter: scatter_list has 0 tensors: expected 2, one per rank"),
        ("splits that do not add up", lambda: dist.all_to_all_single(floats(), floats(), input_split_sizes=[1, 2]),
         "all_to_all_single: input_split_sizes add up to 3: expected 4, the size of dimension 0"),
        ("too few splits", lambda: dist.all_to_all_single(floats(), floats(), output_split_sizes=[4]),
         "all_to_all_single: output_split_sizes has 1 entries: expected 2, one per rank"),
        ("splits that are no integers", lambda: dist.all_to_all_single(floats(), floats(), input_split_sizes=[2.5, 1.5]),
         "all_to_all_single: input_split_sizes[0] is of type float: expected an integer"),
        ("rows that ranks cannot share", lambda: dist.reduce_scatter_tensor(floats(2), floats(5)),
         "reduce_scatter_tensor: input has 5 elements: expected 4, for each of 2 ranks as many as output has, 2"),
        ("seconds as a number", lambda: dist.new_group([0, 1], timeout=30),
         "new_group: timeout is of type int: expected a datetime.timedelta, such as timedelta(seconds=30)"),
        ("a time limit below zero", lambda: dist.new_group([0, 1], timeout=datetime.timedelta(seconds=-1)),
         "new_group: timeout is -1 s: expected zero or more"),
        ("a group with a rank that is none", lambda: dist.new_group([0, 5]),
         "new_group: ranks has 5: expected global ranks, 0 to 1"),
        ("a group with a rank twice", lambda: dist.new_group([0, 0]), "new_group: ranks has 0 twice: expected each rank once"),
        ("a group of one number", lambda: dist.new_group(1), "new_group: ranks is of type int: expected a list of ranks"),
        ("init twice", lambda: dist.init_process_group(),
         "init_process_group: there is a default group already; call destroy_process_group first"),
        ("an object that cannot travel", lambda: dist.all_gather_object([None, None], Unsendable()),
         "expected one that travels without pickle (see tutti.objects), such as a data class, or allow_pickle=True"),
        ("a short list of objects", lambda: dist.all_gather_object([None], 1),
         "all_gather_object: object_list has 1 entries: expected 2, one per rank"),
        ("an operation of P2POp that is none", lambda: dist.P2POp(dist.send, floats(), other),
         "expected tutti.distributed.isend or irecv"),
        ("the rank of a rank elsewhere", lambda: dist.get_group_rank(mine, other),
         f"get_group_rank: global_rank {other} is not in group \"{mine.group_name}\": expected one of its global ranks {rank}"),
    ])
    wrong += told([
        ("mpi4py's name", lambda: dist.Allreduce, "tutti.distributed has no Allreduce: expected all_reduce"),
        ("mpi4py's name for objects", lambda: dist.bcast, "tutti.distributed has no bcast: expected broadcast_object_list"),
        ("MPI_IN_PLACE", lambda: dist.IN_PLACE, "tutti.distributed has no IN_PLACE: expected all_reduce, which works in place"),
        ("MPI_COMM_WORLD", lambda: dist.COMM_WORLD, "tutti.distributed has no COMM_WORLD: expected group.WORLD"),
        ("a communicator's method", lambda: dist.group.WORLD.Get_rank(),
         "ProcessGroup has no Get_rank: expected tutti.distributed.get_rank, with group="),
        ("a function of the other module", lambda: tutti.all_reduce,
         "module tutti has no attribute all_reduce: expected tutti.distributed.all_reduce"),
        ("a name of nobody", lambda: dist.all_redcue, "tutti.distributed has no all_redcue"),
    ], AttributeError)

    work = dist.all_reduce(floats(), async_op=True)  # the array has no other owner, and stays until the call is complete
    if not (work.wait() and work.wait()):
        wrong.append("a second wait does not return")
    gone = dist.new_group([0, 1])
    dist.destroy_process_group(gone)
    wrong += told([("a group after its end", lambda: dist.all_reduce(floats(), group=gone), "all_reduce")], dist.DistError)
    dist.destroy_process_group()
    wrong += told([
        ("a collective after the end", lambda: dist.all_reduce(floats()),
         "all_reduce: there is no default group; call init_process_group first"),
        ("the end twice", dist.destroy_process_group,
         "destroy_process_group: there is no default group; call init_process_group first"),
    ])
    return wrong


def outside(rank):
    """torch.distributed's behaviour: a rank outside of a group does nothing, and is warned."""
    import warnings

    group = dist.new_group([0])
    if rank == 0:
        return []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dist.all_reduce(floats(), group=group)
    return [str(warning.message) for warning in caught]


def mismatch(rank, row):
    call = {
        "type": lambda: dist.all_reduce(np.zeros(4, dtype=np.float32 if rank == 0 else np.float64)),
        "shape": lambda: dist.all_reduce(floats(4 + 4 * rank)),
        "order": lambda: (dist.barrier(), dist.all_reduce(floats())) if rank else (dist.all_reduce(floats()), dist.barrier()),
        "root": lambda: dist.broadcast(np.zeros(400_000), src=rank),
        "op": lambda: dist.all_reduce(floats(), dist.ReduceOp.MAX if rank else dist.ReduceOp.SUM),
        "group": lambda: dist.new_group([0, 1] if rank else [1]),
    }[row]
    try:
        call()
    except dist.CollectiveMismatch as error:
        return str(error), error.hint, getattr(error, "__notes__", None)
    return "no error", "", None


def a_barrier_alone(rank):
    if rank == 1:
        return ""
    try:
        dist.monitored_barrier(timeout=datetime.timedelta(seconds=1))
    except dist.DistError as error:
        return str(error)


def env(rank, changes, call):
    for name, value in changes.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    return told([call], dist.DistError)


class Misuses(unittest.TestCase):
    def test_of_one_rank_are_told_before_anything_is_sent(self):
        for wrong in run_ranks(one_rank):
            self.assertEqual(wrong, [])

    def test_of_a_rank_outside_of_the_group_are_warned_of(self):
        self.assertEqual(run_ranks(outside)[1],
                         ["Running all_reduce on global rank 1 which does not belong to the given group."])

    def test_between_ranks_show_both_sides_on_all_of_them(self):
        for row, both in {"type": ("float32 × 4", "float64 × 4"), "shape": ("float32 × 4", "float32 × 8"),
                          "order": ("all_reduce", "barrier"), "root": ("root 0", "root 1"), "op": ("sum", "max"),
                          "group": ("ranks [1]", "ranks [0, 1]")}.items():
            with self.subTest(row):
                for text, hint, notes in run_ranks(mismatch, args=(row,)):
                    for part in both:
                        self.assertIn(part, text)
                    self.assertIn("call the same collectives in the same order", hint)
                    if sys.version_info >= (3, 11):
                        self.assertEqual(notes, ["What to do: " + hint])

    def test_a_barrier_of_some_ranks_names_the_others(self):
        self.assertIn("Rank 1 failed to pass monitoredBarrier", run_ranks(a_barrier_alone)[0])

    def test_of_the_environment_are_told(self):
        init = dist.init_process_group

        def within(**limit):
            return lambda: init(timeout=datetime.timedelta(**limit))

        with socket.socket() as server:
            server.bind(("127.0.0.1", 0))
            server.listen()
            taken = str(server.getsockname()[1])
            rows = [
                ({"WORLD_SIZE": None}, init, "env://: WORLD_SIZE is not set, while RANK is set; set it in each process, or start"),
                ({"RANK": None}, init, "env://: RANK is not set, while WORLD_SIZE is set; set it in each process, or start"),
                ({"RANK": "one"}, init, "environment variable RANK=one: expected an integer"),
                ({"RANK": "1"}, init, "init_process_group: rank 1: expected 0 to 0; set RANK and WORLD_SIZE, or start"),
                ({"WORLD_SIZE": "0"}, init, "init_process_group: world_size 0: expected at least 1"),
                ({"MASTER_ADDR": None, "RANK": "1", "WORLD_SIZE": "2"}, init,
                 "env://: MASTER_ADDR is not set; set it to the address of rank 0's machine"),
                ({"MASTER_PORT": None}, init, "env://: MASTER_PORT is not set; set it to a free port of rank 0's machine"),
                ({"MASTER_PORT": "seventy"}, init, "env://: MASTER_PORT: port \"seventy\": expected 1 to 65535"),
                ({"MASTER_PORT": taken}, init,
                 f"cannot listen on 127.0.0.1:{taken}: Address already in use: another job may be using it; choose another port"),
                ({"MASTER_ADDR": "10.255.255.1", "TUTTI_JOB_SECRET": None, "TUTTI_INSECURE": None}, within(seconds=2),
                 "10.255.255.1 is not a loopback address, and a job on several hosts needs a secret: set TUTTI_JOB_SECRET"),
                ({"RANK": "1", "WORLD_SIZE": "2"}, within(seconds=1), "is its master running?"),
                ({"WORLD_SIZE": "2"}, within(seconds=1), "init of 2 ranks: 1 of them arrived in time; missing: rank 1"),
                ({}, lambda: init(timeout=30), "init_process_group: timeout is of type int: expected a datetime.timedelta"),
                ({}, lambda: init("mpich"), "init_process_group: backend \"mpich\": expected one of native"),
                ({}, lambda: init(init_method="mpi://", rank=0, world_size=1),
                 "init_method \"mpi://\": expected env://, tcp://host:port or file:///path"),
            ]
            for changes, call, message in rows:
                with self.subTest(message):
                    self.assertEqual(run_ranks(env, size=1, args=(changes, (changes, call, message)), init=False), [[]])


if __name__ == "__main__":
    main("python_" + pathlib.Path(__file__).stem)
