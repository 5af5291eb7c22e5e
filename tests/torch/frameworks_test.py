"""docs/frameworks.md is what the programs of tests/frameworks are, and their comparison notices what differs. The programs
themselves are run by `make test-frameworks`."""

import copy
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/frameworks"))

import run  # noqa: E402

GLOO = {"code": "gloo", "losses": [1.0.hex(), 0.5.hex()], "parameters": [0.25.hex(), (-2.0).hex()]}
OURS = GLOO | {"code": "tutti"}


class Frameworks(unittest.TestCase):
    def differs(self, ours: dict, words: str, theirs: dict = GLOO) -> None:
        with self.assertRaisesRegex(ValueError, words):
            run.compare(ours, theirs)

    def test_the_comparison_notices_what_differs(self) -> None:
        self.assertEqual(run.compare(OURS, GLOO), "bit for bit")
        near = copy.deepcopy(OURS)
        near["parameters"][1] = (-2.0 - 1e-7).hex()
        self.assertEqual(run.compare(near, GLOO), "within rounding")
        near["parameters"][1] = (-2.0 - 1e-4).hex()
        self.differs(near, r"parameters\[1\]")
        self.differs(OURS | {"losses": [float("nan").hex()] * 2}, r"losses\[0\]")
        self.differs(OURS | {"losses": []}, "0 losses, gloo has 2")
        self.differs(GLOO, "ran on gloo")
        self.differs(OURS, "its reference on tutti", OURS)

    def test_the_document_has_the_lines_that_are_run(self) -> None:
        text = (ROOT / "docs/frameworks.md").read_text()
        for framework in run.FRAMEWORKS:
            with self.subTest(framework.name):
                self.assertIn(run.section_of(framework), text)
                row = next(line for line in text.splitlines() if line.startswith(f"| {framework.title} |"))
                self.assertTrue(row.endswith(f"| {run.known_of(framework.name) or '-'} |"), row)
                self.assertIn("tutti", run.lines_of(framework.name))


if __name__ == "__main__":
    unittest.main()
