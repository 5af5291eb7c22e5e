"""Gloo replaced under the ways in which trainers start their ranks: one script that starts itself again for each other rank
(Lightning), processes forked or spawned from a function (notebooks), accelerate's launcher; and what all ranks of such a
job learn when one fails."""

import importlib.util
import os
import pathlib
import subprocess
import sys
import unittest

import ranks

PROGRAM = str(pathlib.Path(__file__).with_name("launched_program.py"))
REPLACED = {"TUTTI_REPLACE_GLOO": "1"}
LONG = os.environ.get("TUTTI_TORCH_TESTS") == "all"
EXPECTED = ["rank 0 of 2: tutti 28.0000", "rank 1 of 2: tutti 28.0000"]


class Launched(unittest.TestCase):
    def environment(self, **more: str) -> dict[str, str]:
        return os.environ | {"OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(ranks.free_port()),
                             "WORLD_SIZE": "2"} | more

    def start_itself(self, *command: str, **more: str) -> list[subprocess.CompletedProcess]:
        """As Lightning's subprocess launcher: the same command with other LOCAL_RANK and RANK."""
        environment = self.environment(**more)
        started = [subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                    env=environment | {"RANK": str(rank), "LOCAL_RANK": str(rank), "NODE_RANK": "0"})
                   for rank in range(2)]
        done = []
        for process in started:
            out, error = process.communicate(timeout=90)
            done.append(subprocess.CompletedProcess(command, process.returncode, out, error))
        return done

    def check(self, done: list[subprocess.CompletedProcess]) -> None:
        for one in done:
            self.assertEqual(one.returncode, 0, one.stdout + one.stderr)
        self.assertEqual(sorted("".join(one.stdout for one in done).split("\n"))[-2:], EXPECTED)

    def test_a_script_that_starts_itself(self) -> None:
        self.check(self.start_itself(PROGRAM, "train", **REPLACED))
        self.check(self.start_itself("-m", "tutti.torch", "--replace-gloo", PROGRAM, "train"))

    @unittest.skipUnless(LONG, "takes long: TUTTI_TORCH_TESTS=all runs it")
    def test_processes_from_a_function(self) -> None:
        """As notebook launchers: environment variables in the parent, start_processes in the child's way."""
        for method in ("fork", "spawn"):
            with self.subTest(method):
                program = ("import os, sys, torch\nfrom torch.multiprocessing import start_processes\n"
                           f"sys.path.insert(0, {str(pathlib.Path(PROGRAM).parent)!r})\nimport launched_program\n"
                           "def begin(rank):\n"
                           "    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))\n"
                           "    launched_program.from_function()\n"
                           "if __name__ == '__main__':\n"
                           f"    start_processes(begin, nprocs=2, start_method={method!r})\n")
                import tempfile

                with tempfile.TemporaryDirectory() as folder:
                    path = os.path.join(folder, "launcher.py")
                    pathlib.Path(path).write_text(program)
                    self.check([subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=90,
                                               env=self.environment(**REPLACED))])

    @unittest.skipUnless(importlib.util.find_spec("accelerate"), "accelerate is not installed")
    def test_accelerate(self) -> None:
        self.check([subprocess.run([sys.executable, PROGRAM, "accelerate-launcher"], capture_output=True, text=True,
                                   timeout=120, env=self.environment(**REPLACED))])

    def test_an_exception_in_one_ranks_backward(self) -> None:
        done = self.start_itself(PROGRAM, "backward", **REPLACED)
        self.assertEqual([one.returncode for one in done], [3, 3], done)
        self.assertIn("rank 1: ValueError: backward of rank 1", done[1].stdout)
        self.assertRegex(done[0].stdout, r"rank 0: (DistBackendError|RuntimeError): .*all_reduce.*rank 1|"
                                         r"rank 0: (DistBackendError|RuntimeError): .*rank 1.*all_reduce")


if __name__ == "__main__":
    unittest.main()
