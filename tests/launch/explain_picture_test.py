"""tutti explain --svg: the steps of all ranks over predicted time, each in its row and after those that it waits for."""
import pathlib
import re
import tempfile
import xml.etree.ElementTree as xml

from cli_case import CliCase, main

SVG = "{http://www.w3.org/2000/svg}"
STEP = re.compile(r"rank (\d+) step (\d+): (\w+): .*?(?:, after ([\d ]+))?; from ([\d.]+) to ([\d.]+) µs")


class ExplainPicture(CliCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="picture-test-")
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name) / "schedule.svg"

    def explained(self, *arguments):
        done = self.tutti("explain", *arguments, "--svg", self.file)
        self.assertEqual(done.returncode, 0, done.stderr)
        return re.sub(r"\n {25}(?=\S)", " ", done.stdout)  # long lines go on below

    def picture(self):
        """{(rank, step): (kind, steps before it, begin, end, x, y)}, the lines between ranks, and the words."""
        root = xml.parse(self.file).getroot()
        steps = {}
        for bar in root.iter(f"{SVG}g"):
            rank, step, kind, after, begin, end = STEP.fullmatch(bar.find(f"{SVG}title").text).groups()
            place = bar.find(f"{SVG}rect")
            steps[int(rank), int(step)] = (kind, [int(word) for word in (after or "").split()], float(begin), float(end),
                                           float(place.get("x")), float(place.get("y")))
        lines = [(int(line.get("data-from")), int(line.get("data-to")), *map(float, re.findall(r"[\d.]+", line.get("d"))))
                 for line in root.iter(f"{SVG}path") if line.get("class") == "message"]
        return steps, lines, ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]

    def check_steps(self, said):
        """Every step that is printed is drawn, in the row of its rank, not before those that it waits for."""
        steps, _, _ = self.picture()
        printed = {}
        for rank, text in re.findall(r"(?ms)^  rank (\d+):\n(.*?)(?=^  rank |\Z)", said):
            for step, kind, rest in re.findall(r"(?m)^ +(\d+)  (\w+)(.*)$", text):
                after = re.search(r" after([ \d]+)$", rest)
                printed[int(rank), int(step)] = (kind, [int(word) for word in after.group(1).split()] if after else [])
        self.assertTrue(printed)
        for at, words in printed.items():
            self.assertEqual(steps[at][:2], words, at)
        for rank in {rank for rank, _ in printed}:
            self.assertEqual(sum(at[0] == rank for at in steps), sum(at[0] == rank for at in printed))
        rows = {}
        last = max(end for _, _, _, end, _, _ in steps.values())
        left = min(x for *_, x, _ in steps.values())
        latest, at = max((begin, x) for _, _, begin, _, x, _ in steps.values())
        width = (at - left) / latest * last
        for (rank, step), (_, after, begin, end, x, y) in steps.items():
            self.assertEqual(rows.setdefault(rank, y), y)
            self.assertLessEqual(begin, end)
            self.assertAlmostEqual(x, left + begin / last * width, delta=0.2)
            for before in after:
                self.assertGreaterEqual(begin, steps[rank, before][3], (rank, step))
        self.assertEqual(len(set(rows.values())), len(rows))
        self.assertEqual([rank for rank, _ in sorted(rows.items(), key=lambda row: row[1])], sorted(rows))
        return steps, rows

    def test_every_step_is_in_its_row_and_not_before_those_it_waits_for(self):
        for question in (("all_reduce", "-n", 4, "-b", "64K", "--transport", "tcp", "--algorithm", "recursive_doubling"),
                         ("all_reduce", "-n", 3, "-b", "64K", "--algorithm", "two_shot"),
                         ("broadcast", "-n", 4, "-b", 8, "--transport", "tcp"),
                         ("barrier", "-n", 4), ("all_to_all", "-n", 3, "-b", "1M", "--transport", "tcp"),
                         ("quantized_all_reduce", "-n", 2, "-b", "64K", "--transport", "tcp")):
            with self.subTest(question=question):
                steps, _ = self.check_steps(self.explained(*question))
                _, _, texts = self.picture()
                self.assertIn(question[0], texts[0])
                self.assertIn(f"between {question[2]} ranks", texts[0])
                self.assertIn("µs predicted", texts[0])
                self.assertLessEqual({kind for kind, *_ in steps.values()}, set(texts))  # the legend

    def test_messages_are_lines_from_a_send_to_its_receive(self):
        self.explained("all_reduce", "-n", 4, "-b", "64K", "--transport", "tcp", "--algorithm", "ring")
        steps, lines, _ = self.picture()
        rows = {rank: y for (rank, _), (*_, y) in steps.items()}
        sends = [step for step in steps.values() if step[0] == "send"]
        self.assertEqual(len(lines), len(sends))
        self.assertEqual({line[:2] for line in lines}, {(rank, (rank + 1) % 4) for rank in range(4)})
        for source, target, x0, y0, x1, y1 in lines:
            self.assertLessEqual(x0, x1)
            self.assertAlmostEqual(y1 - y0, rows[target] - rows[source], delta=0.1)

    def test_it_is_read_in_light_and_dark_and_has_no_script(self):
        self.explained("all_reduce", "-n", 2)
        text = self.file.read_text()
        self.assertIn("prefers-color-scheme: dark", text)
        self.assertNotIn("<script", text)

    def test_what_does_not_fit_is_refused_by_its_limit(self):
        for question, words in ((("all_reduce", "-n", 65), "a picture of 65 ranks: expected at most 64"),
                                (("all_to_all", "-n", 64, "-b", "64M", "--transport", "tcp"), "steps: expected at most 4096")):
            done = self.tutti("explain", *question, "--svg", self.file)
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertIn(words, done.stderr)
            self.assertFalse(self.file.exists())
        done = self.tutti("explain", "barrier", "--svg", self.file / "none")
        self.assertIn("expected a file that can be written", done.stderr)


if __name__ == "__main__":
    main("cli_explain_picture_test")
