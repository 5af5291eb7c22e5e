#!/usr/bin/env python3
"""Runs PyTorch's own tests of torch.distributed, those of the wheel's distributed_test.py, on one backend.

Nothing of them is copied or changed. The file chooses what it tests by the name in BACKEND when it is imported; it gets
gloo's name then, so that everything that gloo can do is asked for (or, with --as mpi, what only MPI can), and the backend's
name before the tests run. Ranks are forked instead of spawned: PyTorch is loaded once. Tests that need a GPU skip
themselves.

`replaced` is gloo with TUTTI_REPLACE_GLOO=1; "cpu:tutti,cuda:nccl" needs a GPU. The results are JSON, {test: [outcome, seconds, reason]}, and are added to: a
test that was skipped before may pass with another world size. Exit status 1 if a test failed.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import pathlib
import re
import sys
import tempfile
import time
import unittest

MIXED = "cpu:tutti,cuda:nccl"  # tools/test-gpu


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Runs PyTorch's own distributed tests on one backend.")
    parser.add_argument("--backend", choices=["tutti", "gloo", "replaced", MIXED], default="tutti")
    parser.add_argument("--world-size", type=int, default=3)
    parser.add_argument("--as", dest="asked_as", choices=["gloo", "mpi", "nccl"], default="gloo", help="whose abilities are tested")
    parser.add_argument("--only", default="", help="regular expression: tests whose name contains it")
    parser.add_argument("--skipped", help="regular expression: only tests that were skipped for a reason that contains it")
    parser.add_argument("--limit", type=float, default=1e9, help="start no test after so many seconds")
    parser.add_argument("--test-limit", type=int, default=60, help="seconds that one test may take")
    parser.add_argument("--results", type=pathlib.Path, help="file for the results; those of tests in it are kept")
    return parser.parse_args()


def prepare(options: argparse.Namespace, folder: str) -> None:
    os.environ.update(
        BACKEND=options.asked_as,
        WORLD_SIZE=str(options.world_size),
        TEMP_DIR=folder,
        INIT_METHOD=f"file://{folder}/init",
        DISTRIBUTED_TESTS_DEFAULT_TIMEOUT=str(options.test_limit),
        OMP_NUM_THREADS="1",
    )
    for name in ("barrier", "test_dir"):
        os.makedirs(os.path.join(folder, name), exist_ok=True)
    if options.backend == "replaced":
        os.environ["TUTTI_REPLACE_GLOO"] = "1"


class TwoNames(str):
    """The backend's name, but equal to `other_name` in the tests' comparisons: some leave variables unset otherwise."""

    other_name = "gloo"
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return other == self.other_name or str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other


def load(backend: str, asked_as: str) -> type:
    """PyTorch's test class, on `backend`."""
    sys.argv = sys.argv[:1]
    import torch
    import torch.multiprocessing
    from torch.testing._internal import common_distributed
    from torch.testing._internal.distributed import distributed_test

    torch.set_num_threads(1)
    name = backend if backend in ("tutti", MIXED) else "gloo"
    if backend != "gloo":
        import tutti.torch  # noqa: F401
    TwoNames.other_name = asked_as
    if name != asked_as:
        for feature in ("ddp", "subgroup"):
            common_distributed.DistTestCases.backend_feature[feature].add(name)
        if backend == MIXED:
            for names in common_distributed.DistTestCases.backend_feature.values():
                names |= {name} if asked_as in names else set()
        distributed_test.BACKEND = TwoNames(name)
        os.environ["BACKEND"] = name

    class OnBackend(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
        def setUp(self) -> None:
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    return OnBackend


def run_one(case: type, test: str) -> tuple[str, float, str]:
    began = time.monotonic()
    result = unittest.TestResult()
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        case(test).run(result)
    took = round(time.monotonic() - began, 2)
    if result.errors or result.failures:
        return "failed", took, (result.errors + result.failures)[0][1]
    if result.skipped:
        return "skipped", took, result.skipped[0][1]
    return "passed", took, ""


def main() -> int:
    options = arguments()
    found: dict[str, list] = {}
    if options.results and options.results.exists():
        found = json.loads(options.results.read_text())
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        prepare(options, folder)
        case = load(options.backend, options.asked_as)
        tests = [name for name in unittest.TestLoader().getTestCaseNames(case) if re.search(options.only, name)]
        if options.skipped:
            tests = [test for test in tests if found.get(test, [""])[0] == "skipped"
                     and re.search(options.skipped, found[test][2])]
        ran = []
        for test in tests:
            if time.monotonic() - began > options.limit:
                break
            ran.append(test)
            outcome, took, reason = run_one(case, test)
            if outcome != "skipped" or found.get(test, ["skipped"])[0] == "skipped":
                found[test] = [outcome, took, reason]
            print(f"{outcome:8}{took:7.2f} s  {test}", flush=True)
            if outcome == "failed":
                print(reason, flush=True)
            if options.results:
                options.results.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    outcomes = ("passed", "skipped", "failed")
    counts = {outcome: sum(found[test][0] == outcome for test in ran) for outcome in outcomes}
    left = f", {len(tests) - len(ran)} not begun" if len(ran) < len(tests) else ""
    print(f"{options.backend}: {', '.join(f'{count} {outcome}' for outcome, count in counts.items())}{left}")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
