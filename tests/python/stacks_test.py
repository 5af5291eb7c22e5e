"""tutti status --stacks of Python programs: the line in which a rank hangs, also while it holds the interpreter's lock."""
import contextlib
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from ranks import free_port
from rows import main

# A read goes on after a signal, which would wake a sleep: then the second of two looks would find the loop around it.
PROGRAM = """\
import ctypes, os, sys, time
import numpy as np
import tutti.distributed as dist
dist.init_process_group()
def hang_in_here(holds_the_lock):
    while True:
        if holds_the_lock:
            ctypes.PyDLL(None).read(os.pipe()[0], ctypes.create_string_buffer(1), 1)
        else:
            time.sleep(60)
if dist.get_rank() == 1:
    hang_in_here(sys.argv[1] == "holds")
dist.all_reduce(np.ones(3))
"""


def two_free_ports():
    """The first of two in a row that nobody has now."""
    while True:
        first = free_port()
        with socket.socket() as second:
            with contextlib.suppress(OSError):
                second.bind(("127.0.0.1", first + 1))
                return first


@unittest.skipUnless("PROGRAM_UNDER_TEST" in os.environ, "PROGRAM_UNDER_TEST names no tutti")
class Stacks(unittest.TestCase):
    def stacks_of(self, how):
        folder = tempfile.TemporaryDirectory(prefix="stacks-test-")
        self.addCleanup(folder.cleanup)
        program = pathlib.Path(folder.name) / "train.py"
        program.write_text(PROGRAM)
        pages = {"TUTTI_STATUS_PORT": str(two_free_ports()), "TUTTI_JOB_SECRET": "open sesame, and close again"}
        names = {k: v for k, v in os.environ.items() if not k.startswith(("TUTTI_", "RANK", "WORLD_SIZE"))} | pages
        tutti = os.environ["PROGRAM_UNDER_TEST"]
        job = subprocess.Popen([tutti, "run", "-n", "2", "--", sys.executable, str(program), how], env=names)
        self.addCleanup(job.wait)
        self.addCleanup(job.send_signal, signal.SIGTERM)
        end, status = time.monotonic() + 60, None
        while time.monotonic() < end and (status is None or "rank 0 waits for rank 1" not in status.stdout):
            time.sleep(0.2)
            status = subprocess.run([tutti, "status", "--stacks"], env=names, capture_output=True, text=True, timeout=30,
                                    check=False)
        return status.stdout, re.split(r"(?m)^rank (?=\d \()", status.stdout)[1:]

    def test_the_line_in_which_a_rank_hangs_is_shown(self):
        line = PROGRAM.splitlines().index("            time.sleep(60)") + 1
        text, by_rank = self.stacks_of("sleeps")
        self.assertEqual(len(by_rank), 2, text)
        self.assertRegex(by_rank[1], rf'File "[^"]*train\.py", line {line} in hang_in_here', text)
        self.assertRegex(by_rank[1], r"#0 ", "its stack in C++")
        self.assertRegex(by_rank[0], rf'train\.py", line {len(PROGRAM.splitlines())} in <module>', text)

    def test_it_is_shown_while_the_rank_holds_the_interpreter_s_lock(self):
        line = PROGRAM.splitlines().index("            ctypes.PyDLL(None).read(os.pipe()[0], ctypes.create_string_buffer(1), 1)") + 1
        text, by_rank = self.stacks_of("holds")
        self.assertEqual(len(by_rank), 2, text)
        self.assertRegex(by_rank[1], rf'File "[^"]*train\.py", line {line} in hang_in_here', text)
        self.assertRegex(by_rank[1], r"#\d+ (__)?(libc_)?read\b", text)


if __name__ == "__main__":
    main("stacks_test")
