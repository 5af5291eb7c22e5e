"""Runs the programs and commands of the pages. Three parts, by what they need: cpp (the build), python (the package),
torch (the backend for PyTorch). Each page has a folder of its own, in which its files lie.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

import commands
import pages

TIMEOUT = 200


def part_of(block):
    """Which part runs a block: cpp, python or torch."""
    files = {other.file: other for other in pages.blocks(block.page) if other.file}
    text = block.given + block.text + "".join(other.text for name, other in files.items()
                                              if name.endswith(".py") and re.search(rf"\b{re.escape(name)}", block.text))
    if block.language == "python" or ".py" in block.text or re.search(r"\bpython3?\b", block.text):
        return "torch" if re.search(r"^(import|from) torch\b|\btutti\.torch\b|\btutti\.graph\.(?:patch|get_)|make torch", text, re.MULTILINE) else "python"
    return "cpp"


def matches(expected, output):
    """Whether each expected line (… is anything) is one of the output's."""
    lines = [line.rstrip() for line in output.splitlines()]
    for wanted in expected:
        pattern = ".*".join(re.escape(part) for part in wanted.rstrip().split("…"))
        if not any(re.fullmatch(pattern, line) for line in lines):
            return f"\"{wanted}\" was expected"
    return None


class Runner:
    def __init__(self, part, build, scratch, prefix=None):
        self.part, self.build, self.scratch = part, pathlib.Path(build).resolve(), pathlib.Path(scratch).resolve()
        self.ran, self.skipped, self.failures = [], {}, []
        self.forked, self.forked_says = [], []  # (place, program) of PyTorch's, which are run together; what they print
        shutil.rmtree(self.scratch, ignore_errors=True)
        tools = self.scratch / "bin"
        tools.mkdir(parents=True)
        self.environment = {**os.environ, "XDG_CACHE_HOME": str(self.build / "cache"),
                            "PATH": f"{tools}:{self.build / 'bin'}:{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}
        if part != "cpp":
            for name in ("python", "python3"):
                (tools / name).write_text(f"#!/bin/sh\nexec '{sys.executable}' \"$@\"\n")
                (tools / name).chmod(0o755)
        if prefix:
            self.environment |= {"PKG_CONFIG_PATH": f"{prefix}/lib/pkgconfig", "LD_LIBRARY_PATH": f"{prefix}/lib"}
        self.compiled = {}

    def folder(self, page):
        """The page's folder, with its files."""
        folder = self.scratch / str(page.relative_to(pages.ROOT)).replace("/", "_")
        if not folder.exists():
            folder.mkdir()
            for block in pages.blocks(page):
                if block.file:
                    (folder / block.file).write_text(block.text)
        return folder

    def shell(self, command, folder, extra=None):
        # pipefail and -e: a page's line fails when any part of it does.
        return subprocess.run(["bash", "-e", "-o", "pipefail", "-c", command], cwd=folder, stdin=subprocess.DEVNULL,
                              env={**self.environment, **(extra or {})}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=TIMEOUT)

    def note(self, place, result, expected=()):
        fault = f"status {result.returncode}" if result.returncode else matches(expected, result.stdout)
        if fault:
            self.failures.append(f"{place}: {fault}\n{result.stdout}")
        else:
            self.ran.append(place)

    def skip(self, block, why):
        line = f"{block.place}: {why}"
        self.skipped[line] = self.skipped.get(line, 0) + 1

    def run_console(self, block):
        folder = self.folder(block.page)
        for command, expected in commands.commands(block):
            place = f"{block.place}: {command}"
            simple = commands.words(command)
            why = next((commands.NOT_RUN[each[0]] for each in simple if each[0] in commands.NOT_RUN), "")
            why = why or next(("is pip" for each in simple if each[1:3] in (["-m", "pip"], ["-m", "venv"])), "")
            if block.skip or why or re.search(r"python -m venv|activate", command):
                self.skip(block, block.skip or why or "makes an environment")
                continue
            # PyTorch takes seconds to import, so its programs run in forks of one process; TUTTI_TORCH_TESTS=all: as typed.
            program = re.fullmatch(r"tutti run -n 2 (\w+\.py)", command)
            if program and self.part == "torch" and os.environ.get("TUTTI_TORCH_TESTS") != "all":
                self.forked.append((place, folder / program.group(1)))
                self.forked_says += [re.sub(r"^\[rank \d+\] ", "", line) for line in expected]
                continue
            # The same program of two pages is compiled once.
            output = re.search(r"\s-o (\S+)", command)
            key = None
            if output and simple[0][0] in ("g++", "cc"):
                first = command.split("&&")[0]
                source = next(word for word in simple[0] if word.endswith((".cpp", ".c")))
                key = (first, (folder / source).read_text())
                if key in self.compiled:
                    shutil.copy(self.compiled[key], folder / output.group(1))
                    command = command.partition("&&")[2] or "true"
            self.note(place, self.shell(command, folder), expected)
            if key:
                self.compiled.setdefault(key, folder / output.group(1))

    def run_python(self, block):
        if block.skip:
            self.skip(block, block.skip)
        elif not block.file:  # a file is run by a command of its page
            program = self.folder(block.page) / f"line_{block.line}.py"
            program.write_text(f"{block.given}\n{block.text}")
            if self.part == "torch":
                self.forked.append((block.place, program))
            else:
                self.note(block.place, self.shell(f"tutti run -n 2 {program.name}", program.parent))

    def run_all(self):
        for page in pages.manual():
            for block in pages.blocks(page):
                if part_of(block) != self.part:
                    continue
                if block.language == "console":
                    self.run_console(block)
                elif block.language == "python":
                    self.run_python(block)
        if self.forked:
            driver = pathlib.Path(__file__).parent / "forked.py"
            programs = " ".join(str(program) for _, program in self.forked)
            self.note(", ".join(place for place, _ in self.forked), self.shell(f"python3 {driver} {programs}", self.scratch),
                      self.forked_says)

    def report(self):
        ran = len(self.ran) + max(0, len(self.forked) - 1) * (not self.failures)
        print(f"the pages' programs and commands ({self.part}): {ran} ran, {sum(self.skipped.values())} did not:")
        for line, count in self.skipped.items():
            print(f"  {line}{f' ({count} commands)' if count > 1 else ''}")
        for line in self.failures:
            print(f"FAILED {line}")
        return bool(self.failures)
