#!/usr/bin/env python3
"""torchft's own tests, those that its package brings and that make groups on CPUs: on gloo, on gloo replaced by tutti
(TUTTI_REPLACE_GLOO=1), and on tutti by name, by a class like torchft's ProcessGroupGloo that stands in that one's place.

Usage: torchft_tests.py [--only REGEX] [FOLDER]    logs in FOLDER; a table on standard output

Exit status 1 if a test passes on gloo and not on tutti. Tests that need a GPU skip themselves.
"""
from __future__ import annotations

import argparse
import importlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import unittest

MODULES = ("process_group_test", "reconfigure_test", "checkpointing.pg_transport_test", "ddp_test", "manager_test",
           "manager_integ_test", "local_sgd_integ_test", "lighthouse_test", "parameter_server_test")
WAYS = ("gloo", "replaced", "tutti")
# Tests that fail on tutti and pass on gloo: a part of the name, and the reason.
KNOWN = {"test_stalled_peer_.*_send": "a small message counts as sent when it is on its way: gloo's send waits for the receive"}


def put_tutti_in_place_of_gloo() -> None:
    import torch
    import torchft
    import tutti.torch
    from torchft import process_group

    class ProcessGroupTutti(process_group.ProcessGroupGloo):
        def _create_pg(self, store, rank, world_size):
            group = torch.distributed.ProcessGroup(store, rank, world_size)
            kind = torch.distributed.ProcessGroup.BackendType.CUSTOM
            group._set_default_backend(kind)
            group._register_backend(torch.device("cpu"), kind, tutti.torch.ProcessGroupTutti(store, rank, world_size, self._timeout))
            return group

        def getBackendName(self):
            return "torchft-tutti"

        # torchft's refuses these, as gloo cannot do them.
        reduce_scatter = process_group.ProcessGroupWrapper.reduce_scatter
        reduce_scatter_tensor_coalesced = process_group.ProcessGroupWrapper.reduce_scatter_tensor_coalesced

    process_group.ProcessGroupGloo = torchft.ProcessGroupGloo = ProcessGroupTutti


def add_what_gloo_cannot(case: type) -> None:
    for collective in case.SKIP:
        setattr(case, f"test_collective_more_{collective}", lambda self, c=collective: self._run_parallel(c))
        # Later by its name: those without resiliency use the group that these leave broken.
        setattr(case, f"test_collective_with_resiliency_more_{collective}", lambda self, c=collective: self._run_with_resiliency(c))


class Outcomes(unittest.TextTestResult):
    found: dict[str, tuple[str, str]] = {}

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self.found[test.id()] = ("passed", "")

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        for outcome, tests in (("failed", self.errors + self.failures), ("skipped", self.skipped)):
            for which, why in tests:
                if which is test or getattr(which, "test_case", None) is test:
                    self.found[test.id()] = (outcome, why.strip().splitlines()[-1])


def run_module(way: str, module: str, only: str, results: str) -> None:
    """In a process of its own: what one module leaves behind is no other one's."""
    if way == "tutti":
        put_tutti_in_place_of_gloo()
    tests = importlib.import_module(f"torchft.{module}")
    if way == "tutti" and module == "process_group_test":
        add_what_gloo_cannot(tests.NormalGlooMultiPgTest)
    suite = unittest.defaultTestLoader.loadTestsFromModule(tests)
    chosen = unittest.TestSuite(test for cases in suite for test in cases if re.search(only, test.id()))
    result = unittest.TextTestRunner(resultclass=Outcomes, verbosity=2).run(chosen)
    for which, why in result.errors:  # of setUpClass: its tests did not begin
        Outcomes.found.setdefault(which.id(), ("failed", why.strip().splitlines()[-1]))
    pathlib.Path(results).write_text(json.dumps(Outcomes.found))
    sys.stderr.flush()
    os._exit(0)  # threads that torchft's tests leave behind


def outcomes_of_module(way: str, module: str, only: str, logs: pathlib.Path) -> dict[str, tuple[str, str]]:
    results = logs / f"{way}-{module}.json"
    results.unlink(missing_ok=True)
    environment = os.environ | {"TUTTI_REPLACE_GLOO": "1" if way == "replaced" else "0", "PYTHONHASHSEED": "0"}
    with open(logs / f"{way}-{module}.log", "w") as log:
        try:
            subprocess.run([sys.executable, __file__, "--run", way, module, str(results), "--only", only], stdout=log, stderr=log,
                           env=environment, timeout=900, check=False)
        except subprocess.TimeoutExpired:
            pass
    return json.loads(results.read_text()) if results.exists() else {f"torchft.{module}": ("failed", "the process ended early")}


def outcomes_of(way: str, only: str, logs: pathlib.Path) -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    for module in MODULES:
        began = time.monotonic()
        these = outcomes_of_module(way, module, only, logs)
        if any(outcome == "failed" for outcome, _ in these.values()):  # much of it must happen within seconds
            these = outcomes_of_module(way, module, only, logs)
        print(f"{way}, {module}: {sum(outcome == 'passed' for outcome, _ in these.values())} of {len(these)} passed in "
              f"{time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        found |= these
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="torchft's own tests, on gloo and on tutti.")
    parser.add_argument("--only", default="", help="regular expression: tests whose name contains it")
    parser.add_argument("--run", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("folder", nargs="?", type=pathlib.Path, default=pathlib.Path("build/torchft"))
    options = parser.parse_args()
    if options.run:
        run_module(options.run[0], options.run[1], options.only, options.run[2])
    options.folder.mkdir(parents=True, exist_ok=True)
    found = {way: outcomes_of(way, options.only, options.folder) for way in WAYS}
    print("| | " + " | ".join(WAYS) + " |\n|---|---|---|---|")
    for outcome in ("passed", "skipped", "failed"):
        print(f"| {outcome} | " + " | ".join(str(sum(o == outcome for o, _ in found[way].values())) for way in WAYS) + " |")
    worse = []
    for test in sorted(set().union(*found.values())):
        seen = [found[way].get(test, ("-", "")) for way in WAYS]
        if len({outcome for outcome, _ in seen}) > 1 or "failed" in (seen[0][0], seen[1][0]):
            known = next((why for name, why in KNOWN.items() if re.search(name, test)), "")
            print(f"{test.removeprefix('torchft.')}: {'; '.join(f'{way} {o} {why}' for way, (o, why) in zip(WAYS, seen))} ({known})")
            worse += [test] if seen[0][0] == "passed" and not known and {outcome for outcome, _ in seen} - {"passed", "-"} else []
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
