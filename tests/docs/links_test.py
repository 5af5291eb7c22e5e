#!/usr/bin/env python3
"""Every relative link in a Markdown file leads to a file, and every anchor to a heading; every picture is there.
What stands between backticks and looks like a TUTTI_ variable or a C++ name of tutti is one that the sources know.
"""
import pathlib
import re
import sys
import tempfile

import pages

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)[^)]*\)")
NAME = re.compile(r"\btutti::((?:\w+::)*\w+)")


def broken_links(page):
    for number, line in pages.prose(page):
        for found in LINK.finditer(re.sub(r"`[^`]*`", "", line)):
            target, _, anchor = found.group(1).partition("#")
            if re.match(r"[a-z]+:", target):
                continue
            file = (page.parent / target).resolve() if target else page
            if not file.exists():
                yield f"{number}: {target}: there is no such file"
            elif anchor and file.suffix == ".md" and anchor not in pages.anchors(file):
                yield f"{number}: {found.group(1)}: that page has no such heading"


def unknown_names(page, headers, sources):
    """`headers`: all words of the public headers; `sources`: all TUTTI_ names."""
    for number, text in pages.code(page):
        for found in NAME.finditer(text):
            for word in found.group(1).split("::"):
                if word not in headers:
                    yield f"{number}: tutti::{found.group(1)}: no public header has \"{word}\""
        for name in re.findall(r"\b(TUTTI_[A-Z0-9_]*[A-Z0-9])\b", text):
            if not any(known.startswith(name) for known in sources):
                yield f"{number}: {name}: the sources do not know it"


def read(*patterns):
    return "\n".join(file.read_text(errors="replace") for pattern in patterns
                     for file in sorted(pages.ROOT.glob(pattern)) if file.is_file())


def seeded_faults_not_found(headers, sources):
    """A page with four faults: what the test does not see of them."""
    faults = ("[a](missing.md)", "[b](#nowhere)", "`tutti::make_coffee()`", f"`TUTTI_{'COFFEE'}=1`")
    with tempfile.TemporaryDirectory() as folder:
        page = pathlib.Path(folder) / "page.md"
        page.write_text("# A page\n\n" + "\n".join(faults) + "\n[c](#a-page), `tutti::all_reduce(x)`, `TUTTI_TUNE`\n")
        found = [*broken_links(page), *unknown_names(page, headers, sources)]
    lines = {int(line.partition(":")[0]) for line in found}
    if lines != {3, 4, 5, 6}:
        yield f"tests/docs/links_test.py: faults in lines 3 to 6 were seeded, and found in {sorted(lines)}"


def main():
    headers = read("include/tutti/*")
    sources = re.findall(r"TUTTI_[A-Z0-9_]+", headers + read("CMakeLists.txt", "backends/CMakeLists.txt", "cmake/*", "src/**/*.[ch]pp", "backends/**/*.[ch]pp", "nccl/**/*.[ch]pp",
                             "python/**/*.py", "python/**/*.cpp", "tests/**/*.py", "tests/*/*", "tools/*"))
    headers, sources = set(re.findall(r"\w+", headers)), set(sources)
    count, wrong = 0, list(seeded_faults_not_found(headers, sources))
    for page in pages.pages():
        count += 1
        name = page.relative_to(pages.ROOT)
        wrong += [f"{name}:{line}" for line in (*broken_links(page), *unknown_names(page, headers, sources))]
    print("\n".join(wrong) or f"{count} pages: all links, anchors and names are there")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
