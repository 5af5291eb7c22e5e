#!/usr/bin/env python3
"""The time limits that docs/time-limits.md tells are those of the sources: for each, words of its row, the number there, and
what the sources say where it is."""
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGE = "docs/time-limits.md"

LIMITS = [
    ("a group that `init_process_group` makes", "30 min", "include/tutti/process_group.hpp", "default_timeout = std::chrono::minutes(30)"),
    ("a group that `init_process_group` makes", "10 min", "src/backend/devices.cpp", "of_nccl = std::chrono::minutes(10)"),
    ("`meet()`", "300 s", "include/tutti/store.hpp", "default_store_timeout = std::chrono::seconds(300)"),
    ("a store's `get`", "300 s", "include/tutti/store.hpp", "default_store_timeout = std::chrono::seconds(300)"),
    ("`breakpoint`", "365 days", "python/tutti/distributed/debug.py", "timedelta(days=365)"),
    ("nodes of `tutti run`", "600 s", "src/launch/launcher.hpp", "join_timeout{std::chrono::minutes(10)}"),
    ("after a rank has failed", "1.5 s", "src/launch/launcher.hpp", "report_time{1500}"),
    ("from SIGTERM to SIGKILL |", "3 s", "src/launch/launcher.hpp", "grace{3000}"),
    ("from SIGTERM to SIGKILL |", "5 s more", "src/launch/attempt.cpp", "remote_grace{5000}"),
    ("a launcher of another node that is silent", "15 s", "src/launch/places.hpp", "silence{15}"),
    ("before another launcher gets its place", "6 s", "src/launch/places.hpp", "fence{6}"),
    ("node 0, for the others to leave", "3 s", "src/launch/nodes.cpp", "farewell = 3s"),
    ("`tutti.multiprocessing.spawn`", "30 s", "python/tutti/multiprocessing.py", "30.0 if grace_period is None"),
    ("`tutti::spawn`", "5 s", "include/tutti/spawn.hpp", "grace_period{std::chrono::seconds(5)}"),
    ("a host that does not answer", "13.5 s", "src/core/settings.cpp", "2000, 3'600'000).value_or(13'500)"),
    ("a new connection", "5 s", "src/security/handshake.cpp", "value_or(5000)"),
    ("a wait that takes long", "5 s", "src/core/patience.hpp", "first{5}"),
    ("until all have heard of it", "2 s", "src/failure/verdicts.cpp", "hearing_patience{2000}"),
    ("has judged whose fault it is", "3 s", "src/failure/verdicts.cpp", "judgement_patience{3000}"),
    ("a store that the failing rank serves", "1 s", "src/rendezvous/rendezvous.hpp", "time_for_others{1}"),
    ("the program's end", "2 s", "src/world/worlds.cpp", "time_at_exit{2000}"),
    ("Ctrl-C in a wait", "50 ms", "src/core/interrupt.hpp", "wait_slice{50}"),
    ("`TuttiGroup.join_timeout`", "two minutes", "python/tutti/ray.py", "join_timeout = timedelta(minutes=2)"),
    ("`tutti.dask.run`", "five", "python/tutti/ray.py", "default_timeout = timedelta(minutes=5)"),
]


def faults(page, read):
    for words, number, file, code in LIMITS:
        rows = [line for line in page.splitlines() if words in line]
        if not any(number in row for row in rows):
            yield f"{PAGE}: no line with \"{words}\" says {number}"
        if code not in read(file):
            yield f"{file} has no \"{code}\": {PAGE} says {number} of \"{words}\""


def main():
    page = (ROOT / PAGE).read_text()
    found = list(faults(page, lambda file: (ROOT / file).read_text()))
    # A check that finds nothing where something is wrong would be none.
    assert len(list(faults(page.replace("13.5 s", "14 s"), lambda file: ""))) == len(LIMITS) + 1
    print("\n".join(found) or f"{len(LIMITS)} limits are as {PAGE} says")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
