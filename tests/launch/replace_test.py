"""tutti run --replace and --spares: the job goes on without a rank that died, and another process takes its place."""
import os
import pathlib
import re
import signal
import subprocess
import time

from cli_case import TUTTI, CliCase, free_port, main

PROGRAM = pathlib.Path(TUTTI).parent.parent / "tests/member_program"
KILLED = r"killed by signal 9 \(SIGKILL\)"


class Replace(CliCase):
    def job(self, *arguments, ranks=3, options=("--replace",)):
        began = time.monotonic()
        done = self.tutti("run", "-n", ranks, "--grace", "0.5", *options, PROGRAM, *arguments, timeout=40)
        self.assertLess(time.monotonic() - began, 20, done.stderr)
        self.everything = done.stdout + done.stderr
        self.words = "\n".join(line for line in done.stderr.splitlines() if line.startswith(("tutti run", "  ")))
        return done

    def test_a_process_takes_the_place_of_a_rank_that_was_killed(self):
        for rank in (2, 0):
            done = self.job(60, "repair", f"{rank}@20")
            self.assertEqual(done.returncode, 0, self.everything)
            self.assertRegex(self.words, rf"^tutti run: rank {rank} \(pid \d+\) was {KILLED}; spare 0 is to take its place, 2 restarts left\n"
                                         rf"tutti run: spare 0 \(pid \d+\) is rank {rank} of 3 now$")
            self.assertRegex(done.stdout, rf"\[spare 0\] pid \d+ slot {rank} rank '' of '' replaces '1'")
            self.assertRegex(done.stdout, rf"\[rank {rank}\] joined as rank {rank} of 3 at step ")
            for each in range(3):
                self.assertIn(f"[rank {each}] done as rank {each} of 3 at step 60", done.stdout)

    def test_a_spare_takes_the_place_and_another_becomes_the_next(self):
        done = self.job(80, "repair", "1@20", "0@50", options=("--spares", 1, "--max-restarts", 2))
        self.assertEqual(done.returncode, 0, self.everything)
        self.assertRegex(done.stdout, r"\[spare 0\] pid \d+ slot 3 rank ''")
        self.assertRegex(done.stdout, r"\[spare 1\] pid \d+ slot 1 rank ''")
        self.assertRegex(self.words, rf"^tutti run: rank 1 .* was {KILLED}; spare 0 is to take its place, 1 restart left\n"
                                     rf"tutti run: spare 0 \(pid \d+\) is rank 1 of 3 now\n"
                                     rf"tutti run: rank 0 .* was {KILLED}; spare 1 is to take its place, 0 restarts left\n"
                                     rf"tutti run: spare 1 \(pid \d+\) is rank 0 of 3 now$")

    def test_two_that_die_together_cost_one_restart(self):
        done = self.job(60, "repair", "1@20", "2@20", ranks=4, options=("--replace", "--max-restarts", 1))
        self.assertEqual(done.returncode, 0, self.everything)
        self.assertEqual(len(re.findall("is to take its place, 0 restarts left", self.words)), 2, self.words)
        self.assertEqual(len(re.findall(r"is rank \d of 4 now", self.words)), 2, self.words)

    def test_when_no_restarts_are_left_the_job_ends(self):
        done = self.job(600, "repair", "1@20", "2@60", options=("--replace", "--max-restarts", 1))
        self.assertEqual(done.returncode, 137, self.everything)
        self.assertRegex(self.words, rf"tutti run: rank 2 \(pid \d+\) was the first to fail, after .* s: {KILLED}")
        self.assertNotRegex(self.words, "rank 1 was killed.*stopped", "its death was not the job's failure")
        self.assertTrue(self.words.endswith("\n  no restarts were left"), self.words)

    def test_where_all_have_died_all_are_started_again(self):
        done = self.job(60, "repair", "0@20", "1@20", "2@20", options=("--spares", 1))
        self.assertEqual(done.returncode, 0, self.everything)
        self.assertRegex(self.words, rf"tutti run: rank \d \(pid \d+\) was the first to fail, after .* s: {KILLED}")
        self.assertIn("\n  no rank was left that could take another process in", self.words)
        self.assertIn("\ntutti run: starting all ranks again (1 of 3)", self.words)
        self.assertEqual(len(re.findall("done as rank . of 3 at step 60", done.stdout)), 3, done.stdout)

    def test_a_program_that_takes_nobody_in_is_started_again_as_a_whole(self):
        done = self.job(60, "never", "2@20", options=("--replace", "--max-restarts", 1))
        self.assertEqual(done.returncode, 0, self.everything)
        self.assertIn("\ntutti run: starting all ranks again (1 of 1)", self.words)
        self.assertRegex(self.words, rf"rank 2 \(pid \d+\) was the first to fail, after .* s: {KILLED}")

    def test_a_program_that_takes_nobody_in_and_fails_each_time(self):
        done = self.tutti("run", "-n", 3, "--grace", "0.5", "--replace", "--max-restarts", 1, "--", "sh", "-c",
                          '[ -n "$RANK" ] || exec sleep 20; [ $RANK = 1 ] || sleep 0.5; exit 3')
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertRegex(done.stderr, r"starting all ranks again \(1 of 1\)[^$]*rank 1 .* was the first to fail, after .*: exited with status 3")
        self.assertTrue(done.stderr.endswith("\n  no restarts were left\n"), done.stderr)

    def test_ranks_that_go_on_without_the_dead_end_the_job_well(self):
        done = self.job(60, "leave", "2@20", options=("--spares", 1))
        self.assertEqual(done.returncode, 0, self.everything)
        self.assertRegex(self.words, rf"^tutti run: rank 2 .* was {KILLED}; spare 0 is to take its place, 2 restarts left$")

    def test_a_rank_that_dies_before_the_ranks_have_met(self):
        done = self.tutti("run", "-n", 3, "--grace", "0.5", "--replace", "--", "sh", "-c",
                          f'[ "$RANK$TORCHELASTIC_RESTART_COUNT" != 10 ] || exit 3; exec {PROGRAM} 20 repair', timeout=40)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"rank 1 \(pid \d+\) was the first to fail, after .*: exited with status 3")
        self.assertIn("\ntutti run: starting all ranks again (1 of 3)", done.stderr)
        self.assertNotIn("is to take its place", done.stderr)

    def test_ranks_of_two_nodes(self):
        port = free_port()
        for deaths, status in ((("3@20",), 0), (("0@20", "3@40", "1@60"), 0), (("0@20", "1@20", "2@20", "3@20"), 0)):
            nodes = [subprocess.Popen([TUTTI, "run", "--nnodes=2", f"--node-rank={k}", "--master-addr=127.0.0.1", "--spares=1",
                                       f"--master-port={port}", "-n", "2", PROGRAM, "90", "repair", *deaths], stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, text=True) for k in (1, 0)]
            said = [node.communicate(timeout=60)[0] for node in nodes]
            self.assertEqual([node.returncode for node in nodes], [status, status], said)
            for each in range(4):
                self.assertIn(f"[rank {each}] done as rank {each} of 4 at step 90", said[0] + said[1])
            together = len(deaths) == 4
            self.assertEqual("starting all ranks again (1 of 3)" in said[0], together, said)
            self.assertEqual(bool(re.search(r"spare [01]\.0 \(pid \d+\) is rank [03] of 4 now", said[0] + said[1])), not together, said)

    def test_a_node_whose_restarts_are_used_up_ends_the_job(self):
        port = free_port()
        nodes = [subprocess.Popen([TUTTI, "run", "--nnodes=2", f"--node-rank={k}", "--master-addr=127.0.0.1", "--replace",
                                   "--max-restarts=1", f"--master-port={port}", "-n", "2", PROGRAM, "900", "repair", "2@20", "3@60"],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for k in (1, 0)]
        said = [node.communicate(timeout=60)[0] for node in nodes]
        self.assertEqual([node.returncode for node in nodes], [137, 137], said)
        self.assertRegex(said[0], rf"tutti run: rank 3 \(pid \d+\) was the first to fail, after .* s: {KILLED}")
        self.assertRegex(said[1], rf"tutti run: node 1 failed: rank 3 \(pid \d+\) was the first to fail, after .* s: {KILLED}")

    def test_the_loss_of_node_0_ends_the_job_and_the_others_name_the_flag_with_which_it_would_not(self):
        port = free_port()
        nodes = [subprocess.Popen([TUTTI, "run", "--nnodes=1:2", f"--node-rank={k}", "--master-addr=127.0.0.1", f"--master-port={port}",
                                   PROGRAM, "100000", "take"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for k in (0, 1)]
        self.addCleanup(nodes[0].communicate)
        while "[rank 1] pid" not in (line := nodes[1].stdout.readline()):
            self.assertTrue(line, "the job has ended")
        nodes[0].kill()
        said = nodes[1].communicate(timeout=20)[0]
        self.assertEqual(nodes[1].returncode, 1, said)
        self.assertRegex(said, r"tutti run: node 0 failed: its launcher, which serves the job's store at 127.0.0.1 port \d+, was lost: .*; "
                               r"the ranks of this node are ended; with --standby a job goes on without its node 0\n")

    def started(self, *arguments, options):
        """The job, and its processes' ids by the labels of their lines."""
        job = subprocess.Popen([TUTTI, "run", "-n", "2", "--grace", "0.5", *options, PROGRAM, *arguments], text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.addCleanup(job.kill)
        pids = {}
        while len(pids) < 3 and (line := job.stdout.readline()):
            said = re.match(r"\[(.*?)\] pid (\d+)", line)
            if said:
                pids[said[1]] = int(said[2])
        return job, pids

    def test_a_spare_that_is_killed_while_it_waits(self):
        job, pids = self.started("150", "repair", options=("--spares=1", "--max-restarts=1"))
        os.kill(pids["spare 0"], signal.SIGKILL)
        while "[spare 1] pid" not in (line := job.stdout.readline()):
            if line.startswith("tutti run: spare"):
                self.assertRegex(line, rf"spare 0 \(pid \d+\) was {KILLED} before it had joined; spare 1 is to take its place, 0 restarts left")
            self.assertTrue(line, "the job has ended")
            again = re.match(r"\[spare 1\] pid (\d+)", line)
        again = re.match(r"\[spare 1\] pid (\d+)", line)
        os.kill(int(again[1]), signal.SIGKILL)
        rest = job.communicate(timeout=20)[0]
        self.assertRegex(rest, rf"spare 1 \(pid \d+\) was {KILLED} before it had joined; no restarts are left, and none comes for it")
        self.assertEqual(job.returncode, 0, rest)

    def test_a_job_that_is_ended_leaves_no_spare(self):
        job, pids = self.started("100000", "repair", options=("--spares=1",))
        os.kill(pids["rank 1"], signal.SIGKILL)
        while "is rank 1 of 2 now" not in (line := job.stdout.readline()):
            self.assertTrue(line, "the job has ended")
        job.send_signal(signal.SIGINT)
        rest = job.communicate(timeout=20)[0]
        self.assertEqual(job.returncode, 130, rest)
        self.assertIn("tutti run: stopped by SIGINT", rest)
        self.assertNotIn("the first to fail", rest)
        for pid in pids.values():
            self.assertFalse(pathlib.Path(f"/proc/{pid}").exists())

    def test_ranks_of_an_ordinary_job_inside_one_whose_ranks_are_replaced(self):
        done = self.tutti("run", "-n", 1, "--spares", 1, "--", "sh", "-c",
                          f'[ -n "$RANK" ] && exec sleep 1; {TUTTI} run -n 1 env; sleep 20', timeout=30)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"\[rank 0\] RANK=0")
        self.assertNotRegex(done.stdout, "TUTTI_NEWCOMER|TUTTI_REPLACES")


if __name__ == "__main__":
    main("cli_replace_test")
