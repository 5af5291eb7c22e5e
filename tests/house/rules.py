#!/usr/bin/env python3
"""The house's own rules, those that no compiler knows. Standard library only.

circles     no circle of includes of more than two modules of a room (a module: the files of one stem, as x.hpp, x.cpp
            and x-inl.hpp, but no tests): none of them can be understood without all the others
direction   a room includes headers of itself and of the rooms it declares, nothing else; it declares only rooms that
            stand before it in the build
headers     a public header includes the standard library (those for C: C's) and public headers, nothing third-party
length      no source of more than 700 lines; those above 500 are listed, as a hint to look for the second noun
paths       no file names a place on the machine that wrote it
variables   each TUTTI_* variable that the Python packages read is one that the library knows (src/core/env.cpp): it warns
            of others
rooms       every room has a README
classes     finds no faults; classes of more than 40 functions (constructors, destructor and copies that are deleted count
            once) or 25 fields, plain data of more than 30 (constants of the class do not count), are listed, as a hint to
            look for the second noun

Usage: rules.py ROOT ROOMS.json RULE...   (ROOMS.json is written by CMake: the rooms in order, with what they declare)
"""
import json
import pathlib
import re
import sys

from classes import classes

SOURCES = (".cpp", ".hpp", ".h", ".c", ".cc", ".py", ".sh", ".cmake", ".in", ".txt", ".md", ".tsv", ".json", "")
C_STANDARD = ("stdbool.h", "stddef.h", "stdint.h")
LENGTH_HINT, LENGTH_LIMIT = 500, 700
FUNCTIONS_HINT, FIELDS_HINT, PLAIN_FIELDS_HINT = 40, 25, 30
CIRCLE_LIMIT = 2
# Places that exist only where somebody works on tutti. Examples of paths (/tmp/x, /etc) are fine.
PRIVATE_PLACE = re.compile(r"(?<![\w.])/(?:work|root|home/\w+|Users/\w+|tmp/b-\w+|tmp/brief)/")


def files(root: pathlib.Path, folders=("",)):
    for folder in folders:
        for file in sorted((root / folder).rglob("*")):
            parts = file.relative_to(root).parts
            if file.is_file() and parts[0] not in ("build", ".git") and file.suffix in SOURCES:
                yield file


def includes(file: pathlib.Path):
    for number, line in enumerate(file.read_text().splitlines(), 1):
        found = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        if found:
            yield number, found.group(1), found.group(2)


def includes_by_module(root, room):
    """{module: the room's other modules that it includes}. A module's name is what an include of it begins with."""
    def module_of(path):
        return re.sub(r"(-inl)?\.[ch]pp$", "", path)

    found = {}
    for file in files(root, (room["folder"],)):
        if file.suffix in (".hpp", ".cpp") and not file.stem.endswith("_test"):
            module = module_of(file.relative_to(root).as_posix().removeprefix("src/"))
            found.setdefault(module, set()).update(module_of(path) for _, _, path in includes(file))
    return {module: (others & set(found)) - {module} for module, others in found.items()}


def reachable(start, edges):
    reached, ahead = set(), [start]
    while ahead:
        new = edges[ahead.pop()] - reached
        reached |= new
        ahead.extend(new)
    return reached


def circles(root, rooms):
    for room in rooms:
        edges = includes_by_module(root, room)
        reached = {module: reachable(module, edges) for module in edges}
        seen = set()
        for module in sorted(edges):
            circle = {other for other in reached[module] if module in reached[other]} - seen
            seen |= circle
            if len(circle) > CIRCLE_LIMIT:
                closing = (f"\n    {one} includes {', '.join(sorted(edges[one] & circle))}" for one in sorted(circle))
                yield f"{room['folder']}: a circle of {len(circle)} modules; the limit is {CIRCLE_LIMIT}{''.join(closing)}"


def direction(root, rooms):
    names = [room["name"] for room in rooms]
    for index, room in enumerate(rooms):
        declared = set(room["depends"])
        for other in sorted(declared - set(names[:index])):
            yield f"{room['folder']}/CMakeLists.txt: declares {other}, which does not stand before it"
        for file in files(root, (room["folder"],)):
            for number, _, path in includes(file):
                other = path.split("/")[0]
                if "/" in path and other in names and other != room["name"] and other not in declared:
                    yield f"{file.relative_to(root)}:{number}: uses {other}, which {room['name']} does not declare"
    for folder in sorted((root / "src").iterdir()):
        if folder.is_dir() and folder.name not in names and any(folder.rglob("*.cpp")):
            yield f"src/{folder.name}: has sources, but the build does not know it"


def headers(root, rooms):
    names = {room["name"] for room in rooms}
    for file in files(root, ("include",)):
        for number, kind, path in includes(file):
            public = path.startswith("tutti/") and kind == "<"
            standard = path in C_STANDARD if file.suffix == ".h" else "/" not in path and not path.endswith(".h")
            standard = standard and kind == "<"
            if not public and not standard:
                what = "a room's inside" if path.split("/")[0] in names else "something third-party"
                yield f"{file.relative_to(root)}:{number}: a public header includes {what}: {path}"


def length(root, rooms):
    del rooms
    for file in files(root, ("src", "include", "backends", "nccl", "python", "tests", "tools", "examples", "bench", "cmake")):
        if file.suffix in (".tsv", ".json", ".txt") or "data" in file.parts:
            continue
        lines = file.read_text(errors="replace").count("\n")
        if lines > LENGTH_LIMIT:
            yield f"{file.relative_to(root)}: {lines} lines; the limit is {LENGTH_LIMIT}"
        elif lines > LENGTH_HINT:
            print(f"hint: {file.relative_to(root)}: {lines} lines; is there a second noun in it?")


def paths(root, rooms):
    del rooms
    for file in files(root):
        for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
            if file.name != "rules.py" and (found := PRIVATE_PLACE.search(line)):
                yield f"{file.relative_to(root)}:{number}: names a place of one machine: {found.group(0)}"


def rooms_have_readmes(root, rooms):
    for room in rooms:
        if not (root / room["folder"] / "README.md").is_file():
            yield f"{room['folder']}: has no README.md"


def variables(root, rooms):
    del rooms
    known = set(re.findall(r'\{"(TUTTI_\w+)"', (root / "src/core/env.cpp").read_text()))
    for file in files(root, ("python/tutti",)):
        for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
            for name in re.findall(r"""["'](TUTTI_\w+)["']""", line):
                if name not in known:
                    yield f"{file.relative_to(root)}:{number}: reads {name}, which src/core/env.cpp does not declare"


def sizes_of_classes(root, rooms):
    del rooms
    for file in files(root, ("src", "include", "backends", "python")):
        if file.suffix not in (".hpp", ".cpp"):
            continue
        place = str(file.relative_to(root))
        for found in classes(file.read_text(errors="replace")):
            fields_hint = PLAIN_FIELDS_HINT if found.plain else FIELDS_HINT
            for count, many, what in ((found.functions, FUNCTIONS_HINT, "functions"), (found.fields, fields_hint, "fields")):
                if count > many:
                    print(f"hint: {place}:{found.line}: {found.name} has {count} {what}; is there a second noun in it?")
    return []


RULES = {"circles": circles, "classes": sizes_of_classes, "direction": direction, "headers": headers, "length": length,
         "paths": paths, "rooms": rooms_have_readmes, "variables": variables}


def main() -> int:
    if len(sys.argv) < 4 or not set(sys.argv[3:]) <= set(RULES):
        print(__doc__)
        return 2
    root, rooms = pathlib.Path(sys.argv[1]), json.loads(pathlib.Path(sys.argv[2]).read_text())
    faults = [fault for rule in sys.argv[3:] for fault in RULES[rule](root, rooms)]
    print("\n".join(faults) if faults else f"{', '.join(sys.argv[3:])}: kept")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
