"""tutti explain --graph: graphs in words, what the passes make of them, a picture; errors of files that hold none."""
import pathlib
import re
import tempfile
import xml.etree.ElementTree as xml

from cli_case import CliCase, main

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
STEP = "docs/images/graph/step.txt"
PICTURE = "docs/images/graph.svg"


class ExplainGraph(CliCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="graph-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.text = (ROOT / STEP).read_text()
        self.ranks = ["tutti graph 1\n" + part for part in self.text.split("tutti graph 1\n")[1:]]

    def file(self, name, text):
        (self.folder / name).write_text(text)
        return self.folder / name

    def explained(self, *files, status=0, more=()):
        done = self.tutti("explain", "--graph", *files, *more)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout

    def test_graphs_of_all_ranks_come_in_one_file_or_in_several(self):
        one = self.explained(ROOT / STEP)
        files = [self.file(f"step.{rank}", text) for rank, text in enumerate(self.ranks)]
        self.assertEqual(self.explained(*files), one)
        self.assertEqual(self.explained(*reversed(files)), one)
        other = self.explained(*files, more=("--rank", 1))
        self.assertIn("rank 1: 11 nodes", other)
        self.assertIn("proof holds for 2 ranks", other)

    def test_it_prints_nodes_with_their_times_and_what_each_pass_does(self):
        said = self.explained(ROOT / STEP)
        self.assertIn('group "world": ranks 0, 1; a collective takes 12.0 us, and 250 us more for each MB', said)
        self.assertRegex(said, r'(?m)^ +0 +0\.0 +180\.0  compute step "forward" \(train.cpp:20\)$')
        self.assertRegex(said, r"(?m)^ +2 +340\.0 +274\.1  all_reduce of float32 × 262144, avg \(train.cpp:25\)$")
        passes = re.findall(r"(?m)^([a-z ]+): ([0-9.]+) us -> ([0-9.]+) us$", said)
        self.assertLessEqual({"algebra", "dead values", "buckets", "overlap"}, {name for name, _, _ in passes})
        for (_, _, after), (_, before, _) in zip(passes, passes[1:]):
            self.assertEqual(after, before)
        self.assertLess(float(passes[-1][2]), float(passes[0][1]))
        self.assertIn(f"a replay: {passes[0][1]} us before, {passes[-1][2]} us after", said)
        self.assertIn("3 calls became one: all_reduce of float32 × 3072 in 3 pieces, avg", said)
        # The diff of buckets: one call stays, in another form, and nothing else changes.
        diff = said[said.index("\nbuckets: "):said.index("\noverlap: ")].splitlines()
        removed = [line for line in diff if line.startswith("    -")]
        added = [line for line in diff if line.startswith("    +")]
        self.assertEqual(sum("all_reduce" in line for line in removed), 3, diff)
        self.assertEqual(sum("all_reduce" in line for line in added), 1, diff)
        self.assertFalse(any("buffer" in line or "compute" in line for line in removed + added), diff)
        self.assertIn("    +node 11 wait of 2", said)

    def test_the_picture_of_the_docs_is_current(self):
        made = self.folder / "made.svg"
        self.explained(ROOT / STEP, more=("--svg", made))
        self.assertEqual(made.read_text(), (ROOT / PICTURE).read_text(),
                         f"{PICTURE} shows other passes; type: tutti explain --graph {STEP} --svg {PICTURE}")
        picture = xml.fromstring(made.read_text())
        texts = ["".join(text.itertext()) for text in picture.iter("{http://www.w3.org/2000/svg}text")]
        self.assertTrue(any(text.startswith("rank 0, before: 11 nodes") for text in texts), texts)
        self.assertTrue(any(text.startswith("rank 0, after: ") for text in texts), texts)
        self.assertIn("prefers-color-scheme: dark", made.read_text())

    def test_graphs_that_do_not_prove_end_in_1_and_say_why(self):
        wrong = self.ranks[1].replace("float32 sum", "float32 max")
        said = self.explained(self.file("0", self.ranks[0]), self.file("1", wrong), status=1)
        self.assertIn("the proof fails", said)
        self.assertIn("all_reduce", said[said.index("the proof fails"):])
        self.assertNotIn("buckets", said)
        alone = self.explained(self.file("0", self.ranks[0]), status=1)
        self.assertIn('group "world" has rank 1, of which there is no graph', alone)

    def test_a_graph_that_passes_have_changed_is_shown_as_it_is(self):
        text = ('tutti graph 1\ngroup "w" ranks 0 rank 0 fast latency 1 byte 0 changed\nbuffer 4\n'
                'node 0 all_reduce group 0 float32 sum piece 0 1 reads 0+0:4 writes 0+0:4\n')
        said = self.explained(self.file("changed", text), more=("--svg", self.folder / "one.svg"))
        self.assertIn("passes have changed these graphs already", said)
        self.assertEqual((self.folder / "one.svg").read_text().count("class=\"title\""), 1)

    def test_what_cannot_be_read_is_refused_by_name_and_line(self):
        broken = self.file("broken", self.ranks[0] + self.ranks[1].replace("node 3 compute", "node 3 dance"))
        lines = broken.read_text().splitlines()
        line = next(i for i, text in enumerate(lines, 1) if "dance" in text)
        for arguments, words in (((self.folder / "none",), "none: expected a file with graphs"),
                                 ((self.folder,), "it is a folder"),
                                 ((self.file("empty", ""),), 'empty: it is empty: expected the line "tutti graph 1"'),
                                 ((broken,), f"broken: line {line}, column 13: expected the kind of a node"),
                                 ((ROOT / STEP, "--rank", 5), "--rank 5: expected a rank with a graph: ranks 0, 1"),
                                 ((ROOT / STEP, "--svg", self.folder / "no" / "x.svg"), "expected a file that can be written")):
            done = self.tutti("explain", "--graph", *arguments)
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertIn(words, done.stderr)
        self.assertIn("expected one of them", self.tutti("explain", "all_reduce", "--graph", ROOT / STEP).stderr)


if __name__ == "__main__":
    main("cli_explain_graph_test")
