"""Whom tutti run names when a job fails: the rank that the ranks' own verdict is about, whoever ended first."""
import pathlib
import re
import subprocess

from cli_case import TUTTI, CliCase, free_port, main

PROGRAM = pathlib.Path(TUTTI).parent.parent / "tests/blame_program"
QUICK = ("--grace", "0.5")


class Blame(CliCase):
    def fails(self, mode, *options, ranks=4):
        """The launcher's own words."""
        done = self.tutti("run", "-n", ranks, *QUICK, *options, PROGRAM, mode)
        self.assertNotEqual(done.returncode, 0, done.stderr)
        self.said = done.stderr
        return done.returncode, "\n".join(line for line in done.stderr.splitlines() if not line.startswith("[rank "))

    def test_a_rank_that_hangs_though_the_others_end_first(self):
        for mode in ("hang", "spin"):
            status, words = self.fails(mode)
            self.assertRegex(words, r"^tutti run: the ranks blame rank 2 \(pid \d+, still running\), after .* s: all_reduce #6 .*"
                                    r"timed out.*\n  rank 2: has not called it: ")
            self.assertNotIn("was the first to fail", words)
            self.assertNotIn("rank 2 killed", words, "it is not among the others")
            self.assertEqual(status, 128 + 6, "that of the first that ended badly by itself")

    def test_a_rank_that_hangs_before_it_joins(self):
        _, words = self.fails("late")
        self.assertRegex(words, r"^tutti run: the ranks blame rank 2 \(pid \d+, still running\), after .*: "
                                r"init of 4 ranks: 3 of them arrived in time; missing: rank 2")

    def test_a_rank_that_ends_by_itself(self):
        for mode, status, how in (("kill", 137, r"killed by signal 9 \(SIGKILL\)"), ("segv", 139, r"killed by signal 11 \(SIGSEGV\)"),
                                  ("throw", 134, r"killed by signal 6 \(SIGABRT\)"), ("exit", 3, "exited with status 3")):
            with self.subTest(mode=mode):
                returned, words = self.fails(mode)
                self.assertEqual(returned, status, words)
                self.assertRegex(words, rf"^tutti run: rank 2 \(pid \d+\) was the first to fail, after .*: {how}")
                own = how if mode == "exit" else "killed by " + re.search(r"SIG\w+", how)[0]
                self.assertEqual(len(re.findall(rf"\[rank [013]\] .*rank 2 \(.*\) is gone: {own}", self.said)), 3, self.said)

    def test_a_rank_that_leaves_while_others_need_it(self):
        status, words = self.fails("leave")
        self.assertRegex(words, r"^tutti run: the ranks blame rank 2 \(pid \d+, exited with status 0\), after .* rank 2 has left")
        self.assertEqual(status, 128 + 6)

    def test_ranks_that_disagree_are_all_named_and_none_first(self):
        _, words = self.fails("size")
        self.assertRegex(words, r"^tutti run: the ranks disagree, after .*: operation #6 .* × 999.*")
        self.assertRegex(words, r"\n  the ranks here: rank 0 .*rank 1 .*rank 2 .*rank 3 ")

    def test_ranks_that_wait_for_each_other(self):
        _, words = self.fails("deadlock")
        named = re.search(r"^tutti run: the ranks blame rank (\d) .*timed out", words)
        self.assertTrue(named, words)
        self.assertRegex(words, rf"\n  rank {named[1]}: has not called it: ")
        self.assertNotIn("its last lines", words)

    def test_the_verdict_is_not_repeated_by_the_last_lines(self):
        for mode in ("hang", "size"):
            self.fails(mode)
            headlines = re.findall(r"all_reduce #6 in group|operation #6 in group", self.said)
            self.assertEqual(len(headlines), (3 if mode == "hang" else 4) + 1, self.said)

    def test_a_rank_of_another_node(self):
        port = free_port()
        nodes = [subprocess.Popen([TUTTI, "run", "--nnodes=2", f"--node-rank={k}", "--master-addr=127.0.0.1", *QUICK,
                                   f"--master-port={port}", "-n", "2", PROGRAM, "hang"], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE, text=True) for k in (1, 0)]
        said = [node.communicate(timeout=60)[1] for node in nodes]
        for one in said:
            self.assertRegex(one, r"tutti run: .*the ranks blame rank 2 \(", said)
            self.assertNotIn("was the first to fail", one)

    def test_an_earlier_failure_that_the_ranks_survived_blames_nobody(self):
        status, words = self.fails("again", ranks=3)
        self.assertEqual(status, 7, words)
        self.assertRegex(words, r"^tutti run: rank 1 \(pid \d+\) was the first to fail, after .*: exited with status 7")


if __name__ == "__main__":
    main("cli_blame_test")
