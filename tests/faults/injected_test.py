#!/usr/bin/env python3
"""Faults that TUTTI_FAULTS injects into jobs of real processes. Usage: injected_test.py TUTTI HELLO TOUR"""
import sys
import time
import unittest

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/launch")
from cli_case import TOUR as HELLO, CliCase, main  # noqa: E402

TOUR = sys.argv[3]
OVER_TCP = {"TUTTI_TRANSPORT": "tcp", "TUTTI_TCP_CHECKSUM": "on"}


class InjectedFaults(CliCase):
    def hello(self, faults, program=HELLO, **variables):
        return self.tutti("run", "-n", 3, "--timeout", 50, program, env={"TUTTI_FAULTS": faults, **variables})

    def test_a_rank_kills_itself_in_the_midst_of_an_operation_and_the_others_name_it(self):
        for variables in ({}, OVER_TCP):
            for step in (0, 1):
                with self.subTest(step=step, **variables):
                    done = self.hello(f"rank=1 op=all_reduce step={step} kill", **variables)
                    self.assertEqual(done.returncode, 128 + 9, done.stderr)
                    self.assertIn("TUTTI_FAULTS: rank 1 kills itself in all_reduce #1", done.stderr)
                    self.assertRegex(done.stderr, r"rank 1 \(.*\) is gone: (killed by SIGKILL|its process has ended)")

    def test_a_rank_that_stops_for_a_moment_or_is_slow_changes_no_result(self):
        for faults, at_least in (("rank=1 stop=700ms step=0", 0.7), ("rank=2 delay=100ms", 0.1)):
            with self.subTest(faults=faults):
                began = time.monotonic()
                done = self.hello(faults)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(sorted(done.stdout.split()).count("3"), 3, done.stdout)  # 0 + 1 + 2
                self.assertGreater(time.monotonic() - began, at_least)
                self.assertIn("TUTTI_FAULTS: rank", done.stderr)

    def test_what_changes_on_the_way_is_found_by_the_checksum(self):
        done = self.hello("rank=0 op=all_reduce step=1 corrupt", **OVER_TCP)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r"what rank 0 .*sent to rank .*over TCP was changed on the way")

    def test_a_connection_that_breaks_is_named(self):
        done = self.hello("rank=2 op=any@10 step=0 drop", TOUR, **OVER_TCP)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r"rank [012] .*(connection|is gone)")

    def test_faults_without_a_network_say_so_and_change_nothing(self):
        done = self.hello("rank=2 drop step=0; rank=1 corrupt step=0")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("drop: rank 2 has no TCP connection", done.stderr)
        self.assertIn("corrupt: rank 1 has no TCP connection with checksums", done.stderr)

    def test_words_that_mean_nothing_are_refused_by_every_rank(self):
        done = self.hello("rank=1 op=allreduce kill")
        self.assertGreaterEqual(done.stderr.count('"op=allreduce": expected'), 3, done.stderr)

    def test_ranks_that_are_not_named_are_left_alone(self):
        done = self.hello("rank=7 kill")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("TUTTI_FAULTS", done.stderr)


if __name__ == "__main__":
    main("injected_faults_test")
