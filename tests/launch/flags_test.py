"""The flags of torchrun, torch.distributed.launch and DeepSpeed's launcher, on one host."""
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time

from cli_case import TOUR, TUTTI, CliCase, free_port, main, rows

ARGPARSE = """
import argparse, os
parser = argparse.ArgumentParser()
parser.add_argument(*os.environ["FLAGS"].split(","), type=int)
print("parsed", vars(parser.parse_args()), os.environ["LOCAL_RANK"])
"""


class Flags(CliCase):
    def folder(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return pathlib.Path(folder.name)

    def refused(self, *arguments, words):
        done = self.tutti(*arguments)
        self.assertEqual(done.returncode, 2, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)
        self.assertEqual(done.stdout, "")

    def test_nodes_join_within_the_time_of_the_job(self):
        self.refused("run", "-n", "1", "--timeout", "20", "--join-timeout", "30", "true",
                     words=("--join-timeout 30 is longer than --timeout 20", "expected the job's limit"))
        self.assertEqual(self.tutti("run", "-n", "1", "--timeout", "20", "true").returncode, 0)

    @rows("S14-011")
    def test_help_lists_them_all(self):
        for name in ("run", "launch"):
            said = self.tutti(name, "--help").stdout
            for flag in ("--nproc-per-node", "--num-gpus", "--nnodes", "--num-nodes", "--node-rank", "--master-addr",
                         "--master-port", "--use-env", "--hostfile", "--include", "--exclude", "--standalone",
                         "--max-restarts", "--log-dir", "--redirects", "--tee", "--module", "--no-python"):
                self.assertIn(flag, said)
            self.assertIn("may have underscores for dashes", said)

    def test_the_program_says_what_it_can_do(self):
        for words in ((), ("--help",), ("help",), ("-h",)):
            done = self.tutti(*words)
            self.assertEqual(done.returncode, 0, done.stderr)
            for command in ("run", "bench", "explain", "doctor", "trace"):
                self.assertRegex(done.stdout, rf"(?m)^ +{command} ", words)
        self.assertEqual(self.tutti("help", "run").stdout, self.tutti("run", "--help").stdout)
        versions = {self.tutti(word).stdout for word in ("-V", "--version", "version")}
        self.assertEqual(len(versions), 1, versions)
        self.assertRegex(versions.pop(), r"^tutti \d+\.\d+\.\d+\n$")
        self.refused("rum", words=["unknown command", 'did you mean "run"?'])
        self.refused("help", "rum", words=["unknown command", 'did you mean "run"?'])

    @rows("S14-006")
    def test_a_number_of_ranks_has_several_names(self):
        for flag in ("-n", "-N", "-np", "--np", "--nproc-per-node", "--nproc_per_node", "--num-gpus", "--num_gpus"):
            self.assertEqual(len(self.tutti("run", flag, 3, "echo").stdout.splitlines()), 3, flag)
        for word in ("cpu", "auto"):
            self.assertEqual(len(self.tutti("run", "--nproc-per-node", word, "echo").stdout.splitlines()),
                             os.cpu_count())
        if not pathlib.Path("/dev/nvidia0").exists():
            self.refused("run", "--nproc-per-node=gpu", "echo", words=["--nproc-per-node gpu", "no GPU"])

    @rows("S14-001", "S14-010", "S14-013")
    def test_the_local_rank_is_an_argument_unless_use_env_is_given(self):
        script = ("sh", "-c", 'echo "$LOCAL_RANK $*"', "sh", "--epochs", "3")
        program = self.folder() / "program"
        program.write_text('#!/bin/sh\necho "$LOCAL_RANK $*"\n')
        program.chmod(0o755)
        for name, flag, passed in (("launch", None, True), ("launch", "--use-env", False), ("launch", "--use_env=True", False),
                                   ("launch", "--use-env=False", True), ("run", None, False), ("run", "--use-env", False),
                                   ("run", "--use_env=False", True)):
            done = self.tutti(name, "-n", 2, "--no-prefix", *([flag] if flag else []), program, "--epochs", "3")
            expected = [f"{r} {f'--local-rank={r} ' if passed else ''}--epochs 3" for r in range(2)]
            self.assertEqual(sorted(done.stdout.splitlines()), expected, done.stderr)
        self.assertEqual(sorted(self.tutti("run", "-n", 2, "--no-prefix", *script).stdout.splitlines()),
                         ["0 --epochs 3", "1 --epochs 3"])
        self.refused("launch", "--use-env=perhaps", "true", words=["--use-env", "perhaps"])

    @rows("S14-013", "S14-014")
    def test_a_script_must_know_the_dashed_form(self):
        script = self.folder() / "train.py"
        script.write_text(ARGPARSE)
        both = self.tutti("launch", "-n", 2, "--no-prefix", script, env={"FLAGS": "--local-rank,--local_rank"})
        self.assertEqual(sorted(both.stdout.splitlines()), [f"parsed {{'local_rank': {r}}} {r}" for r in range(2)])
        old = self.tutti("launch", "-n", 1, script, env={"FLAGS": "--local_rank"})
        self.assertNotEqual(old.returncode, 0)
        self.assertIn("unrecognized arguments: --local-rank=0", old.stderr)

    @rows("S14-012")
    def test_scripts_and_modules_get_an_interpreter(self):
        folder = self.folder()
        (folder / "work.py").write_text("import sys; print(sys.argv[1:], __name__)")
        done = self.tutti("run", "--no-prefix", folder / "work.py", "-n", "5")
        self.assertEqual(done.stdout, "['-n', '5'] __main__\n", done.stderr)
        done = self.tutti("run", "--no-prefix", "-m", "work", "--module", env={"PYTHONPATH": str(folder)})
        self.assertEqual(done.stdout, "['--module'] __main__\n", done.stderr)
        done = self.tutti("launch", "--no-prefix", "-m", "work", "x", env={"PYTHONPATH": str(folder)})
        self.assertEqual(done.stdout, "['--local-rank=0', 'x'] __main__\n", done.stderr)
        self.assertIn("Permission denied", self.tutti("run", "--no-python", folder / "work.py").stderr)

    @rows("S14-005", "S14-009")
    def test_one_node_may_name_its_port(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            done = self.tutti("run", "--master-port", port, "true")
            self.assertEqual(done.returncode, 1)
            self.assertIn(str(port), done.stderr)
        done = self.tutti("run", "-n", 2, "--no-prefix", "--master-addr", "127.0.0.1", "--master-port", port, "sh", "-c",
                          'echo "$MASTER_ADDR:$MASTER_PORT"')
        self.assertEqual(done.stdout, f"127.0.0.1:{port}\n" * 2, done.stderr)
        self.assertEqual(self.tutti("run", "--standalone", "-n", 4, TOUR).returncode, 0)

    def test_ranks_get_torchrun_s_variables(self):
        done = self.tutti("run", "-n", 2, "--no-prefix", "--run-id", "job-7", "--max-restarts", "3", "sh", "-c",
                          'echo "$RANK $ROLE_RANK $ROLE_WORLD_SIZE $ROLE_NAME $GROUP_WORLD_SIZE $TORCHELASTIC_RUN_ID '
                          '$TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_MAX_RESTARTS"')
        self.assertEqual(sorted(done.stdout.splitlines()), [f"{r} {r} 2 default 1 job-7 0 3" for r in range(2)])

    def two_nodes(self, *command):
        """What both nodes of a job said, on one host."""
        port = free_port()
        nodes = [subprocess.Popen([TUTTI, "run", "--nnodes=2", f"--node_rank={k}", "--master_addr=127.0.0.1",
                                   f"--master_port={port}", "--nproc_per_node=2", "--no-prefix", *command],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for k in (1, 0)]
        said = [node.communicate(timeout=60)[0] for node in nodes]
        self.assertEqual([node.returncode for node in nodes], [0, 0], said)
        return "".join(said).splitlines()

    @rows("S14-007", "S14-008")
    def test_two_nodes_on_one_host(self):
        self.two_nodes(TOUR)

    @rows("S4-026")
    def test_the_local_rank_is_the_rank_modulo_the_ranks_of_a_node(self):
        said = self.two_nodes("sh", "-c", 'echo "$RANK $LOCAL_RANK $LOCAL_WORLD_SIZE"')
        self.assertEqual(sorted(said), [f"{r} {r % 2} 2" for r in range(4)])

    def test_restarts(self):
        script = 'echo "$RANK:$TORCHELASTIC_RESTART_COUNT"; [ $RANK = 1 ] && [ $TORCHELASTIC_RESTART_COUNT -lt 2 ] && ' \
                 f'exit 3; [ $TORCHELASTIC_RESTART_COUNT = 2 ] && exec {TOUR}; sleep 50'
        done = self.tutti("run", "-n", 4, "--no-prefix", "--max-restarts", 2, "sh", "-c", script)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(line for line in done.stdout.splitlines() if ":" in line and len(line) == 3),
                         sorted(f"{r}:{a}" for r in range(4) for a in range(3)))
        self.assertIn("every result is as expected", done.stdout, "the store of the same launcher serves a new world")
        self.assertIn("starting all ranks again (2 of 2)", done.stderr)
        done = self.tutti("run", "-n", 2, "--max_restarts=1", "sh", "-c", "exit 5")
        self.assertEqual(done.returncode, 5)
        self.assertEqual(done.stderr.count("was the first to fail"), 2)
        start = time.monotonic()
        self.assertEqual(self.tutti("run", "--max-restarts=100", "/no/such/program").returncode, 127, "not tried again")
        self.assertEqual(self.tutti("run", "--max-restarts=100", "--timeout", "0.3", "sleep", 9).returncode, 124)
        self.assertLess(time.monotonic() - start, 20)

    def test_torchrun_s_variables_say_what_no_flag_says(self):
        env = {"PET_MAX_RESTARTS": "2", "PET_RDZV_ID": "job-7", "PET_ROLE": "trainer", "PET_RDZV_BACKEND": "c10d"}
        done = self.tutti("run", "sh", "-c", "echo try of $TORCHELASTIC_RUN_ID; exit 3", env=env)
        self.assertEqual((done.returncode, done.stdout), (3, "[rank 0] try of job-7\n" * 3), done.stderr)
        self.assertIn("tutti run: taken from the environment: PET_MAX_RESTARTS=2, PET_RDZV_ID=job-7\n", done.stderr)
        self.assertIn("tutti run: PET_ROLE is set, and not read here; ", done.stderr)
        done = self.tutti("run", "--max-restarts", 0, "sh", "-c", "echo try; exit 3", env={"PET_MAX_RESTARTS": "2"})
        self.assertEqual(done.stdout, "[rank 0] try\n", "the flag counts")
        with tempfile.TemporaryDirectory() as folder:
            env = {"PET_LOG_DIR": folder, "PET_REDIRECTS": "3", "PET_STANDALONE": "1", "PET_NO_PYTHON": "1", "PET_TEE": "0:2"}
            done = self.tutti("run", "--run-id", "x", "sh", "-c", "echo out; echo err >&2", env=env)
            self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
            self.assertIn("[rank 0] err\n", done.stderr)
            self.assertEqual((pathlib.Path(folder) / "x/attempt_0/0/stdout.log").read_text(), "out\n")
        for name, value in (("MAX_RESTARTS", "x"), ("STANDALONE", "yes"), ("TEE", "7")):
            done = self.tutti("run", "--log-dir", "x", "true", env={f"PET_{name}": value})
            self.assertEqual(done.returncode, 2)
            self.assertIn(value, done.stderr)

    def test_durations(self):
        for flags in (("--timeout", "1e10"), ("--timeout", "1e300"), ("--timeout", "9223372036854775807"), ("--grace", "1e300")):
            done = self.tutti("run", *flags, "sh", "-c", "sleep 0.3; echo done")
            self.assertEqual((done.returncode, done.stdout), (0, "[rank 0] done\n"), flags)
        for flag in ("--timeout", "--grace"):
            for value in ("nan", "inf", "-inf", "-1", "1s", "", "1e999"):
                self.refused("run", f"{flag}={value}", "true", words=[flag])
        self.refused("run", "--timeout=0", "true", words=["--timeout", "more than 0"])
        self.assertEqual(self.tutti("run", "--grace=0", "true").returncode, 0)
        self.assertEqual(self.tutti("run", "--timeout=1e-9", "sleep", 9).returncode, 124)

    def test_ctrl_c_is_no_failure_that_is_tried_again(self):
        with subprocess.Popen([TUTTI, "run", "-n", "2", "--max-restarts", "5", "sh", "-c", "echo up; sleep 50"], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as job:
            job.stdout.readline()
            job.send_signal(signal.SIGINT)
            _, errors = job.communicate(timeout=20)
        self.assertEqual(job.returncode, 130)
        self.assertNotIn("again", errors)

    def test_logs(self):
        for flags, shown, logged in (((), "oe", "oe"), (("-r", 3), "", "oe"), (("--redirects=1",), "e", "o"),
                                     (("-t", 1), "oe", "o"), (("-r", 3, "-t", 2), "e", "oe"),
                                     (("-r", "0:1", "--tee=1:2"), "e", "o")):
            with self.subTest(flags=flags):
                folder = self.folder()
                done = self.shell(1, "echo o; echo e >&2", "--log-dir", folder, "--run-id=r", *flags)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual((done.stdout + done.stderr).replace("[rank 0] ", "").split(), list(shown))
                files = [f"r/attempt_0/0/{name}.log" for name in ("stderr", "stdout") if {"stderr": "e", "stdout": "o"}[name]
                         in logged]
                found = {str(f.relative_to(folder)): f.read_text() for f in folder.rglob("*.log")}
                self.assertEqual(sorted(found), files)
                for name, text in found.items():
                    self.assertEqual(text, "o\n" if "stdout" in name else "e\n")

    def test_logs_of_every_attempt_and_rank(self):
        folder = self.folder()
        script = "echo $RANK; [ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 3"
        done = self.shell(2, script, "--log_dir", folder, "--run-id", "x", "--max-restarts", 1, "-r", "3")
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
        for attempt in range(2):
            for rank in range(2):
                log = folder / "x" / f"attempt_{attempt}" / str(rank) / "stdout.log"
                self.assertEqual(log.read_text(), f"{rank}\n")

    @rows("S14-004")
    def test_a_hostfile_with_this_host_only_needs_no_ssh(self):
        hostfile = self.folder() / "hosts"
        hostfile.write_text("localhost slots=4\n")
        self.assertEqual(self.tutti("run", "--hostfile", hostfile, TOUR).returncode, 0)
        self.assertEqual(len(self.tutti("run", "--hostfile", hostfile, "--num_gpus", 2, "--num_nodes=1", "echo")
                             .stdout.splitlines()), 2)
        self.assertEqual(len(self.tutti("run", "--hostfile", hostfile, "--exclude", "localhost:1,2,3", "echo")
                             .stdout.splitlines()), 1)

    def test_what_is_wrong_is_named(self):
        hostfile = self.folder() / "hosts"
        hostfile.write_text("localhost slots=2\n")
        for arguments, words in (
                (("--nproc-per-node", "many", "true"), ("--nproc-per-node many", "1 to 65536")),
                (("-n", "0", "true"), ("--nproc-per-node 0", "1 to 65536")),
                (("--nnodes", "4:2", "true"), ("--nnodes 4:2", "1 to 65536, or MIN:MAX")),
                (("--nnodes", "1:2", "true"), ("--nnodes 2", "--master-addr")),
                (("--nnodes", "1:2", "--hostfile", hostfile, "true"), ("--nnodes 1:2", "one number with --hostfile")),
                (("--join", "host", "true"), ("--join host", "HOST:PORT")),
                (("--join", "host:1", "--nnodes", "2", "true"), ("--join", "--nnodes")),
                (("--spares", "1", "--max-restarts", "0", "true"), ("--max-restarts 0", "1 or more", "--spares")),
                (("--nnodes", "0", "true"), ("--nnodes 0",)),
                (("--nnodes", "2", "true"), ("--nnodes 2", "--master-addr")),
                (("--nnodes", "2", "--node-rank", "2", "--master-addr", "127.0.0.1", "true"), ("--node-rank 2", "0 to 1")),
                (("--node-rank", "-1", "true"), ("--node-rank -1", "0 to 0")),
                (("--master-port", "70000", "true"), ("--master-port", "70000", "65535")),
                (("--master-port", "1x", "true"), ("--master-port", "1x")),
                (("--standalone", "--nnodes", "2", "true"), ("--standalone", "--nnodes")),
                (("--max-restarts", "-1", "true"), ("--max-restarts", "-1")),
                (("--redirects", "3", "true"), ("--redirects", "--log-dir")),
                (("--log-dir", "x", "--tee", "7", "true"), ("--tee 7", "3 (both)")),
                (("--log-dir", "x", "--tee", "0:9", "true"), ("--tee 0:9",)),
                (("--log-dir", "/proc/nothing", "true"), ("--log-dir", "/proc/nothing")),
                (("--include", "a", "true"), ("--include needs --hostfile",)),
                (("--ssh-port", "22", "true"), ("--ssh-port needs --hostfile",)),
                (("--hostfile", "/no/such", "true"), ("--hostfile /no/such", "No such file")),
                (("--hostfile", hostfile, "--node-rank", "1", "true"), ("--hostfile", "--node-rank")),
                (("--hostfile", hostfile, "--include", "localhost", "--num-gpus", "1", "true"), ("--include", "--num-gpus")),
                (("--nnodes",), ("--nnodes",)), (("--use-env",), ("no program given",)),
                (("--master-prot", "1", "true"), ("--master-prot", "did you mean --master-port"))):
            with self.subTest(arguments=arguments):
                self.refused("run", *arguments, words=words)


if __name__ == "__main__":
    main("cli_flags_test")
