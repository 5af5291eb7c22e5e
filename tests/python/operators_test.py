"""Operators of the caller: compiled functions, functions of two arrays, MINLOC and MAXLOC."""
import copy
import ctypes
import functools
import pathlib
import pickle
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import numpy as np
from ranks import run_ranks
from rows import main

import tutti.distributed as dist

AFFINE = np.dtype([("factor", np.uint32), ("shift", np.uint32)])
FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)


def then(a, b):
    both = np.empty_like(b)
    both["factor"] = a["factor"] * b["factor"]
    both["shift"] = a["shift"] * b["factor"] + b["shift"]
    return both


def maps_of(rank, count):
    return np.random.default_rng(rank).integers(0, 1 << 32, (count, 2), dtype=np.uint32).view(AFFINE).reshape(count)


def combined(end, count):
    return functools.reduce(then, (maps_of(rank, count) for rank in range(end)))


def structures(rank):
    op = dist.ReduceOp.of(then, AFFINE, commutative=False, name="then")
    size, wrong = dist.get_world_size(), []

    def check(what, got, wanted):
        if (got != wanted).any():
            wrong.append(what)

    for count in 1, 7, 60_000:
        x = maps_of(rank, count)
        dist.all_reduce(x, op)
        check(f"all_reduce of {count}", x, combined(size, count))
        x = maps_of(rank, count)
        dist.scan(x, op, async_op=True).wait()
        check(f"scan of {count}", x, combined(rank + 1, count))
        own, whole = np.empty(count, AFFINE), maps_of(rank, count * size)
        dist.reduce_scatter_tensor(own, whole, op)
        check(f"reduce_scatter of {count}", own, combined(size, count * size)[rank * count:(rank + 1) * count])
        own[:] = 0
        dist.reduce_scatter(own, list(whole.reshape(size, count)), op)
        check(f"a list of {count}", own, combined(size, count * size)[rank * count:(rank + 1) * count])
        plan = dist.plan.all_reduce(x, op)
        for _ in range(2):
            x[:] = maps_of(rank, count)
            plan.run()
        check(f"a plan of {count}", x, combined(size, count))
        grid = np.zeros((count, 2), AFFINE)
        grid[:, 0] = maps_of(rank, count)
        dist.all_reduce(grid[:, 0], op)
        check(f"a column of {count}", grid[:, 0], combined(size, count))
        wrong += [] if (grid[:, 1] == np.zeros(1, AFFINE)).all() else ["beside the column"]
    return wrong


def compiled(rank):
    """A function by its pointer, as C, C++ and numba give them."""
    def larger(inputs, inout, count, context):
        a = np.ctypeslib.as_array(ctypes.cast(inputs, ctypes.POINTER(ctypes.c_double)), (count,))
        b = np.ctypeslib.as_array(ctypes.cast(inout, ctypes.POINTER(ctypes.c_double)), (count,))
        np.maximum(a, b, out=b)

    function = FUNCTION(larger)

    class Compiled:  # as a numba.cfunc
        address = ctypes.cast(function, ctypes.c_void_p).value

    results = []
    for f in function, Compiled(), Compiled.address:
        x = np.full(5, rank, dtype=np.float64)
        dist.all_reduce(x, dist.ReduceOp.of(f, np.float64))
        results.append(x.tolist())
    return results


def places(rank):
    results = []
    for dtype in ("f8, i8", "f4, i4", "i4, i8", np.dtype([("loss", "u4"), ("step", "i4")]), np.dtype("f8, i4", align=True)):
        x = np.zeros(2, dtype)
        value, index = x.dtype.names
        x[value], x[index] = [rank, 1], [rank, 10 - rank]
        y = x.copy()
        dist.all_reduce(x, dist.ReduceOp.MINLOC)
        dist.all_reduce(y, dist.ReduceOp.MAXLOC)
        results.append([x.tolist(), y.tolist()])
    return results


def from_several_threads(rank):
    """Functions of Python's run in threads that hold a group's lock, while others hold the interpreter's."""
    op = dist.ReduceOp.of(np.minimum, np.int64)
    groups = [dist.new_group() for _ in range(3)]
    wrong = []

    def work(group):
        for i in range(20):
            values = np.full(1000 if i % 2 else 50_000, rank + i)
            work = dist.all_reduce(values, op, group=group, async_op=True)
            while not work.is_completed():
                pass
            if (values != i).any():
                wrong.append(values)

    threads = [threading.Thread(target=work, args=(group,)) for group in groups]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(wrong)


def moody(a, b):
    raise ValueError("not today")


def calls_tutti(a, b):
    dist.barrier()


def another_shape(a, b):
    return a[:1]


def another_type(a, b):
    return (a + b).astype(complex)


def error_of(rank, function):
    dist.init_process_group()
    op = dist.ReduceOp.of(function if rank == 1 else np.add, np.float64, name="named")
    try:
        for _ in range(1000):
            dist.all_reduce(np.ones(10), op)
    except dist.Aborted as error:
        return str(error)
    return "no error"


def refusals(rank):
    op = dist.ReduceOp.of(then, AFFINE)
    texts = []
    for call in (lambda: dist.all_reduce(np.zeros(3, "f8, i8"), op),
                 lambda: dist.all_reduce(np.zeros(3, np.float32), op),
                 lambda: dist.all_reduce(np.zeros(3, AFFINE)),
                 lambda: dist.all_reduce(np.zeros(3), dist.ReduceOp.MINLOC),
                 lambda: dist.all_reduce(np.zeros(3, "f8, f8"), dist.ReduceOp.MAXLOC),
                 lambda: dist.all_reduce([1], dist.ReduceOp.MAXLOC),
                 lambda: dist.ReduceOp.of(then, "no type"),
                 lambda: dist.ReduceOp.of(then, object),
                 lambda: dist.ReduceOp.of(7.0, np.float64),
                 lambda: dist.ReduceOp.of(0, np.float64),
                 lambda: dist.all_reduce(np.zeros(3), dist.ReduceOp(dist.ReduceOp.MINLOC.op))):
        try:
            call()
            texts.append("accepted")
        except (dist.InvalidArgument, TypeError) as error:
            texts.append(str(error))
    return texts


class Operators(unittest.TestCase):
    def test_structures_are_combined_in_the_order_of_ranks(self):
        for wrong in run_ranks(structures, size=3):
            self.assertEqual(wrong, [])

    def test_a_compiled_function_is_called_by_its_address(self):
        for results in run_ranks(compiled):
            self.assertEqual(results, [[1.0] * 5] * 3)

    def test_the_least_and_the_greatest_value_have_a_place(self):
        for results in run_ranks(places, size=3):
            self.assertEqual(results, [[[(0, 0), (1, 8)], [(2, 2), (1, 8)]]] * 5)

    def test_threads_may_look_at_works_meanwhile(self):
        self.assertEqual(run_ranks(from_several_threads), [0, 0])

    def test_what_one_raises_ends_the_operation_on_all_ranks(self):
        for function, words in ((moody, "has failed: ValueError: not today"),
                                (calls_tutti, "has failed: InvalidArgument: tutti was called by a function that an operation"),
                                (another_shape, "has failed: it has returned an array of shape (1,): expected (10,)"),
                                (another_type, "Cannot cast")):
            for error in run_ranks(error_of, args=(function,), init=False):
                self.assertIn(words, error)
                self.assertIn('operator "named" of 8-byte elements', error)

    def test_what_cannot_be_is_a_sentence(self):
        for texts in run_ranks(refusals, size=1):
            for text, part in zip(texts, (
                    "all_reduce: tensor has elements of 16 bytes: expected 8, the element size of op",
                    "and a tensor is of float32: expected the bytes of the elements, uint8",
                    "all_reduce: tensor has elements of format 'T{",
                    "all_reduce: op MINLOC: expected arrays of a structure of two fields", "got [('f0', '<f8'), ('f1', '<f8')]",
                    "got int", "ReduceOp.of: dtype: ", "ReduceOp.of: dtype holds Python's objects",
                    "ReduceOp.of: f is of type float: expected a function of two arrays", "ReduceOp.of: the address 0",
                    "op is of kind user, without a function"), strict=True):
                self.assertIn(part, text)

    def test_an_operator_can_be_copied_and_compared(self):
        op = dist.ReduceOp.of(np.add, np.float64, name="add")
        self.assertEqual(repr(op), '<ReduceOp.of: "add", 8-byte elements>')
        self.assertEqual((copy.copy(op), copy.deepcopy(op)), (op, op))
        self.assertNotEqual(op, dist.ReduceOp.of(np.add, np.float64, name="add"))
        with self.assertRaisesRegex(TypeError, "make it in each process"):
            pickle.dumps(op)
        for ready in dist.ReduceOp.MINLOC, dist.ReduceOp.MAXLOC:
            self.assertEqual(pickle.loads(pickle.dumps(ready)), ready)
        self.assertEqual(repr(dist.ReduceOp.MINLOC), "<ReduceOp.MINLOC: 9>")


if __name__ == "__main__":
    main("python_" + pathlib.Path(__file__).stem)
