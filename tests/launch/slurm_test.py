"""A program under srun: a Slurm of one node (Debian's munge, slurmctld, slurmd), made for the test in a folder of its own."""
import os
import pathlib
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

from cli_case import TOUR, TUTTI, CliCase, free_port, main
from daemons import start_daemon

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sinfo")
PATH = os.environ.get("PATH", "") + ":/usr/sbin"
CONFIGURATION = """ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}
SlurmdSpoolDir={folder}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
NodeName=localhost NodeAddr=127.0.0.1 State=UNKNOWN
PartitionName=all Nodes=localhost Default=YES State=UP
"""


class UnderSlurm(CliCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        path = pathlib.Path(folder.name)
        path.chmod(0o755)  # munged refuses a folder where others could put a socket in its place
        (path / "munge.key").write_bytes(secrets.token_bytes(32))
        (path / "munge.key").chmod(0o400)
        (path / "slurm.conf").write_text(CONFIGURATION.format(folder=path, ports=[free_port(), free_port()]))
        cls.environment = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "TUTTI_"))}
        cls.environment.update(PATH=PATH, SLURM_CONF=str(path / "slurm.conf"))
        cls.daemon(path, "munged", "--foreground", f"--key-file={path}/munge.key", f"--socket={path}/munge.socket",
                   f"--pid-file={path}/munged.pid", f"--log-file={path}/munged.log", f"--seed-file={path}/seed")
        cls.daemon(path, "slurmctld", "-D", "-f", path / "slurm.conf")
        cls.daemon(path, "slurmd", "-D", "-N", "localhost", "-f", path / "slurm.conf")
        end = time.monotonic() + 30
        while "idle" not in cls.output("sinfo", "-h", "-o", "%t").stdout:
            if time.monotonic() > end:
                logs = "".join(f"{log.name}:\n{log.read_text()[-2000:]}\n" for log in path.glob("*.said"))
                raise AssertionError("the test's Slurm does not get ready:\n" + logs)
            time.sleep(0.2)

    @classmethod
    def daemon(cls, path, name, *arguments):
        start_daemon(cls, [name, *arguments], path / f"{name}.said", cls.environment)

    @classmethod
    def output(cls, *command, **more):
        return subprocess.run([*map(str, command)], env={**cls.environment, **more}, capture_output=True, text=True,
                              timeout=60, check=False)

    def test_srun_needs_nothing_but_the_program(self):
        done = self.output("srun", "-n", 4, "--overcommit", TOUR)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("every result is as expected", done.stdout)

    def test_doctor_names_slurm_s_variables(self):
        done = self.output("srun", "-n", 2, "--overcommit", TUTTI, "doctor", "--env")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for words in (r"launcher +Slurm \(srun\)", r"rank +1 +SLURM_PROCID", r"world size +2 +SLURM_STEP_NUM_TASKS",
                      r"local rank +1 +SLURM_LOCALID", r"master address +127\.0\.0\.1 +all ranks are on this host",
                      r"master port +2\d{4} +made from SLURM_JOB_ID, SLURM_STEP_ID"):
            self.assertRegex(done.stdout, words)

    def test_what_the_user_says_wins(self):
        port = free_port()
        done = self.output("srun", "-n", 2, "--overcommit", TUTTI, "doctor", "--env", MASTER_PORT=str(port))
        self.assertEqual(done.stdout.count(f"{port}           MASTER_PORT"), 2, done.stdout)

    def test_tutti_run_inside_a_step_starts_ranks_of_its_own(self):
        done = self.output("srun", "-n", 1, TUTTI, "run", "-n", 4, TOUR)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    missing = [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]
    if missing or os.geteuid() != 0:
        print("left out: cli_slurm_test: it needs root and Debian's packages munge, slurmctld, slurmd and slurm-client; "
              + (f"missing: {', '.join(missing)}" if missing else "this is another user"))
        sys.exit(77)
    unittest.util._MAX_LENGTH = 4000
    main("cli_slurm_test")
