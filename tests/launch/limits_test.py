"""tutti run where something is missing or too small: nodes that are lost, descriptors."""
import os
import resource
import signal
import subprocess
import time

from cli_case import TOUR, TUTTI, CliCase, main


class Descriptors(CliCase):
    def limited(self, soft, hard, *arguments):
        _, usual = resource.getrlimit(resource.RLIMIT_NOFILE)
        return self.tutti("run", *arguments, timeout=100,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard or usual)))

    def test_a_soft_limit_is_raised_for_the_launcher_and_given_back_to_ranks(self):
        done = self.limited(64, None, "-n", 24, "--timeout", 60, TOUR)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("every result is as expected", done.stdout)
        done = self.limited(64, None, "-n", 24, "--no-prefix", "sh", "-c", "ulimit -Sn")
        self.assertEqual(done.stdout, "64\n" * 24)

    def test_hundreds_of_ranks_start_though_the_soft_limit_is_below_four_for_each(self):
        done = self.limited(256, None, "-n", 200, "--no-prefix", "sh", "-c", "echo $RANK; sleep 1")
        self.assertEqual(sorted(map(int, done.stdout.split())), list(range(200)), done.stderr)

    def test_a_hard_limit_that_is_too_low_is_told_with_what_is_needed(self):
        for arguments, count in (([], 128), (["--log-dir", "/tmp"], 176)):
            done = self.limited(100, 100, "-n", 24, *arguments, "echo", "started")
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertRegex(done.stderr, f"24 ranks on this node need {count} open files.* may have 100: raise the hard limit")
        self.assertEqual(self.limited(128, 128, "-n", 24, "--timeout", 60, TOUR).returncode, 0, "exactly enough")


class LostNodes(CliCase):
    """A launcher that stands still is taken for lost after 15 s; all cases run side by side."""

    def setUp(self):
        self.jobs = []

    def tearDown(self):
        for job in self.jobs:
            if job.poll() is None:
                job.send_signal(signal.SIGCONT)
                job.kill()
            job.communicate()

    def start(self, nodes, number):
        port = 20000 + (os.getpid() * 7 + number) % 9000
        started = [subprocess.Popen([TUTTI, "run", "--nnodes", str(nodes), "--node-rank", str(k), "--master-addr", "127.0.0.1",
                                     "--master-port", str(port), "sh", "-c", "echo up; exec sleep 100"], text=True,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE) for k in range(nodes)]
        self.jobs += started
        return started

    def test_those_that_are_left_say_which_node_was_lost_and_why(self):
        cases = [(signal.SIGKILL, 1, 2), (signal.SIGSTOP, 1, 2), (signal.SIGKILL, 0, 2), (signal.SIGSTOP, 0, 2),
                 (signal.SIGKILL, 2, 3)]
        jobs = [self.start(nodes, number) for number, (_, _, nodes) in enumerate(cases)]
        for job in jobs:
            for node in job:
                self.assertIn("up", node.stdout.readline())
        time.sleep(1)
        begin = time.monotonic()
        for job, (how, lost, _) in zip(jobs, cases):
            job[lost].send_signal(how)
        for job, (how, lost, _) in zip(jobs, cases):
            for k, node in enumerate(job):
                if k == lost:
                    continue
                with self.subTest(how=how.name, lost=lost, node=k):
                    _, errors = node.communicate(timeout=max(1, 40 + begin - time.monotonic()))
                    self.assertEqual(node.returncode, 1, errors)
                    self.assertRegex(errors, rf"tutti run: node {lost} failed: its launcher.* was lost: ")
                    if how == signal.SIGSTOP:
                        self.assertRegex(errors, r"nothing was heard of it for 1[5-9]\.\d s")
                    elif lost != 0:
                        self.assertIn("was lost: its connection has ended: it was killed, or its host was", errors)
                    if lost != 0:
                        self.assertRegex(errors, r"its last sign of life came at \d\d:\d\d:\d\d UTC")
        for job, (how, lost, _) in zip(jobs, cases):
            if how == signal.SIGSTOP and lost != 0:  # node 0 would wait for the others' signs for as long again
                with self.subTest("the lost one itself", lost=lost):
                    job[lost].send_signal(signal.SIGCONT)
                    _, errors = job[lost].communicate(timeout=40)
                    self.assertEqual(job[lost].returncode, 1, errors)
                    self.assertRegex(errors, "tutti run: .*node")


if __name__ == "__main__":
    main("cli_limits_test")
