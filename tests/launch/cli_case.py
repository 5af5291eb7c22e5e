"""What the tests of the command-line program share: starting it."""
import os
import pathlib
import subprocess
import sys
import unittest

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from ports import free_port  # noqa: E402,F401  (for the tests)
from rows import main, rows  # noqa: E402,F401

TUTTI, TOUR = sys.argv[1], sys.argv[2]


class CliCase(unittest.TestCase):
    def tutti(self, *arguments, env=None, timeout=60, **options):
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("TUTTI_", "RANK", "WORLD_SIZE"))}
        environment.update(env or {})
        return subprocess.run([TUTTI, *map(str, arguments)], capture_output=True, text=True, env=environment,
                              timeout=timeout, check=False, **options)

    def shell(self, ranks, script, *options, **more):
        return self.tutti("run", "-n", ranks, *options, "--", "sh", "-c", script, **more)
