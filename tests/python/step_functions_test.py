"""Functions of Python's as steps of a schedule that a user wrote down."""
import os
import pathlib
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import numpy as np
from ranks import run_ranks
from rows import main

import tutti.distributed as dist

CODES = str(pathlib.Path(__file__).resolve().parents[2] / "examples/schedules/my_codes")


def encode(target, sources):
    (values,) = sources
    if values.max() > 255:
        raise ValueError("no code for a number like this")
    target[:] = values + 0.5


def sum_of_codes(target, sources):
    assert not sources[0].flags.writeable and target.dtype == np.float32 and sources[0].dtype == np.uint8
    target[:] = sources[0].astype(np.float32) + sources[1]


def begin(rank, first=encode):
    if rank == 0:
        os.environ["TUTTI_SCHEDULE"] = CODES
    dist.register_step_function("encode", first)
    dist.register_step_function("sum_of_codes", sum_of_codes)
    dist.init_process_group()


def sums(rank):
    begin(rank)
    results = []
    for count in 1, 1000, 100000:
        values = np.full(count, 3.3 if rank == 0 else 249.9, dtype=np.float32)
        dist.all_reduce(values)
        results.append(bool((values == 253).all()))
    largest = np.full(4, rank + 0.25, dtype=np.float32)
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    dist.destroy_process_group()
    return results, largest.tolist()


def from_several_threads(rank):
    """Functions that want the interpreter's lock, while threads that have it look at works."""
    begin(rank)
    groups = [dist.new_group() for _ in range(3)]
    wrong = []

    def work(group):
        for _ in range(30):
            values = np.full(1000, rank + 1, dtype=np.float32)
            work = dist.all_reduce(values, group=group, async_op=True)
            while not work.is_completed():
                pass
            if (values != 3).any():
                wrong.append(values)

    threads = [threading.Thread(target=work, args=(group,)) for group in groups]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    dist.destroy_process_group()
    return len(wrong)


def error_of(rank, function):
    begin(rank, function)
    try:
        dist.all_reduce(np.full(10, 300 if rank == 1 else 1, dtype=np.float32))
    except dist.Aborted as error:
        return str(error)
    return "no error"


def calls_tutti(target, sources):
    dist.barrier()


def gives_its_result_back(target, sources):
    return sources[0].astype(np.uint8)


class StepFunctions(unittest.TestCase):
    def test_they_make_and_read_the_codes_of_messages(self):
        for right, largest in run_ranks(sums, init=False):
            self.assertEqual(right, [True, True, True])
            self.assertEqual(largest, [1.25] * 4, "another operation takes another algorithm")

    def test_threads_may_look_at_works_meanwhile(self):
        self.assertEqual(run_ranks(from_several_threads, init=False), [0, 0])

    def test_what_one_raises_ends_the_operation_on_all_ranks(self):
        for function, words in ((encode, "has failed: ValueError: no code for a number like this"),
                                (calls_tutti, "has failed: InvalidArgument: tutti was called by a function that an operation"),
                                (gives_its_result_back, "has failed: it has returned ndarray: expected None")):
            for error in run_ranks(error_of, args=(function,), init=False):
                self.assertIn(words, error)
                self.assertIn('the function "encode", which algorithm my_codes calls', error)

    def test_a_name_is_one_word_and_a_function_can_be_called(self):
        for name, function in (("two words", encode), ("", encode), (3, encode), ("fine", None)):
            with self.assertRaises(dist.InvalidArgument):
                dist.register_step_function(name, function)
        dist.register_step_function("taken", encode)
        with self.assertRaisesRegex(dist.InvalidArgument, '"taken" is taken'):
            dist.register_step_function("taken", encode)


if __name__ == "__main__":
    main("python_" + pathlib.Path(__file__).stem)
