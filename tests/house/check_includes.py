#!/usr/bin/env python3
"""Fails when a room includes a header of a room that it does not declare (and so one that stands above it), or when a
public header shows a third-party type. Tests itself first on a seeded violation. Usage: check_includes.py ROOT"""
import pathlib
import re
import sys


def rooms_of(root: pathlib.Path) -> dict[str, set[str]]:
    rooms = {}
    for file in root.glob("src/*/CMakeLists.txt"):
        text = file.read_text()
        declared = re.search(r"DEPENDS([^)]*?)(?:LIBRARIES|TESTS|\))", text)
        rooms[file.parent.name] = set(declared.group(1).split()) if declared else set()
    return rooms


def faults(rooms: dict[str, set[str]], room: str, text: str) -> list[str]:
    used = set(re.findall(r'#include "([a-z_]+)/', text)) & set(rooms)
    return sorted(used - rooms[room] - {room})


def main() -> int:
    root = pathlib.Path(sys.argv[1])
    rooms = rooms_of(root)
    if faults(rooms, "core", '#include "store/table.hpp"\n') != ["store"]:
        print("check_includes: does not notice a seeded violation")
        return 1
    bad = []
    for room in rooms:
        for file in sorted((root / "src" / room).rglob("*.?pp")):
            bad += [f"{file}: uses {other}, which {room} does not declare" for other in faults(rooms, room, file.read_text())]
    for file in sorted((root / "include/tutti").glob("*.hpp")):
        for name in re.findall(r"#include <([^>]+)>", file.read_text()):
            if "/" in name and not name.startswith("tutti/"):
                bad.append(f"{file}: a public header includes <{name}>")
    for line in bad:
        print(line)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
