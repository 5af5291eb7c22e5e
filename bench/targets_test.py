#!/usr/bin/env python3
"""targets.py with a program in tutti's place whose figures are known. Standard library only."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import results

SCRIPT = pathlib.Path(__file__).resolve().parent / "targets.py"
# Every collective takes 1 us at tutti and 2.5 us at its peers, but for what `slow` names; the peers use as much CPU.
FAKE = '''#!{python}
import json, os, sys
words = sys.argv[1:]
if "--version" in words:
    print("tutti 1.2.3")
    sys.exit(0)
if "--help" in words:
    print("--sizes {flags}")
    sys.exit(0)
after = lambda word: words[words.index(word) + 1]
rows = []
for collective in words[1].split(","):
    for size in map(int, after("--sizes").split(",")):
        for name in ["tutti"] + (after("--against").split(",") if "--against" in words else []):
            us = 1.0 if name == "tutti" else 2.5
            if name == "tutti" and [collective, size] in {slow}:
                us = 10.0
            rows.append({{"collective": collective, "bytes": 0 if collective == "barrier" else size, "median_us": us, "mean_us": us,
                         "implementation": name + " 1.0", "wrong": {wrong} if name == "tutti" else 0, "cpu_us": 2 * us,
                         "line_ns": 500, "traffic_bound_us": 0.9}})
with open(after("--json"), "w") as out:
    json.dump(rows, out)
'''


class Table(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.build = pathlib.Path(self.folder.name)
        (self.build / "bin").mkdir()

    def run_with(self, *words, slow=(), wrong=0, flags=""):
        program = self.build / "bin/tutti"
        program.write_text(FAKE.format(python=sys.executable, slow=[list(one) for one in slow], wrong=wrong, flags=flags))
        program.chmod(0o755)
        done = subprocess.run([sys.executable, str(SCRIPT), "--build", str(self.build), *words], capture_output=True, text=True)
        lines = {line["target"]: line for line in json.loads((self.build / "bench/targets.json").read_text())}
        self.assertEqual(len([line for line in done.stdout.splitlines() if "falls short" in line or "  holds" in line]),
                         len(lines), done.stdout)
        return done, lines

    def line(self, lines, start):
        found, = [line for target, line in lines.items() if target.startswith(start)]
        return found

    def test_a_target_holds_when_all_its_cases_do(self):
        done, lines = self.run_with("--only", "shm,large")
        self.assertEqual(done.returncode, 0, done.stderr)
        medium = self.line(lines, "4 KB to 1 MB")
        self.assertTrue(medium["holds"])
        self.assertEqual(len(medium["cases"]), 8 * 5)
        self.assertAlmostEqual(medium["measured"], 0.4)
        self.assertTrue(self.line(lines, "all_reduce, 1 to 256 MB: speed")["holds"])
        # Half of the best is 1.25 us, two ways of a cache line are 1 us.
        self.assertAlmostEqual(self.line(lines, "8 B all_reduce, barrier")["measured"], 0.8)
        self.assertAlmostEqual(self.line(lines, "8 B all_reduce: time to a cache line")["measured"], 2)
        self.assertAlmostEqual(self.line(lines, "CPU time a byte")["measured"], 0.4)

    def test_one_case_that_falls_short_is_named(self):
        done, lines = self.run_with("--only", "shm", slow=[("gather", 65536)])
        line = self.line(lines, "4 KB to 1 MB")
        self.assertFalse(line["holds"])
        self.assertEqual((line["case"], line["measured"]), ("gather 64 KB", 4))
        self.assertIn("falls short in 1 of 40", done.stdout)
        self.assertTrue(self.line(lines, "8 B broadcast, all_gather")["holds"])
        self.assertTrue(self.line(lines, "8 B reduce, gather")["holds"])

    def test_what_is_not_measured_falls_short(self):
        done, lines = self.run_with("--only", "symmetric")
        self.assertNotEqual(done.returncode, 0)
        for start, why in (("all_reduce, 1 to 256 MB, symmetric", "has no --symmetric"), ("the choice", "was not run")):
            line = self.line(lines, start)
            self.assertFalse(line["holds"])
            self.assertIsNone(line["measured"])
            self.assertIn(why, line["case"])
        done, lines = self.run_with("--only", "symmetric", flags="--symmetric")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertAlmostEqual(self.line(lines, "the same: part of what the memory")["measured"], 0.9)

    def test_blocks_of_each_pattern_have_a_target_of_their_own(self):
        done, lines = self.run_with("--only", "blocks", slow=[("all_to_all_v_skewed", 1 << 20)])
        self.assertEqual(done.returncode, 0, done.stderr)
        balanced = self.line(lines, "all_to_all_v, blocks nearly alike")
        self.assertTrue(balanced["holds"])
        self.assertEqual(len(balanced["cases"]), 2 * 4)
        self.assertEqual(list(self.line(lines, "all_to_all_v, 3 blocks")["cases"]), ["12 KB, 8 ranks"])
        self.assertAlmostEqual(self.line(lines, "all_to_all_v, 90 %")["measured"], 0.25)
        self.assertIsNone(self.line(lines, "TCP all_to_all_v, 8 ranks")["measured"])

    def test_medians_count_also_over_kept_runs(self):
        for keep, slow in ([], []), (["--keep"], [("gather", 65536)]), (["--keep"], []):
            _, lines = self.run_with("--only", "shm", *keep, slow=slow)
        self.assertTrue(self.line(lines, "4 KB to 1 MB")["holds"])
        _, lines = self.run_with("--only", "large", "--keep")
        self.assertTrue(self.line(lines, "4 KB to 1 MB")["holds"], "groups can be run one by one")
        self.assertTrue(self.line(lines, "all_reduce, 1 to 256 MB: speed")["holds"])

    def test_saved_lines_become_the_table_of_a_page(self):
        file = self.build / "saved.json"
        self.run_with("--only", "shm", "--save", str(file), slow=[("gather", 65536)])
        data = json.loads(file.read_text())
        self.assertEqual((data["about"]["tutti"], data["about"]["turns"]), ("1.2.3", 1))
        page = "before\n" + results.BEGIN + "old\n" + results.END + "after\n"
        made = results.with_table(page, data)
        self.assertTrue(made.startswith("before\n") and made.endswith("after\n") and "old" not in made)
        self.assertIn("| 4 KB to 1 MB, every collective: time to the best's | <= 0.9 | **4** | gather 64 KB | 1 of 40 |", made)
        self.assertIn("| 8 B all_reduce: time to a cache line's way between cores | <= 3 | 2 | all_reduce | 0 of 1 |", made)
        self.assertIn("| a wait of 100 ms: part of a core | <= 2.0 % | - | not measured | - |", made)
        self.assertEqual(results.with_table(made, data), made)
        data["targets"][0]["measured"] = 0.123
        self.assertNotEqual(results.with_table(made, data), made)

    def test_the_page_shows_what_its_data_file_has(self):
        docs = SCRIPT.parent.parent / "docs"
        page, data = (docs / "performance.md").read_text(), json.loads((docs / "performance.json").read_text())
        self.assertEqual(results.with_table(page, data), page, "type: bench/results.py")

    def test_wrong_results_are_a_failure(self):
        done, _ = self.run_with("--only", "large", wrong=3)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("wrong results in all_reduce", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=1)
