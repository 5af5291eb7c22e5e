"""tutti run --standby: a second node keeps the job's store, so that the node which serves it may die."""
import contextlib
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time

from cli_case import TUTTI, CliCase, free_port, main

PROGRAM = pathlib.Path(TUTTI).parent.parent / "tests/member_program"


class Standby(CliCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.stop = self.folder / "stop"
        self.port = free_port()
        self.nodes = {}

    def start(self, node, *options, ranks=2, mode=("100000", "take")):
        """A node's launcher; what it and its ranks say is in a file."""
        said = open(self.folder / f"node.{node}", "w")
        self.nodes[node] = subprocess.Popen([TUTTI, "run", "--grace=0.5", f"-n{ranks}", *options, PROGRAM, *mode], stdout=said,
                                            stderr=subprocess.STDOUT, env={**os.environ, "STOP_FILE": str(self.stop), "TUTTI_LOG_LEVEL": "info"})
        self.addCleanup(self.end, node)
        said.close()

    def start_as(self, node, nodes, *options, least="1:", **more):
        self.start(node, f"--nnodes={least}{nodes}", f"--node-rank={node}", "--master-addr=127.0.0.1", f"--master-port={self.port}", "--standby",
                   *options, **more)

    def begin(self, nodes, *options, ranks=2, **more):
        """A job that runs, and whose store has a standby."""
        for node in reversed(range(nodes)):
            self.start_as(node, nodes, *options, ranks=ranks, **more)
        for node in range(nodes):
            self.until(node, rf"rank {(node + 1) * ranks - 1}\] pid \d+")
        self.assertRegex(self.said(1), "this node keeps the standby of the job's store, at 127.0.0.1:")

    def said(self, node):
        return (self.folder / f"node.{node}").read_text()

    def until(self, node, pattern, within=20):
        end = time.monotonic() + within
        while not (found := re.search(pattern, self.said(node))):
            self.assertLess(time.monotonic(), end, f"node {node} does not say: {pattern}\n" +
                            "\n".join(f"--- node {each}\n{self.said(each)}" for each in self.nodes))
            time.sleep(0.02)
        return found

    def until_it_keeps_the_standby(self, node):
        self.until(node, "this node keeps the standby of the job's store")
        time.sleep(0.5)  # the store's clients hear of it a moment later

    def end(self, node):
        """The machine is lost: the launcher and its ranks."""
        job = self.nodes.pop(node, None)
        if job is None:
            return
        if job.poll() is not None:
            return
        job.kill()  # first, so that it cannot see its ranks' ends
        job.wait()
        for pid in re.findall(r"\] pid (\d+)", self.said(node)):
            command = pathlib.Path(f"/proc/{pid}/cmdline")
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if str(PROGRAM) in command.read_text():
                    os.kill(int(pid), signal.SIGKILL)

    def ends_well(self):
        self.stop.touch()
        for node, job in self.nodes.items():
            self.assertEqual(job.wait(30), 0, self.said(node))
        self.nodes.clear()

    def test_node_0_dies_and_the_other_goes_on(self):
        self.begin(2)
        self.end(0)
        began = time.monotonic()
        self.until(1, "goes on as rank 0 of 2", within=6)  # whichever number its launcher still writes before a rank's line
        print(f"the ranks go on after {time.monotonic() - began:.1f} s")
        self.until(1, r"the launcher that served the job's store is lost; this node, 1, serves it now, at 127.0.0.1:\d+, where launchers that come may --join")
        self.until(1, r"node 0: its launcher \(.*\) was lost: it served the job's store, .*; the job goes on with 1 of 2 nodes")
        self.ends_well()
        self.assertRegex(self.said(1), r"\[rank 0\] done as rank 0 of 2 at step \d+\n")
        self.assertRegex(self.said(1), r"\[rank 1\] done as rank 1 of 2 at step \d+\n")

    def test_the_next_node_keeps_the_store_when_one_after_the_other_dies(self):
        self.begin(3, ranks=1)
        self.end(0)
        self.until(1, "this node, 1, serves it now")
        self.until_it_keeps_the_standby(2)
        self.until(2, "goes on as rank 1 of 2")
        self.end(1)
        self.until(2, "goes on as rank 0 of 1", within=6)
        self.until(2, "this node, 2, serves it now")
        self.ends_well()
        self.assertRegex(self.said(2), r"done as rank 0 of 1 at step \d+\n")

    def test_the_node_with_the_standby_dies_and_another_takes_it(self):
        self.begin(3, ranks=1)
        self.end(1)
        self.until_it_keeps_the_standby(2)
        self.until(0, r"node 1: its launcher \(.*\) was lost: its connection has ended.*; the job goes on with 2 of 3 nodes")
        self.until(0, "goes on as rank 0 of 2")
        self.end(0)
        self.until(2, "goes on as rank 0 of 1", within=6)
        self.ends_well()

    def test_a_node_comes_after_the_first_is_lost(self):
        self.begin(2)
        self.end(0)
        place = self.until(1, r"serves it now, at (127.0.0.1:\d+),")[1]
        self.until(1, "goes on as rank 1 of 2")
        self.start(2, "--join", place, ranks=1)
        self.until(2, r"joined as rank 2 of 3 at step \d+", within=30)  # the place is free when ranks that were cut off have ended
        self.until_it_keeps_the_standby(2)
        self.until(1, r"goes on as rank 0 of 3")
        self.end(1)
        self.until(2, "goes on as rank 0 of 1", within=6)
        self.ends_well()

    def test_node_0_is_started_again_and_joins_the_job_that_runs(self):
        """And a node that looks for the job where node 0 is does so too."""
        self.begin(3, ranks=1)
        self.end(0)
        place = self.until(1, r"serves it now, at (127.0.0.1:\d+),")[1]
        self.end(2)
        self.until(1, "goes on as rank 0 of 1", within=30)
        self.start_as(0, 3, ranks=1)
        self.until(0, f"the job runs already, and its store is at {place}: this launcher joins it there")
        self.until(0, r"joined as rank \d of \d at step \d+", within=30)
        self.start_as(2, 3, ranks=1)
        self.until(2, "the job runs already, and its store is at .*: this launcher joins it there")
        self.until(2, r"joined as rank 2 of 3 at step \d+", within=30)
        self.until_it_keeps_the_standby(0)
        self.end(1)
        self.until(0, "goes on as rank 0 of 2", within=10)
        self.ends_well()

    def test_all_ranks_start_again_without_the_first_node(self):
        self.begin(2, "--max-restarts=1")
        self.end(0)
        self.until(1, "this node, 1, serves it now")
        self.until(1, "goes on as rank 1 of 2")
        for pid in re.findall(r"\] pid (\d+)", self.said(1)):
            os.kill(int(pid), signal.SIGKILL)
        self.until(1, r"(?s)starting all ranks again \(1 of 1\).*\[rank 1\] pid \d+ slot 1 rank '1' of '2'")
        self.ends_well()
        self.assertRegex(self.said(1), r"\[rank 1\] done as rank 1 of 2")

    def test_the_others_end_the_job_well_also_where_all_nodes_are_needed(self):
        self.begin(2, least="")
        self.end(0)
        self.until(1, r"node 0: its launcher .* was lost: .*; 1 of 2 nodes is left, and 2 are needed: another by --join is waited for, for 600 s")
        self.until(1, "goes on as rank 1 of 2")
        self.ends_well()

    def test_spares_of_the_other_node_take_the_places(self):
        self.begin(2, "--spares=2", mode=("400", "repair"))
        self.until(1, r"\[spare 1.1\] pid \d+")
        self.end(0)
        self.until(1, "joined as rank 1 of 4")
        self.ends_well()
        for rank in range(4):
            self.assertIn(f"[rank {rank}] done as rank {rank} of 4 at step 400", self.said(1))

    def test_a_first_node_that_stood_still_ends(self):
        self.begin(2)
        job = self.nodes.pop(0)
        self.addCleanup(job.kill)
        still = [job.pid, *(int(pid) for pid in re.findall(r"\] pid (\d+)", self.said(0)))]
        for pid in still:
            os.kill(pid, signal.SIGSTOP)
        self.until(1, "this node, 1, serves it now")
        for pid in still:
            os.kill(pid, signal.SIGCONT)
        self.assertEqual(job.wait(20), 1, self.said(0))
        self.assertRegex(self.said(0), "tutti run: this node, 0: .*(another node's launcher serves the job's store now|"
                                       "has taken this process for one that has ended)")
        self.until(1, "goes on as rank 0 of 2")
        self.ends_well()

    def test_node_0_leaves_when_it_is_told_to(self):
        self.begin(2)
        left = self.nodes.pop(0)
        self.addCleanup(left.kill)
        left.terminate()
        self.assertEqual(left.wait(10), 143, self.said(0))
        self.until(1, "goes on as rank 0 of 2", within=6)
        self.ends_well()

    def test_a_job_that_ends_says_nothing_of_its_servers(self):
        self.begin(2)
        self.ends_well()
        for node in (0, 1):
            self.assertNotRegex(self.said(node), "is lost|was lost|WARN|warn")

    def test_where_it_is_of_no_use_it_is_refused(self):
        done = self.tutti("run", "-n", 2, "--standby", "true")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("run: --standby with one node: expected --nnodes 2 or more, or MIN:MAX", done.stderr)
        hosts = self.folder / "hosts"
        hosts.write_text("a slots=1\nb slots=1\n")
        done = self.tutti("run", "--hostfile", hosts, "--standby", "true")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("run: --standby with --hostfile: expected one of them", done.stderr)

    def test_all_nodes_are_to_ask_for_it(self):
        options = ["--nnodes=2", "--replace", "--master-addr=127.0.0.1", f"--master-port={self.port}"]
        self.start(0, *options, "--node-rank=0", "--standby")
        self.start(1, *options, "--node-rank=1")
        for job in self.nodes.values():
            self.assertEqual(job.wait(20), 1)
        self.assertIn("node 1 was started with --nnodes 2:2 --max-restarts 3 --replace, node 0 with --nnodes 2:2 --max-restarts 3 --replace "
                      "--standby: expected the same on all nodes", self.said(0))


if __name__ == "__main__":
    main("cli_standby_test")
