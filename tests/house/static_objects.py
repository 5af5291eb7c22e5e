#!/usr/bin/env python3
"""No library has static objects whose destructors run when the process ends, but for those that are named here: a group
may end after them, as the user's own static objects hold it, and uses what is gone. A table is constexpr, an object that
is made at the first call stays (`static auto& table = *new Table`).

The machine code tells: every such object hands its destructor to __cxa_atexit.

Usage: static_objects.py COMPILER LIBRARY...; status 77 where there is no objdump."""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

# Functions that may, how many objects, and why.
ALLOWED = {
    "tutti::detail::worlds::leave_at_exit": (1, "leaves the worlds: that is its purpose"),
    "tutti::(anonymous namespace)::end_at_exit": (1, "ends the default group: that is its purpose"),
    "atexit": (1, "the C library's function, by which libtutti-nccl ends its threads"),
    "_GLOBAL__sub_I_": (8, "Backend::GLOO and its like, which are names for programs; the standard streams"),
}

SEEDED = """
#include <map>
#include <string>
const std::map<std::string, int>& table() {
    static const std::map<std::string, int> numbers{{"one", 1}};
    return numbers;
}
const std::map<std::string, int>& kept() {
    static const auto& numbers = *new std::map<std::string, int>{{"one", 1}};
    return numbers;
}
"""


def functions_with_statics(library):
    """The functions that hand a destructor to __cxa_atexit, each as often as it does."""
    code = subprocess.run(["objdump", "-d", "--no-show-raw-insn", "-C", library], capture_output=True, text=True, check=True)
    function = None
    for line in code.stdout.splitlines():
        if begin := re.fullmatch(r"[0-9a-f]+ <(.*)>:", line):
            function = begin.group(1)
        elif re.search(r"\b(call|jmp|bl|b)\s.*<__cxa_atexit(@plt)?>", line):
            yield function


def faults(library):
    counts = {}
    for function in functions_with_statics(library):
        allowed = next((name for name in ALLOWED if function.startswith(name)), function)
        counts[allowed] = counts.get(allowed, 0) + 1
    for function, count in counts.items():
        if count > ALLOWED.get(function, (0, ""))[0]:
            yield f"{pathlib.Path(library).name}: {function}: {count} static object(s) with a destructor"


def main():
    compiler, libraries = sys.argv[1], sys.argv[2:]
    if shutil.which("objdump") is None:
        print("left out: static objects: there is no objdump on this machine")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        source, seeded = pathlib.Path(folder) / "seeded.cpp", pathlib.Path(folder) / "seeded.so"
        source.write_text(SEEDED)
        subprocess.run([compiler, "-std=c++20", "-O2", "-shared", "-fPIC", source, "-o", seeded], check=True)
        found = list(faults(seeded))
        if len(found) != 1 or "table" not in found[0]:
            print(f"the seeded fault gives {found}")
            return 1
    bad = [fault for library in libraries for fault in faults(library)]
    print("\n".join(bad) if bad else f"{len(libraries)} libraries: kept")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
