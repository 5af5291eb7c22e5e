"""The same program under other launchers: mpirun (Open MPI, MPICH), torchrun's and Slurm's variables; tutti doctor --env."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from cli_case import TOUR, TUTTI, CliCase, main, rows

LAUNCHERS = ("OMPI_", "PMI", "SLURM_", "TORCHELASTIC_", "MASTER_", "LOCAL_", "TUTTI_", "RANK", "WORLD_SIZE")
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(LAUNCHERS)}
MPIRUNS = {"Open MPI (mpirun)": ("mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"),
           "Hydra (MPICH's mpirun)": ("mpirun.mpich",)}


class UnderOthers(CliCase):
    def start(self, *command, env=None):
        return subprocess.run([*map(str, command)], capture_output=True, text=True, env={**CLEAN, **(env or {})},
                              timeout=60, check=False)

    def doctor(self, env, status=0):
        done = self.start(TUTTI, "doctor", "--env", env=env)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return {line[:17].strip(): line[17:].split(maxsplit=1) for line in done.stdout.splitlines()}

    def mpiruns(self):
        for launcher, command in MPIRUNS.items():
            if shutil.which(command[0]) is None:
                print(f"left out: cli_launchers_test, jobs under {launcher}: {command[0]} is not installed")
                continue
            yield launcher, command

    def test_mpirun_needs_nothing_but_the_program(self):
        for launcher, command in self.mpiruns():
            with self.subTest(launcher=launcher):
                done = self.start(*command, "-n", 4, TOUR)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertIn("every result is as expected", done.stdout)

    def test_two_mpiruns_at_once_do_not_meet(self):
        for launcher, command in self.mpiruns():
            with self.subTest(launcher=launcher):
                jobs = [subprocess.Popen([*command, "-n", "2", TOUR], env=CLEAN, stdout=subprocess.PIPE,
                                         stderr=subprocess.STDOUT, text=True) for _ in range(2)]
                for job in jobs:
                    said, _ = job.communicate(timeout=60)
                    self.assertEqual(job.returncode, 0, said)

    def test_a_shell_between_mpirun_and_the_program_does_not_matter(self):
        for launcher, command in self.mpiruns():
            with self.subTest(launcher=launcher):
                done = self.start(*command, "-n", 2, "sh", "-c", f"{TUTTI} doctor --env; true")
                self.assertEqual(done.stdout.count(launcher), 2, done.stdout + done.stderr)
                self.assertEqual(done.stdout.count("127.0.0.1"), 2, done.stdout)

    def test_a_process_manager_that_speaks_pmix_alone_needs_nothing_but_the_program(self):
        """Open MPI's, without the variables that are its own: its PMIx server tells the rest."""
        command = MPIRUNS["Open MPI (mpirun)"]
        if shutil.which(command[0]) is None:
            self.skipTest(f"{command[0]} is not installed")
        own = self.start(*command, "-n", 1, "sh", "-c", "env | grep -o '^OMPI_[A-Za-z_0-9]*'").stdout.split()
        self.assertIn("OMPI_COMM_WORLD_SIZE", own)
        plain = ["env", *(word for name in own for word in ("-u", name))]
        done = self.start(*command, "-n", 2, *plain, TUTTI, "doctor", "--env")
        for words in ("launcher +a PMIx process manager", r"rank +\d +PMIX_RANK", "world size +2 +the PMIx server's PMIX_JOB_SIZE",
                      r"master address +127\.0\.0\.1 +all ranks are on this host", r"master port +2\d{4} +made from PMIX_NAMESPACE"):
            self.assertEqual(len(re.findall(f"(?m)^{words}", done.stdout)), 2, done.stdout + done.stderr)
        done = self.start(*command, "-n", 3, *plain, TOUR)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("every result is as expected", done.stdout)

    def test_what_the_user_says_wins_under_mpirun(self):
        for launcher, command in self.mpiruns():
            with self.subTest(launcher=launcher):
                done = self.start(*command, "-n", 1, "env", "RANK=2", "WORLD_SIZE=5", "MASTER_ADDR=node9",
                                  "MASTER_PORT=1234", TUTTI, "doctor", "--env")
                self.assertRegex(done.stdout, r"launcher +by hand\nrank +2 +RANK\nworld size +5 +WORLD_SIZE\n")
                self.assertRegex(done.stdout, r"master address +node9 +MASTER_ADDR\nmaster port +1234 +MASTER_PORT")

    @rows("S14-002")
    def test_torchrun_keeps_its_own_store(self):
        # torchrun's agent listens on MASTER_PORT and does not know tutti.
        listener = subprocess.Popen([sys.executable, "-c", "import socket, time; s = socket.create_server(('127.0.0.1', 0));"
                                     "print(s.getsockname()[1], flush=True); time.sleep(60)"],
                                    stdout=subprocess.PIPE, text=True)
        try:
            port = listener.stdout.readline().strip()
            ranks = [subprocess.Popen([TOUR], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={
                **CLEAN, "RANK": str(r), "WORLD_SIZE": "4", "LOCAL_RANK": str(r), "LOCAL_WORLD_SIZE": "4",
                "MASTER_ADDR": "localhost", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": f"test-{port}",
                "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_USE_AGENT_STORE": "True"}) for r in range(4)]
            for rank in ranks:
                said, _ = rank.communicate(timeout=60)
                self.assertEqual(rank.returncode, 0, said)
        finally:
            listener.kill()
            listener.communicate()

    def test_slurm_s_variables_are_enough(self):
        slurm = {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_TASKS_PER_NODE": "4",
                 "SLURM_NODEID": "0", "SLURM_STEP_NODELIST": "node1", "SLURM_JOB_ID": str(os.getpid())}
        ranks = [subprocess.Popen([TOUR], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  env={**CLEAN, **slurm, "SLURM_PROCID": str(r), "SLURM_LOCALID": str(r)})
                 for r in range(4)]
        for rank in ranks:
            said, _ = rank.communicate(timeout=60)
            self.assertEqual(rank.returncode, 0, said)
        two_hosts = {**slurm, "SLURM_STEP_TASKS_PER_NODE": "2(x2)", "SLURM_STEP_NODELIST": "node[07-08]",
                     "SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_NODEID": "1"}
        said = self.doctor(two_hosts)
        self.assertEqual(said["rank"], ["3", "SLURM_PROCID"])
        self.assertEqual(said["local rank"], ["1", "SLURM_LOCALID"])
        self.assertEqual(said["master address"], ["node07", "first host of SLURM_STEP_NODELIST"])

    @staticmethod
    def findings(done):
        """What doctor printed, a finding to a line."""
        return re.sub(r"\n {25}", " ", done.stdout)

    def test_doctor_tells_what_is_missing(self):
        said = self.doctor({}, status=1)
        self.assertEqual(said["launcher"], ["none"])
        for name, variable in (("rank", "RANK"), ("world size", "WORLD_SIZE"), ("master port", "MASTER_PORT")):
            self.assertEqual(said[name], ["-", f"not set: {variable}"])
        done = self.start(TUTTI, "doctor", "--env", env={"RANK": "first"})
        self.assertEqual(done.returncode, 1)
        self.assertIn("environment variable RANK=first: expected an integer", done.stderr)

    def test_doctor_knows_all_variables(self):
        done = self.start(TUTTI, "doctor", "--variables", env={"TUTTI_WAIT": "spin", "TUTTI_JOB_SECRET": "hidden from all others"})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"(?m)^TUTTI_WAIT +auto \(default\).*\n +here: spin$")
        self.assertNotIn("hidden", done.stdout)
        root = pathlib.Path(__file__).resolve().parents[2]
        build = pathlib.Path(TUTTI).resolve().parents[1]
        check = self.start(root / "tools/variables", build, "--check")
        self.assertEqual(check.returncode, 0, check.stderr)

    def test_doctor_tries_what_is_here(self):
        done = self.start(TUTTI, "doctor")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for finding in (r"ok +variables", r"(ok|slow) +shared memory +two ranks met; all_reduce of 1 MiB takes [1-9]",
                        r"(ok|slow) +tcp +two ranks met", r"\w+ +tuning", r"\w+ +cores +\d+ of \d+", r"ok +backends +native",
                        r"\w+ +network", r"missing +secret +none jobs on several hosts need"):
            self.assertRegex(self.findings(done), f"(?m)^{finding}")

    def test_doctor_says_why_a_backend_s_library_cannot_be_loaded(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "libtutti-backend-torn.so").write_text("no library")
            done = self.start(TUTTI, "doctor", env={"TUTTI_BACKEND_PATH": folder})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(self.findings(done), r'(?m)^missing +torn +it cannot be loaded: .*libtutti-backend-torn\.so: .*'
                                              r'only groups with the backend "torn" need it$')

    def test_doctor_names_what_is_slow_or_broken(self):
        done = self.start("sh", "-c", 'ulimit -n 200; exec "$@"', "sh", TUTTI, "doctor",
                          env={"XDG_CACHE_HOME": "/proc/none", "TUTTI_TIMOUT_MS": "3"})
        self.assertEqual(done.returncode, 0, done.stderr)
        for finding in (r"slow +open files +200 .*ulimit", r"slow +tuning +cannot be kept .*XDG_CACHE_HOME",
                        r"slow +variables +.*TUTTI_TIMOUT_MS.*TUTTI_TIMEOUT_MS"):
            self.assertRegex(self.findings(done), f"(?m)^{finding}")
        done = self.start(TUTTI, "doctor", env={"TUTTI_ALGORITHM": "fastest"})
        self.assertEqual(done.returncode, 1)
        self.assertRegex(self.findings(done), r"(?m)^broken +variables +.*TUTTI_ALGORITHM.*fastest")

    def test_doctor_tells_of_memory_that_cannot_be_shared_or_read(self):
        done = self.start("sh", "-c", 'ulimit -f 1000; exec "$@"', "sh", TUTTI, "doctor")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertRegex(self.findings(done), r"(?m)^slow +shared memory .*ulimit -f\) is 512000 bytes.* without it .* TCP")
        self.assertRegex(self.findings(done), r"(?m)^(ok|slow) +tcp +two ranks met")
        own = ("unshare", "--user", "--map-current-user")
        if subprocess.run([*own, "true"], stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("user namespaces are not allowed here")
        done = self.start(*own, TUTTI, "doctor")
        self.assertRegex(self.findings(done), r"(?m)^(ok|slow) +shared memory +two ranks met")
        self.assertRegex(self.findings(done), r"(?m)^ok +peers' memory .*user namespaces of their own, as this process is")

    def test_ranks_in_user_namespaces_of_their_own(self):
        own = ("unshare", "--user", "--map-current-user")
        if subprocess.run([*own, "true"], stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("user namespaces are not allowed here")
        done = self.start(TUTTI, "run", "-n", 2, *own, TOUR)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("every result is as expected", done.stdout)

    def test_doctor_under_tutti_run(self):
        done = self.start(TUTTI, "run", "-n", 2, "--no-prefix", TUTTI, "doctor", "--env")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("tutti run\n"), 2, done.stdout)
        self.assertEqual(done.stdout.count("the launcher's"), 2, done.stdout)

    def test_an_address_that_was_worked_out_wrongly_is_explained(self):
        done = self.start(TOUR, env={"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2",
                                     "OMPI_COMM_WORLD_LOCAL_SIZE": "1", "PMIX_NAMESPACE": "1", "TUTTI_JOB_SECRET": "x" * 16,
                                     "OMPI_MCA_orte_hnp_uri": "1.0;tcp://192.0.2.77:1"})
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stdout + done.stderr, r"192\.0\.2\.77.*OMPI_MCA_orte_hnp_uri.*MASTER_ADDR")


if __name__ == "__main__":
    unittest.util._MAX_LENGTH = 2000
    main("cli_launchers_test")
