#!/usr/bin/env python3
"""deploy/monitoring names metrics and labels that tutti serves; promtool, where it is here, tries the alerts."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "deploy/monitoring"
SOURCE = (ROOT / "src/record/metrics.cpp").read_text()
SERVED = set(re.findall(r'"(tutti_[a-z_]+)"', SOURCE))
LABELS = {*re.findall(r"\b([a-z]+)=(?:\{|\\\")", SOURCE)}


def queries():
    """[(where, expression)]"""
    board = json.loads((FOLDER / "grafana.json").read_text())
    found = [(panel["title"], target["expr"]) for panel in board["panels"] for target in panel["targets"]]
    found += [("variable", entry["query"]) for entry in board["templating"]["list"] if entry["type"] == "query"]
    return found + [("alert", expr) for expr in re.findall(r"(?m)^ +expr: (.*)$", (FOLDER / "alerts.yaml").read_text())]


class Monitoring(unittest.TestCase):
    def test_every_metric_and_label_is_one_that_is_served(self):
        self.assertGreater(len(SERVED), 10)
        self.assertLessEqual({"group", "rank", "peer", "operation", "cause", "le"}, LABELS)
        used = set()
        for where, expression in queries():
            with self.subTest(where=where, expression=expression):
                names = {re.sub(r"_(bucket|sum|count)$", "", name) for name in re.findall(r"\btutti_[a-z_]+", expression)}
                self.assertTrue(names)
                self.assertLessEqual(names, SERVED)
                used |= names
                words = ",".join(re.findall(r"by \(([^)]*)\)", expression) + re.findall(r"\{([a-z]+)=", expression))
                self.assertLessEqual(set(re.findall(r"[a-z]+", words)), LABELS)
        self.assertGreater(len(used), 7)

    def test_legends_and_summaries_show_labels_that_the_query_keeps(self):
        board = json.loads((FOLDER / "grafana.json").read_text())
        for panel in board["panels"]:
            for target in panel["targets"]:
                kept = set(re.findall(r"[a-z]+", ",".join(re.findall(r"by \(([^)]*)\)", target["expr"]))))
                self.assertLessEqual(set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])), kept, panel["title"])

    def test_alerts_fire_when_they_should(self):
        unpacked = FOLDER.parents[1] / "build/debian/usr/bin"
        promtool = shutil.which("promtool", path=f"{os.environ['PATH']}:{unpacked}")
        if promtool is None:
            print("left out: house_monitoring, trying the alerts: no promtool (Debian's package prometheus)")
            return
        for arguments in (["check", "rules", "alerts.yaml"], ["test", "rules", "alerts_test.yaml"]):
            done = subprocess.run([promtool, *arguments], cwd=FOLDER, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
