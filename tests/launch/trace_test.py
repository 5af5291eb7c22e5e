"""tutti trace: dumps of a job's ranks, in words and as a timeline; what is no dump is refused."""
import json
import pathlib
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
