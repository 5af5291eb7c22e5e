#!/usr/bin/env python3
"""What is installed exports its own names alone, is hardened as Debian's packages are, and names no file of the folder in which it
was built.

Usage: binaries.py SOURCES PROGRAM LIBRARY...; status 77 where there is no readelf."""
import pathlib
import re
import shutil
import subprocess
import sys

OWN = re.compile(r"tutti_\w+|_ZNK?5tutti.*|_ZT.N5tutti.*|_ZGVN5tutti.*|_ZT[hvc][\dhn_]*_N5tutti.*|p?nccl\w+|tuttiNcclHostMemory")


def readelf(option, file):
    return subprocess.run(["readelf", "--wide", option, file], capture_output=True, text=True, check=True).stdout


def exported(file):
    for line in readelf("--dyn-syms", file).splitlines():
        words = line.split()
        if len(words) == 8 and words[4] in ("GLOBAL", "WEAK", "UNIQUE") and words[6] not in ("UND", "Ndx"):
            yield words[7].partition("@")[0]


def faults(sources, program, libraries):
    for file in [program, *libraries]:
        name = pathlib.Path(file).name
        if "GNU_RELRO" not in readelf("--program-headers", file) or "NOW" not in readelf("--dynamic", file):
            yield f"{name}: its tables of functions can be written to: expected -z relro -z now"
        if f"{sources}/src/".encode() in pathlib.Path(file).read_bytes():
            yield f"{name}: names files of {sources}"
    if not re.search(r"Type:\s+DYN", readelf("--file-header", program)):
        yield f"{pathlib.Path(program).name}: is not position independent"
    for file in libraries:
        names = list(exported(file))
        if not names:
            yield f"{pathlib.Path(file).name}: exports nothing"
        for name in names:
            if not OWN.fullmatch(name):
                yield f"{pathlib.Path(file).name}: exports {name}"
    if not any("__stack_chk_fail" in readelf("--dyn-syms", file) for file in libraries):
        yield "no library watches its stack: expected -fstack-protector-strong"
    if not any(re.search(r"__\w+_chk\b", readelf("--dyn-syms", file)) for file in libraries):
        yield "no library watches its arrays: expected -D_FORTIFY_SOURCE=2"


def main():
    if shutil.which("readelf") is None:
        print("left out: house_binaries: there is no readelf")
        return 77
    found = list(faults(sys.argv[1], sys.argv[2], sys.argv[3:]))
    for fault in found:
        print(fault)
    print(f"{len(sys.argv) - 2} files, {len(found)} faults")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
