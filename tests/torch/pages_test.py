"""The PyTorch programs of the pages, and their commands that need the backend for PyTorch (tests/docs/running.py)."""

from __future__ import annotations

import os
import pathlib
import sys
import unittest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "docs"))
import running

BUILD = pathlib.Path(os.environ.get("TUTTI_BUILD_DIR", TESTS.parent / "build")).resolve()


class Pages(unittest.TestCase):
    def test_the_programs_and_commands_of_the_pages_do_what_the_pages_say(self):
        runner = running.Runner("torch", BUILD, BUILD / "docs-test/torch")
        runner.run_all()
        self.assertFalse(runner.report(), runner.failures)
        self.assertGreaterEqual(len(runner.forked), 4)


if __name__ == "__main__":
    unittest.main()
