"""Every use of gloo becomes tutti's in a program that knows nothing of it, also in its spawned children."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = str(pathlib.Path(__file__).with_name("replaced_program.py"))


class Replaced(unittest.TestCase):
    def run_program(self, *command: str, **environment: str) -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, *command, PROGRAM, folder], capture_output=True, text=True, timeout=90,
                                  env=os.environ | {"OMP_NUM_THREADS": "1"} | environment)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.served = "(2 ranks) in the place of gloo" in done.stderr
        self.assertNotIn("unknown environment variable TUTTI_REPLACE_GLOO", done.stderr)
        return done.stdout.split("\n")[:2]

    def test_by_the_command(self) -> None:
        uses, arguments = self.run_program("-m", "tutti.torch", "--replace-gloo")
        self.assertEqual(uses, "tutti tutti tutti tutti tutti")
        self.assertEqual(arguments, "arguments 2 replaced_program.py")

        self.assertFalse(self.served, "a warning of what the user has asked for")

    def test_by_the_environment(self) -> None:
        self.assertEqual(self.run_program(TUTTI_REPLACE_GLOO="1", TORCH_CPP_LOG_LEVEL="INFO")[0],
                         "tutti tutti tutti tutti tutti")
        self.assertTrue(self.served, "the log does not say who serves gloo's groups")

    @unittest.skipUnless(os.environ.get("TUTTI_TORCH_TESTS") == "all", "takes long: TUTTI_TORCH_TESTS=all runs it")
    def test_without_either_gloo_is_gloo(self) -> None:
        self.assertEqual(self.run_program(TUTTI_REPLACE_GLOO="0")[0], "gloo gloo gloo gloo gloo")


if __name__ == "__main__":
    unittest.main()
