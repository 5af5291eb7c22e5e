#!/usr/bin/env python3
"""Runs the commands of the pages that need the build alone, and their C++ blocks; looks at all the others.

Usage: commands_test.py BUILD SNIPPETS     SNIPPETS is what was compiled of snippets.py's output
"""
import pathlib
import subprocess
import sys

import commands
import pages
import running
import snippets

LANGUAGES = ("console", "cpp", "python", "c", "cmake", "")


def faults(checker):
    for page in pages.manual():
        for block in pages.blocks(page):
            if block.language not in LANGUAGES:
                yield f"{block.place}: a block of {block.language}: expected one of {', '.join(LANGUAGES)}"
            if block.language == "console":
                if not commands.commands(block):
                    yield f"{block.place}: no line begins with \"$ \""
                for command, _ in commands.commands(block):
                    for words in commands.words(command):
                        fault = checker.fault(words)
                        if fault:
                            yield f"{block.place}: {fault}"
            if block.language == "python":
                try:
                    compile(f"{block.given}\n{block.text}", block.place, "exec")
                except SyntaxError as error:
                    yield f"{block.place}: {error}"
        for number, text in pages.code(page):
            if text.startswith(("tutti ", "make ", "tools/", "build/bin/tutti ")):
                try:
                    found = [fault for words in commands.words(text) for fault in [checker.fault(words)] if fault]
                except ValueError as error:
                    found = [str(error)]
                for fault in found:
                    yield f"{page.relative_to(pages.ROOT)}:{number}: {fault}"


def main():
    build, program = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    checker = commands.Checker(build)
    wrong = list(faults(checker))
    for invented in (["tutti", "run", "--ranks-of-mine", "3"], ["make", "coffee"], ["tutti", "rum"], ["tools/nothing"]):
        if not checker.fault(invented):
            wrong.append(f"{' '.join(invented)}: the checker finds nothing wrong with it")

    if running.matches(["[rank 0] 7"], "[rank 0] 6\n") is None:
        wrong.append("output that differs from what a page says is not noticed")

    prefix = build / "docs-test/prefix"
    subprocess.run(["cmake", "--install", build, "--prefix", prefix], check=True, stdout=subprocess.DEVNULL)
    runner = running.Runner("cpp", build, build / "docs-test/cpp", prefix)
    for block in snippets.snippets():
        runner.note(block.place, runner.shell(f"tutti run -n 2 {program} {block.place}", runner.scratch))
    runner.run_all()
    failed = runner.report()
    if wrong:
        print("\n".join(wrong))
    return failed or bool(wrong) or not runner.ran


if __name__ == "__main__":
    sys.exit(main())
