"""Records as people read them: ends of programs that keep their groups, tags, lines of C++ source, stacks."""
import ctypes
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time

from cli_case import TUTTI, CliCase, main
from status_test import SECRET, free_ports

PROGRAM = pathlib.Path(TUTTI).resolve().parents[1] / "tests" / "recorded_program"
SOURCE = pathlib.Path(__file__).resolve().parent / "recorded_program.cpp"


def line_of(mark):
    return next(number for number, line in enumerate(SOURCE.read_text().splitlines(), 1) if f"mark: {mark}" in line)


def has_libdw():
    try:
        ctypes.CDLL("libdw.so.1")
    except OSError:
        return False
    return True


class Records(CliCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="records-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_program(self, ranks, what, **environment):
        return self.tutti("run", "-n", ranks, "--", PROGRAM, what, env=environment, cwd=self.folder)

    def place(self, mark, function):
        """A pattern of the place, as it is shown here."""
        if has_libdw():
            return rf"\S*recorded_program\.cpp:{line_of(mark)} in [^\n]*{function}"
        return r"recorded_program\+0x[0-9a-f]+"

    def test_a_program_that_returns_with_a_group_ends_with_its_own_status(self):
        for environment in ({}, {"TUTTI_TRACE_DIR": "d"}, {"TUTTI_TRACE_DIR": "d", "TUTTI_TRACE_FORMAT": "tutti"},
                            {"TUTTI_TRACE_DIR": "d", "TUTTI_TRACE_FORMAT": "torch"}, {"TUTTI_METRICS_FILE": "m"}):
            with self.subTest(environment):
                job = self.run_program(2, "returns", **environment)
                self.assertEqual(job.returncode, 4, job.stderr)
                self.assertNotIn("signal", job.stderr)
        self.assertEqual(len(list((self.folder / "d").glob("flight_*_rank_*"))), 2)

    def test_a_survivor_ends_with_its_own_status(self):
        for trace_format in ("tutti", "torch"):
            with self.subTest(trace_format):
                job = self.shell(3, f'"{PROGRAM}" survives; echo "rank $RANK: $?"; exit 0', cwd=self.folder,
                                 env={"TUTTI_TRACE_DIR": "d", "TUTTI_TRACE_FORMAT": trace_format})
                self.assertEqual(sorted(re.findall(r"rank \d: \d+", job.stdout)), ["rank 0: 137", "rank 1: 3", "rank 2: 3"],
                                 job.stdout + job.stderr)

    def test_a_tag_that_does_not_match_is_shown(self):
        job = self.run_program(2, "tags", TUTTI_TRACE_DIR="d")
        receive = "receive of float32 × 100 from rank 0 with tag 2"
        here = "a message with tag 1 from rank 0 is here"
        verdicts = [line for line in job.stdout.splitlines() if receive in line]
        self.assertTrue(verdicts, job.stdout + job.stderr)
        self.assertTrue(all(line.endswith(here) for line in verdicts), job.stdout)
        self.assertRegex(verdicts[0], "called at " + self.place("receive", "mix_up_tags"))
        trace = self.tutti("trace", self.folder / "d").stdout
        self.assertRegex(trace, rf"(is|failed) in {receive}\n")
        self.assertIn(f"{here}, not received", trace)

    def test_groups_and_meshes_say_where_they_were_made(self):
        job = self.run_program(2, "groups")
        self.assertEqual(job.returncode, 0, job.stderr)
        dumps = [file.read_text() for file in self.folder.glob("*.rank-0.dump")]
        self.assertEqual(len(dumps), 3)
        for mark, function in (("world", "main"), ("group", "make_groups"), ("mesh", "make_groups")):
            self.assertTrue(any(re.search(r'"made_at":"' + self.place(mark, function), dump.splitlines()[0]) for dump in dumps),
                            (mark, dumps))
        world = next(dump for dump in dumps if dump.startswith('{"group":"world"'))
        self.assertRegex(world, r'"site":"' + self.place("group", "make_groups"), "the making is an operation, too")
        self.assertRegex(self.tutti("trace", self.folder).stdout, 'group "world", 2 ranks\n  made at ' + self.place("world", "main"))

    def test_the_stack_of_a_rank_that_hangs_is_shown(self):
        port = free_ports(2)
        pages = {"TUTTI_STATUS_PORT": str(port), "TUTTI_JOB_SECRET": SECRET}
        names = {k: v for k, v in os.environ.items() if not k.startswith(("TUTTI_", "RANK", "WORLD_SIZE"))}
        job = subprocess.Popen([TUTTI, "run", "-n", "2", "--", PROGRAM, "hangs"], env=names | pages)
        self.addCleanup(job.wait)
        self.addCleanup(job.send_signal, signal.SIGTERM)
        end, status = time.monotonic() + 60, None
        while time.monotonic() < end and (status is None or "rank 0 waits for rank 1" not in status.stdout):
            time.sleep(0.1)
            status = self.tutti("status", "--stacks", env=pages)
        self.assertEqual(status.returncode, 0, status.stderr)
        self.assertRegex(status.stdout, "called at " + self.place("step", "train_step"))
        by_rank = re.split(r"(?m)^rank (?=\d \()", status.stdout)
        self.assertEqual([part[:3] for part in by_rank[1:]], ["0 (", "1 ("], status.stdout)
        self.assertRegex(by_rank[1], r"thread \d+ \(recorded_progra\)")
        self.assertRegex(by_rank[1], "#[0-9]+ " + self.place("step", "train_step"))
        self.assertRegex(by_rank[2], "#[0-9]+ " + self.place("hang", "hang_in_here"))
        # A look changes nothing: the same is there again.
        again = self.tutti("status", "stack", "--rank", 1, env=pages).stdout
        self.assertRegex(again, r"^rank 1 \(")
        self.assertRegex(again, "#[0-9]+ " + self.place("hang", "hang_in_here"))
        self.assertIn("status: --stacks with the page metrics: expected it with status alone",
                      self.tutti("status", "metrics", "--stacks", env=pages).stderr)


if __name__ == "__main__":
    main("cli_records_test")
