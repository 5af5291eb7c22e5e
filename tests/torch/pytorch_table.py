#!/usr/bin/env python3
"""Writes docs/pytorch-tests.md from the results of pytorch_tests.py. Usage: pytorch_table.py RESULTS_FOLDER FILE"""

from __future__ import annotations

import json
import pathlib
import sys

# What fails for a reason that lies in PyTorch.
KNOWN = {
    "test_ddp_logging_data_cpu": 'PyTorch calls every plug-in "custom" in DDP\'s logs; with gloo replaced it passes',
}
REASONS = (  # words of PyTorch's reason; ours
    ("ccelerator", "needs GPUs"),
    ("ccl", "of NCCL, on GPUs"),
    ("github.com", "switched off in PyTorch"),
    ("MPI", "of MPI; gloo lacks it"),
    ("torchvision", "needs torchvision"),
    ("file://", "needs another way to initialize"),
    ("high priority", "of NCCL, on GPUs"),
)


def reason_of(text: str) -> str:
    return next((ours for words, ours in REASONS if words in text), text)


def main() -> int:
    folder, page = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    columns = {name: json.loads((folder / f"{name}.json").read_text()) for name in ("gloo", "tutti", "replaced")}
    tests = sorted(set().union(*columns.values()))
    import torch

    rows, counts = [], {name: {"passed": 0, "skipped": 0, "failed": 0} for name in columns}
    for test in tests:
        outcomes, reason = [], ""
        for name, found in columns.items():
            outcome, _, text = found.get(test, ["skipped", 0, "not run"])
            counts[name][outcome] += 1
            outcomes.append({"passed": "pass", "skipped": "-", "failed": "FAIL"}[outcome])
            if outcome == "skipped":
                reason = reason or reason_of(text)
            if outcome == "failed":
                reason = KNOWN.get(test, "")
        rows.append(f"| {test.removeprefix('test_')} | {' | '.join(outcomes)} | {reason} |")
    lines = [
        "# PyTorch's own tests on tutti",
        "",
        f"Written by `make test-torch`, from a run of the {len(tests)} tests of torch.distributed that PyTorch "
        f"{torch.__version__.split('+')[0]} ships (`torch/testing/_internal/distributed/distributed_test.py`): on gloo, on "
        '`"tutti"`, and on gloo replaced by tutti (`TUTTI_REPLACE_GLOO=1`). Three ranks; tests that ask for four or eight '
        "get them. A dash: the test skipped itself.",
        "",
        "| | gloo | tutti | replaced |",
        "|---|---|---|---|",
        *(f"| {outcome} | {' | '.join(str(counts[name][outcome]) for name in columns)} |" for outcome in counts["gloo"]),
        "",
        "| test | gloo | tutti | replaced | why not |",
        "|---|---|---|---|---|",
        *rows,
    ]
    page.write_text("\n".join(lines) + "\n")
    bad = [f"{test} ({name})" for test in tests for name in ("tutti", "replaced")
           if columns["gloo"].get(test, [""])[0] == "passed" and columns[name].get(test, [""])[0] != "passed"
           and not (name == "tutti" and test in KNOWN)]
    print(f"{page}: {counts}; passed on gloo and not on tutti: {', '.join(bad) or 'none'}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
