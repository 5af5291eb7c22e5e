"""Recording the inventory's rows of tests in Python: a row counts when a test that is marked with it passed. Skipped tests
are listed at the end, in lines that tools/test adds to its sum."""
import os
import pathlib
import sys
import unittest


def rows(*ids):
    """Marks a test as one that shows these rows."""
    def mark(function):
        function.rows = ids
        return function
    return mark


class Recorder(unittest.TextTestResult):
    shown = []
    left_out = []

    def addSuccess(self, test):
        super().addSuccess(test)
        name = getattr(test, "_testMethodName")
        self.shown += [(row, name) for row in getattr(getattr(test, name), "rows", ())]

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.left_out.append((str(test).split()[0], reason))


def main(name):
    program = unittest.main(module="__main__", argv=[sys.argv[0]], exit=False, verbosity=1,
                            testRunner=unittest.TextTestRunner(resultclass=Recorder, verbosity=1))
    folder = os.environ.get("TUTTI_SPEC_DIR")
    if folder:
        pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
        lines = [f"{row}\t{name}:{test}\n" for row, test in Recorder.shown]
        (pathlib.Path(folder) / f"{name}.rows").write_text("".join(lines))
    for reason in dict.fromkeys(reason for _, reason in Recorder.left_out):
        tests = [test for test, why in Recorder.left_out if why == reason]
        more = f" and {len(tests) - 1} more" if len(tests) > 1 else ""
        print(f"left out: {name}, {tests[0]}{more}: {reason}", flush=True)
    sys.exit(0 if program.result.wasSuccessful() else 1)
