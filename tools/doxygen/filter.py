#!/usr/bin/env python3
"""Doxygen's view of a file: `filter.py FILE` prints it, line for line.

Headers (.hpp)  what a header begins with is true of all that it declares: that becomes the page of the file; what it declares
                goes into a topic of tools/doxygen/topics.dox, in distributed.hpp each section into its own. The table of the
                collectives stands where it is included, as Doxygen takes no declarations from there
C (.h)          the same, with C's comments
Pages (.md)     headings get the names that GitHub gives them, so that links to them work in both places; marks for tests go
"""
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/docs"))
import pages

TOPICS = {
    "available": "joining", "process_group": "groups", "groups": "groups", "device_mesh": "groups", "spawn": "joining",
    "reduce_op": "tensors", "dtype": "tensors", "tensor": "tensors", "symmetric": "tensors", "store": "stores",
    "window": "messages",
    "work": "works", "future": "works", "interrupt": "works", "plan": "plans", "coalescing": "plans", "error": "errors",
    "object": "objects", "object_types": "objects", "object_collectives": "objects", "ddp": "training",
    "quantized": "training", "debug": "watching", "trace": "watching", "backend": "devices", "stream": "devices",
    "nccl": "devices", "atb": "relatives", "hfai": "relatives", "version": "joining",
}
SECTIONS = {
    "The default group": "joining", "Options": "collectives", "Collectives, blocking": "collectives",
    "Point to point": "messages", "Collectives, asynchronous": "collectives",
}
TABLE = "#include <tutti/collectives.def>"
SECTION = re.compile(r"^// ---- (.*?) -+$")


def begin(topic):
    return f"/** @addtogroup {topic} */ /** @{{ */"


END = "/** @} */"


def header(lines, name):
    topic, is_open, is_first = TOPICS.get(name), False, True
    for line in lines:
        section = SECTION.match(line)
        if line == TABLE:
            line = (pages.ROOT / "include/tutti/collectives.def").read_text()
        if is_first:  # the comment before the include guard
            is_first = not line.startswith("#pragma once")
            line = re.sub(r"^// ?", "/// ", line) if is_first else "/// @file"
        elif section and name == "distributed":
            topic = SECTIONS[section.group(1)]
            line = (END if is_open else "") + begin(topic)
            is_open = True
        elif re.match(r"namespace tutti(::\w+)? \{$", line) and topic and name != "distributed":
            line, is_open = f"{line} {begin(topic)}", True
        elif re.match(r"\}  // namespace tutti(::\w+)?$", line) and is_open:
            line, is_open = f"{END} {line}", False
        yield line


def c_header(lines):
    """Comments of C become Doxygen's: before what they are about, or behind it on its line."""
    is_open = False
    for number, line in enumerate(lines):
        section = re.match(r"/\* ---- (.*?) -+ \*/$", line)
        if number == 0:
            line = line.replace("/* ", "/** @file\n * ", 1)
        elif section:
            title = section.group(1)
            name = "c_" + re.sub(r"\W+", "_", title.lower()).strip("_")
            line = (END if is_open else "") + f"/** @defgroup {name} {title} (C)\n@ingroup c\nFunctions and types of `tutti/tutti.h`. */ /** @{{ */"
            is_open = True
        else:
            line = re.sub(r"^(\s*)/\* (---- )?", r"\1/** ", line)
            line = re.sub(r"(\S.*\s)/\* ", r"\1/**< ", line) if "/**" not in line else line
        yield line
    if is_open:
        yield END


def anchored(page, line, ids):
    heading = re.match(r"(##+) (.*)", line)
    if heading:
        return f"{line} {{#{ids(page, pages.slug(heading.group(2)))}}}"

    def link(found):
        text, target, anchor = found.groups()
        file = (page.parent / target).resolve() if target else page
        if file.parent not in (pages.ROOT, pages.ROOT / "docs") or not file.exists() or file.name == "LICENSE":
            return f"{text} (`{file.relative_to(pages.ROOT)}`)"  # Doxygen does not read that one
        return f"[{text}](#{ids(file, anchor)})" if anchor else found.group(0)
    return re.sub(r"(?<!!)\[([^\]]*)\]\((?![a-z]+:)([\w./-]*)(?:#([\w-]+))?\)", link, line)


def markdown(page):
    def ids(file, name):
        return f"{file.stem.lower().replace('_', '-')}-{name}"

    outside = {number for number, _ in pages.prose(page)}
    is_mark = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        is_mark = is_mark or line.startswith("<!-- ")
        if is_mark:
            is_mark = "-->" not in line
            yield ""
        else:
            yield anchored(page, line, ids) if number in outside else line


def main():
    file = pathlib.Path(sys.argv[1]).resolve()
    lines = file.read_text().splitlines()
    if file.suffix == ".md":
        lines = markdown(file)
    elif file.suffix == ".h":
        lines = c_header(lines)
    else:
        lines = header(lines, file.stem)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
