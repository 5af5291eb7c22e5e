"""tutti trace: dumps of a job's ranks, in words and as a timeline; what is no dump is refused."""
import json
import pathlib
import pickle
import tempfile

from cli_case import TOUR, CliCase, main


class Trace(CliCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="trace-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.dumps = self.folder / "dumps"

    def test_a_job_leaves_dumps_that_make_a_timeline(self):
        job = self.tutti("run", "-n", 4, "--", TOUR, env={"TUTTI_TRACE_DIR": str(self.dumps)})
        self.assertEqual(job.returncode, 0, job.stderr)
        self.assertEqual(len(list(self.dumps.iterdir())), len(list(self.dumps.glob("*.dump"))))
        chrome = self.folder / "timeline.json"
        trace = self.tutti("trace", self.dumps, "--chrome", chrome)
        self.assertEqual(trace.returncode, 0, trace.stderr)
        self.assertIn("4 ranks\n", trace.stdout)
        self.assertIn("nobody waits", trace.stdout)
        events = json.loads(chrome.read_text())["traceEvents"]
        self.assertEqual({e["pid"] for e in events}, {0, 1, 2, 3})
        slices = [e for e in events if e["ph"] == "X"]
        self.assertTrue(any("all_reduce of " in e["name"] for e in slices))
        self.assertTrue(all(e["dur"] >= 0 and e["ts"] >= 0 for e in slices))
        starts, ends = ([e["id"] for e in events if e["ph"] == phase] for phase in "sf")
        self.assertTrue(starts)
        self.assertEqual(starts, ends)

    def test_it_sums_up_for_which_rank_the_others_waited(self):
        self.dumps.mkdir()
        begins = {0: (0, 100, 200), 1: (10, 500, 210), 2: (20, 1100, 200)}  # in ms; the second is a broadcast of rank 1
        for rank, times in begins.items():
            lines = [{"tutti_dump": 1, "group": "g", "world": "1", "rank": rank, "size": 3, "machine": "m", "host": "h",
                      "pid": 1, "reason": "end", "taken_ns": 9 * 10**9}]
            for number, at in enumerate(times, 1):
                lines.append({"number": number, "sequence": number, "what": "x", "fingerprint": "7", "state": "completed",
                              "kind": "from_root" if number == 2 else "collective", "enqueued_ns": at * 10**6})
                if number == 2:
                    lines[-1]["peer"] = 1
            (self.dumps / f"g.rank-{rank}.dump").write_text("".join(json.dumps(line) + "\n" for line in lines))
        said = self.tutti("trace", self.dumps)
        self.assertEqual(said.returncode, 0, said.stderr)
        table = said.stdout[said.stdout.index("  waiting in 3 collectives"):].splitlines()
        self.assertEqual([line.split() for line in table[2:]], [["1", "0.420", "0.010", "2"], ["2", "0.030", "0.010", "1"],
                                                                ["0", "0.000", "0.430", "0"]])

    def test_it_leaves_files_for_torchfrtrace_where_they_are_wanted(self):
        job = self.tutti("run", "-n", 4, "--", TOUR,
                         env={"TUTTI_TRACE_DIR": str(self.dumps), "TUTTI_TRACE_FORMAT": "torch"})
        self.assertEqual(job.returncode, 0, job.stderr)
        made = self.folder / "made"
        trace = self.tutti("trace", self.dumps, "--torch", made)
        self.assertEqual(trace.returncode, 0, trace.stderr)
        for folder in (self.dumps, made):
            ranks = [pickle.loads(next(folder.glob(f"flight_*_rank_{rank}")).read_bytes()) for rank in range(4)]
            self.assertEqual({rank["version"] for rank in ranks}, {"2.11"})
            self.check_flights(ranks)

    def check_flights(self, ranks):
        world = next(name for name, group in ranks[0]["pg_config"].items() if group["desc"] == "default_pg")
        collectives, messages = [], {}
        for trace in ranks:
            self.assertEqual(trace["pg_config"][world]["ranks"], "[0, 1, 2, 3]")
            for entry in trace["entries"]:
                self.assertEqual((entry["state"], entry["retired"]), ("completed", True))
                name, description = entry["process_group"]
                self.assertEqual(trace["pg_config"][name]["desc"], description)
                if entry["is_p2p"]:
                    self.assertEqual(description, "messages")
                    way = entry["profiling_name"].split(" ")[0]
                    messages.setdefault((name, entry["collective_seq_id"], entry["input_sizes"][0][0]), []).append(way)
            collectives.append([(entry["collective_seq_id"], entry["profiling_name"]) for entry in trace["entries"]
                                if entry["process_group"][0] == world])
            numbers = [entry["record_id"] for entry in trace["entries"]]
            self.assertEqual(numbers, list(range(len(numbers))))
            self.assertTrue(all(entry["frames"] for entry in trace["entries"] if not entry["is_p2p"]))
        self.assertEqual(collectives, [collectives[0]] * 4)
        names = {name for _, name in collectives[0]}
        self.assertLessEqual({"gloo:all_reduce", "gloo:broadcast", "gloo:all_gather", "gloo:all_to_all"}, names)
        self.assertTrue(messages)
        self.assertEqual({tuple(sorted(ways)) for ways in messages.values()}, {("gloo:recv", "gloo:send")})
        splits = [[(entry["input_split_sizes"], entry["output_split_sizes"]) for entry in trace["entries"]
                   if entry["profiling_name"] == "gloo:all_to_all"] for trace in ranks]
        for calls in zip(*splits):
            self.assertEqual([[sent[to] for to in range(4)] for sent, _ in calls],
                             [[calls[to][1][source] for to in range(4)] for source in range(4)])

    def test_another_format_is_refused(self):
        job = self.tutti("run", "-n", 2, "--", TOUR, env={"TUTTI_TRACE_FORMAT": "xml"})
        self.assertNotEqual(job.returncode, 0)
        self.assertIn("environment variable TUTTI_TRACE_FORMAT=xml: expected tutti or torch", job.stderr)
        job = self.tutti("run", "-n", 2, "--", TOUR, env={"TUTTI_TRACE_FORMAT": "torch"})
        self.assertEqual(job.returncode, 0, job.stderr)
        self.assertIn("TUTTI_TRACE_FORMAT=torch is for the files of TUTTI_TRACE_DIR, which is not set", job.stderr)

    def test_without_being_asked_a_job_leaves_nothing(self):
        job = self.tutti("run", "-n", 2, "--", TOUR, cwd=self.folder)
        self.assertEqual(job.returncode, 0, job.stderr)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_counters_are_written_for_prometheus(self):
        job = self.shell(4, f'TUTTI_METRICS_FILE={self.folder}/metrics.$RANK exec "{TOUR}"')
        self.assertEqual(job.returncode, 0, job.stderr)
        for rank in range(4):
            text = (self.folder / f"metrics.{rank}").read_text()
            self.assertRegex(text, rf'tutti_operations_completed_total\{{group="[^"]+",rank="{rank}"\}} [1-9]')

    def test_what_is_no_dump_is_refused_by_name(self):
        bad = self.folder / "bad.dump"
        bad.write_bytes(b"\x7fELF" + bytes(range(256)) * 50)
        for places, complaint in (([bad], "bad.dump, line 1: expected a JSON object"),
                                  ([self.folder / "none.dump"], "none.dump: expected a file"),
                                  ([self.folder / "dumps"], "dumps: expected a file"),
                                  ([], "dumps is required")):
            answer = self.tutti("trace", *places)
            self.assertNotEqual(answer.returncode, 0)
            self.assertIn(complaint, answer.stderr)
        empty = self.folder / "empty"
        empty.mkdir()
        self.assertIn("no dumps in this folder", self.tutti("trace", empty).stderr)


if __name__ == "__main__":
    main("cli_trace_test")
