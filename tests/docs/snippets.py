#!/usr/bin/env python3
"""Puts all C++ blocks of the pages into one program, so that they are compiled together; each can be run by its place.

Usage: snippets.py OUTPUT.cpp     A block that is a file of its page (pages.py) is not in it: a command compiles that.
"""
import pathlib
import re
import sys

import pages

HEAD = """// Made by tests/docs/snippets.py from the C++ blocks of the pages.
"""
TAIL = """
int main(int argc, char** argv) {
    struct Snippet {
        const char* place;
        void (*run)();
        bool has_group;  // it makes and destroys the default group itself
    };
    const Snippet snippets[] = {
%s
    };
    for (const Snippet& snippet : snippets) {
        if (argc == 1) {
            std::printf("%%s\\n", snippet.place);
        } else if (std::string_view(argv[1]) == snippet.place) {
            if (!snippet.has_group) tutti::init_process_group();
            snippet.run();
            if (tutti::is_initialized()) tutti::destroy_process_group();
            return 0;
        }
    }
    return argc == 1 ? 0 : 2;
}
"""


def snippets():
    return [block for page in pages.manual() for block in pages.blocks(page)
            if block.language == "cpp" and not block.file and not block.skip]


def main():
    includes, functions, table = {"#include <cstdio>", "#include <string_view>", "#include <tutti/tutti.hpp>"}, [], []
    for number, block in enumerate(snippets()):
        name = block.page.relative_to(pages.ROOT)
        code = f"{block.given}\n#line {block.line} \"{name}\"\n{block.text}"
        includes |= set(re.findall(r"^\s*(#include\s*<[^>]+>)", code, re.MULTILINE))
        code = re.sub(r"^\s*#include\s*<[^>]+>.*\n", "", code, flags=re.MULTILINE)
        if "int main(" in code:
            body = f"namespace {{\n{code.replace('int main(', 'int program(')}}}\nvoid run() {{ program(); }}\n"
        else:
            body = f"void run() {{\n{code}}}\n"
        functions.append(f"namespace snippet_{number} {{\n{body}}}\n")
        has_group = "true" if "init_process_group(" in code else "false"
        table.append(f'        {{"{name}:{block.line}", snippet_{number}::run, {has_group}}},')
    text = HEAD + "\n".join(sorted(includes)) + "\n\n" + "\n".join(functions) + TAIL % "\n".join(table)
    pathlib.Path(sys.argv[1]).write_text(text)


if __name__ == "__main__":
    main()
