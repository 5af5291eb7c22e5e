"""The Python programs of the pages, and their commands that need the package (tests/docs/running.py)."""
import os
import pathlib
import sys
import unittest

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS / "support"), str(TESTS / "docs")]
import running
from rows import main

BUILD = pathlib.Path(os.environ.get("PROGRAM_UNDER_TEST", TESTS.parent / "build/bin/tutti")).resolve().parent.parent


class Pages(unittest.TestCase):
    def test_the_programs_and_commands_of_the_pages_do_what_the_pages_say(self):
        runner = running.Runner("python", BUILD, BUILD / "docs-test/python")
        runner.run_all()
        self.assertFalse(runner.report(), runner.failures)
        self.assertGreaterEqual(len(runner.ran), 3)


if __name__ == "__main__":
    main("python_" + pathlib.Path(__file__).stem)
