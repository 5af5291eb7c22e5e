"""The docstrings: those of functions say what goes in and what comes out, and their examples run, in a world of one rank."""
import doctest
import importlib
import inspect
import pathlib
import sys
import tempfile
import unittest
from datetime import timedelta
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import numpy as np
from rows import main

import tutti
import tutti.distributed as dist

MODULES = [
    "tutti.arrays", "tutti.distributed.backends", "tutti.distributed.coalescing", "tutti.distributed.debug",
    "tutti.distributed.device_mesh", "tutti.distributed.exchanges", "tutti.distributed.gathers", "tutti.distributed.groups",
    "tutti.distributed.neighbors", "tutti.distributed.object_collectives", "tutti.distributed.plan", "tutti.distributed.point_to_point",
    "tutti.distributed.quantized", "tutti.distributed.reductions", "tutti.distributed.step_functions",
    "tutti.distributed.trace", "tutti.futures", "tutti._captured", "tutti.objects", "tutti._core",
]


def documented():
    """(module, name, function or class) of what the modules have to offer."""
    for name in MODULES:
        module = importlib.import_module(name)
        for member in getattr(module, "__all__", ()):
            value = getattr(module, member)
            if inspect.isroutine(value) or inspect.isclass(value):
                yield name, member, value


class Docstrings(unittest.TestCase):
    def setUp(self):
        dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
        self.addCleanup(dist.destroy_process_group)

    def test_examples_run(self):
        folder = tempfile.TemporaryDirectory()  # of the files that examples make
        self.addCleanup(folder.cleanup)
        patch = mock.patch.object(tempfile, "tempdir", folder.name)
        patch.start()
        self.addCleanup(patch.stop)
        finder, runner = doctest.DocTestFinder(exclude_empty=True), doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
        ran = set()
        for name in MODULES:
            module = importlib.import_module(name)
            for test in finder.find(module, name, globs={"np": np, "dist": dist, "tutti": tutti, "timedelta": timedelta}):
                if test.examples:
                    said = []
                    self.assertEqual(runner.run(test, out=said.append, clear_globs=False).failed, 0, "".join(said))
                    ran.add(test.name)
        self.assertGreater(len(ran), 60)

    def test_each_function_has_an_example_and_says_what_it_takes(self):
        for module, name, value in documented():
            if not inspect.isfunction(value) or name in ("describe", "rebuild"):  # which other code calls
                continue
            with self.subTest(function=f"{module}.{name}"):
                text = inspect.getdoc(value) or ""
                self.assertIn("Example:", text)
                if module == "tutti.distributed.plan":  # its functions take what the plain ones take
                    self.assertIn(f"tutti.distributed.{value.__name__}", text)  # not its former name
                    continue
                for parameter in inspect.signature(value).parameters:
                    self.assertRegex(text, rf"(?m)^    ({parameter}|.*, {parameter}(, .*)?): ", "is not among its Args")

    def test_everything_has_a_docstring(self):
        for module, name, value in documented():
            self.assertTrue(inspect.getdoc(value), f"{module}.{name}")


if __name__ == "__main__":
    main("python_" + pathlib.Path(__file__).stem)
