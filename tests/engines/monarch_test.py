#!/usr/bin/env python3
"""Actors of a real Monarch on this host as ranks: the example, torch.distributed's group by the name "tutti", and an actor that
dies. Usage: monarch_test.py TUTTI
"""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = HERE = [str(ROOT / "examples/monarch"), str(ROOT / "tests/engines")]
os.environ["PYTHONPATH"] = ":".join(HERE)  # for the processes of actors

from monarch.actor import endpoint, this_host

import actors
import page
import tutti.distributed as dist
from command_lines import Watch

N = 2
KNOWN = "0123456789abcdef" * 4


class Known(actors.Worker):
    """The example's actor, with a secret that the test knows."""

    def __init__(self, ranks):
        super().__init__(ranks)
        actors.secrets.token_hex = lambda count: KNOWN

    @endpoint
    def last_words(self, folder):
        """Rank 1 dies; what the others are told, and when."""
        dist.barrier()
        if self.rank == 1:
            time.sleep(0.5)
            os.kill(os.getpid(), signal.SIGKILL)
        begin = time.monotonic() + 0.5
        try:
            dist.barrier()
        except dist.PeerLost as error:
            pathlib.Path(folder, str(self.rank)).write_text(f"told after {time.monotonic() - begin:.2f} s: {error}")


def known_workers():
    workers = this_host().spawn_procs(per_host={"ranks": N}).spawn("known", Known, N)
    workers.join.call(workers.slice(ranks=0).serve.call_one("127.0.0.1").get()).get()
    return workers


class Monarch(unittest.TestCase):
    def test_the_example(self):
        done = subprocess.run([sys.executable, ROOT / "examples/monarch/actors.py"], capture_output=True, text=True,
                              timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("sums by rank: [[30.0, 30.0, 30.0, 30.0], [30.0, 30.0, 30.0, 30.0]]", done.stdout)

    def test_the_secret_comes_by_monarch_and_is_on_no_command_line(self):
        with Watch(KNOWN) as watch:
            workers = known_workers()
            self.assertEqual([x for _, x in workers.step.call(1.0).get().items()], [[3.0] * 4] * N)
            time.sleep(0.5)
            workers.leave.call().get()
        self.assertEqual(watch.found, {})

    def test_torch_takes_tutti_by_its_name_in_the_program_of_the_page(self):
        try:
            import torch
            import tutti.torch
        except ImportError as error:
            self.skipTest(f"{error}: the Python of TORCH_PYTHON has no PyTorch, or make torch has not been run")
        self.assertIn("[12.0, 12.0]", page.run("Monarch"))  # four elements of 1 + 2

    def test_an_actor_that_dies_is_named_to_the_others_within_a_second(self):
        """In a process of its own, since Monarch ends its controller as well."""
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, __file__, "one dies", folder], capture_output=True, text=True, timeout=100,
                                  check=False)
            told = {file.name: file.read_text() for file in pathlib.Path(folder).iterdir()}
        self.assertEqual(list(told), ["0"], done.stdout + done.stderr)
        self.assertRegex(told["0"], r"told after -?0\.\d\d s: .*rank 1 .*is gone")


if __name__ == "__main__":
    if sys.argv[1] == "one dies":
        known_workers().last_words.call(sys.argv[2]).get(timeout=20)
    else:
        unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
