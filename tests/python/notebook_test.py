"""Notebooks: the example runs in a kernel, and what a notebook can do wrong is an error that says what to do."""
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest
import unittest.mock
import warnings

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/support"))
import numpy as np
from rows import main

import tutti
import tutti.distributed as dist
import tutti.multiprocessing

KERNEL = all(importlib.util.find_spec(name) for name in ("nbclient", "nbformat", "ipykernel"))


def alone():
    dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)


class Notebooks(unittest.TestCase):
    @unittest.skipUnless(KERNEL, "nbclient, nbformat and ipykernel are not installed")
    def test_the_example_runs_in_a_kernel(self):
        import nbclient
        import nbformat

        notebook = nbformat.read(ROOT / "examples/python/notebook.ipynb", as_version=4)
        self.assertEqual([cell for cell in notebook.cells if cell.get("outputs")], [], "outputs do not belong into the file")
        # The kernel, and the files that the example makes, have a folder for temporary ones that goes with the test.
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.dict(os.environ, TMPDIR=folder):
            nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
        printed = "".join(output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", ()))
        self.assertIn("4 ranks found [ 2.  -3.   0.5]", printed)
        self.assertIn("call tutti.distributed.destroy_process_group() in a cell", printed)
        self.assertIn("2 ranks found", printed)
        warned = [output for cell in notebook.cells for output in cell.get("outputs", ()) if "Warning" in output.get("text", "")]
        self.assertEqual(warned, [], "the kernel's own threads are no reason to warn")

    def test_a_function_of_a_session_without_a_file_is_launched_by_forks_and_refused_by_spawn(self):
        program = """
import os, numpy as np, tutti, tutti.distributed as dist
def sum_of(value):
    dist.init_process_group()
    x = np.array([value])
    dist.all_reduce(x)
    assert x[0] == 3 * value
    os.write(1, b"sum %d\\n" % x[0])
tutti.notebook_launcher(sum_of, 3, 5)
for method in ("spawn", "forkserver"):
    try:
        tutti.multiprocessing.spawn(sum_of, nprocs=2, start_method=method)
    except dist.InvalidArgument as error:
        print(error)
"""
        done = subprocess.run([sys.executable], input=program, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("sum 15"), 3, done.stdout)
        self.assertEqual(done.stdout.count("tutti.notebook_launcher(fn, nprocs), which forks"), 2, done.stdout)

    def test_a_rank_that_fails_is_told_with_its_traceback(self):
        def fails(text):
            raise ValueError(text)

        with self.assertRaisesRegex(tutti.multiprocessing.ProcessRaisedException, "ValueError: of a cell"):
            tutti.notebook_launcher(fails, 2, "of a cell")

    def test_a_kernel_that_has_joined_a_group_is_refused_and_its_forks_are_told_why(self):
        alone()
        with self.assertRaisesRegex(dist.InvalidArgument, "this kernel has called init_process_group itself.*destroy_process_group"):
            tutti.notebook_launcher(alone, 2)
        with self.assertRaisesRegex(tutti.multiprocessing.ProcessRaisedException,
                                    f"a fork of process {os.getpid()}, which has called init_process_group.*call destroy_process_group"):
            tutti.multiprocessing.start_processes(lambda rank: alone(), nprocs=1, start_method="fork")
        dist.destroy_process_group()
        tutti.notebook_launcher(alone, 1)

    def test_a_cuda_device_that_the_kernel_has_used_is_named(self):
        class Torch:
            class cuda:
                is_initialized = staticmethod(lambda: True)

        with unittest.mock.patch.dict(sys.modules, torch=Torch), self.assertRaisesRegex(dist.InvalidArgument, "restart the kernel"):
            tutti.notebook_launcher(alone, 1)

    def test_threads_are_warned_of(self):
        done = threading.Event()
        other = threading.Thread(target=done.wait, name="loader")
        other.start()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            tutti.notebook_launcher(np.ones, 1, 3)
        done.set()
        other.join()
        self.assertEqual([w.category for w in caught if "loader" in str(w.message)], [RuntimeWarning])


if __name__ == "__main__":
    main("python_" + pathlib.Path(__file__).stem)
