"""What the tests of the command-line program share: starting it, and recording the inventory's rows of passing tests."""
import os
import pathlib
import subprocess
import sys
import unittest

TUTTI, TOUR = sys.argv[1], sys.argv[2]


def rows(*ids):
    """Marks a test as one that shows these rows."""
    def mark(function):
        function.rows = ids
        return function
    return mark


class CliCase(unittest.TestCase):
    def tutti(self, *arguments, env=None, timeout=60, **options):
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("TUTTI_", "RANK", "WORLD_SIZE"))}
        environment.update(env or {})
        return subprocess.run([TUTTI, *map(str, arguments)], capture_output=True, text=True, env=environment,
                              timeout=timeout, check=False, **options)

    def shell(self, ranks, script, *options, **more):
        return self.tutti("run", "-n", ranks, *options, "--", "sh", "-c", script, **more)


class Recorder(unittest.TextTestResult):
    shown = []

    def addSuccess(self, test):
        super().addSuccess(test)
        name = getattr(test, "_testMethodName")
        self.shown += [(row, name) for row in getattr(getattr(test, name), "rows", ())]


def main(name):
    program = unittest.main(module="__main__", argv=[sys.argv[0]], exit=False, verbosity=1,
                            testRunner=unittest.TextTestRunner(resultclass=Recorder, verbosity=1))
    folder = os.environ.get("TUTTI_SPEC_DIR")
    if folder:
        pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
        lines = [f"{row}\t{name}:{test}\n" for row, test in Recorder.shown]
        (pathlib.Path(folder) / f"{name}.rows").write_text("".join(lines))
    sys.exit(0 if program.result.wasSuccessful() else 1)
