"""breakpoint(): pdb on one rank, on the terminal, while the others wait."""
import os
import pathlib
import pty
import select
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from ranks import free_port, run_ranks
from rows import main, rows

import tutti.distributed as dist

PROGRAM = """\
import sys, time
import tutti.distributed as dist
dist.init_process_group()
def f(x):
    dist.breakpoint(rank=1, skip=1)
    dist.breakpoint(rank=1, skip=1)
    waited = time.monotonic() - start
    y = x * 2
    z = y + 1
    dist.barrier()
    return z, waited
start = time.monotonic()
z, waited = f(20 + dist.get_rank())
print("result", z, "waited" if waited > 0.3 else "passed", file=sys.stderr)
dist.destroy_process_group()
"""


def read_until(terminal, text, seen, seconds=20):
    end = time.monotonic() + seconds
    while text not in seen[0][seen[1]:]:
        if not select.select([terminal], [], [], max(0, end - time.monotonic()))[0]:
            raise AssertionError(f"no {text!r} within {seconds} s in {seen[0]!r}")
        try:
            seen[0] += os.read(terminal, 4096).decode()
        except OSError:
            raise AssertionError(f"the end before {text!r} in {seen[0]!r}") from None
    seen[1] = seen[0].index(text, seen[1]) + len(text)


def refused(rank):
    texts = []
    for arguments in ({"rank": 2}, {"rank": -1}, {"skip": -1}):
        try:
            dist.breakpoint(**arguments)
            texts.append("accepted")
        except dist.InvalidArgument as error:
            texts.append(str(error))
    return texts


class Breakpoints(unittest.TestCase):
    @rows("S16-001", "S16-002", "S16-003")
    def test_pdb_talks_to_the_terminal_though_the_ranks_input_is_another(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "program.py")
            path.write_text(PROGRAM)
            environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
            other = subprocess.Popen([sys.executable, str(path)], env={**environment, "RANK": "0"}, text=True,
                                     stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
            child, terminal = pty.fork()
            if child == 0:  # its terminal is the new one, its input is not
                nothing = os.open(os.devnull, os.O_RDONLY)
                os.dup2(nothing, 0)
                os.execve(sys.executable, [sys.executable, str(path)], {**environment, "RANK": "1"})
            try:
                self.talk(terminal, other)
                self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
                self.assertIn("result 41 waited", other.communicate(timeout=20)[1])
            finally:
                other.kill()
                os.close(terminal)

    def talk(self, terminal, other):
        seen = ["", 0]
        read_until(terminal, "(Pdb) ", seen)
        self.assertIn("rank 1 stops here", seen[0])
        # The caller's line, not one of tutti's: from 3.13 on pdb stops at the call itself.
        line = "dist.breakpoint(rank=1, skip=1)" if sys.version_info >= (3, 13) else "waited = time.monotonic() - start"
        self.assertIn(f"-> {line}", seen[0])
        os.write(terminal, b"p x\n")
        read_until(terminal, "21", seen)
        read_until(terminal, "(Pdb) ", seen)
        os.write(terminal, b"b 9\n")
        read_until(terminal, "(Pdb) ", seen)
        time.sleep(0.4)
        self.assertIsNone(other.poll(), "the other rank waits")
        os.write(terminal, b"continue\n")
        read_until(terminal, "-> z = y + 1", seen)
        read_until(terminal, "(Pdb) ", seen)
        os.write(terminal, b"p y\n")
        read_until(terminal, "42", seen)
        os.write(terminal, b"continue\n")  # of a breakpoint of its own: nobody else is concerned
        read_until(terminal, "result 43", seen)

    def test_what_it_cannot_stop_is_named(self):
        for texts in run_ranks(refused):
            self.assertEqual(texts, ["breakpoint: rank is 2: expected 0 to 1", "breakpoint: rank is -1: expected 0 to 1",
                                     "breakpoint: skip is -1: expected 0 or more"])


if __name__ == "__main__":
    main("python_" + pathlib.Path(__file__).stem)
