#!/usr/bin/env python3
"""Each sentence that docs/operations.md quotes is one of the sources.

A sentence is what stands between backticks in the first column of a table; … stands for what differs. Either all of its
parts between … are parts of texts in the sources, or a text of the sources, with something in its places, is the sentence.
"""
import re
import sys

import pages

TEXT = re.compile(r'f?"(?:[^"\\\n]|\\.)*"')
TERM = r'f?"(?:[^"\\\n]|\\.)*"'
# "a" + b + "c", and in Python f"…{b}…": texts with a place in them.
SUM = re.compile(rf'{TERM}(?:\s*(?:\+|<<)\s*[^;"]{{1,80}}?(?:\+|<<)\s*{TERM}|\s*{TERM})*')
PLACE = re.compile(r"\{[^{}]*\}")


def texts():
    """The texts of the sources, with \0 for a place where something is put in."""
    found = set()
    for folder in ("src", "backends", "nccl", "python"):
        for file in sorted((pages.ROOT / folder).rglob("*")):
            if file.suffix not in (".cpp", ".hpp", ".py") or "_test" in file.name:
                continue
            source = file.read_text()
            if file.suffix != ".py":
                source = re.sub(r"^\s*//.*", "", source, flags=re.MULTILINE)
                source = re.sub(r'"\s*\n\s*"', "", source)  # one text on several lines
            for whole in SUM.finditer(source):
                parts = [re.sub(r'^f?"|"$', "", part) for part in TEXT.findall(whole.group(0))]
                for text in ("\0".join(parts), "".join(parts)):
                    text = text.replace('\\"', '"').replace("\\n", " ")
                    found.add(PLACE.sub("\0", text))
    return found


def sentences(page):
    for number, line in pages.prose(page):
        cell = re.match(r"\| `([^`]+)` \|", line)
        if cell:
            yield number, cell.group(1)


def is_known(sentence, known, joined):
    parts = [part.strip() for part in re.split(r"…", sentence)]
    parts = [part for part in parts if re.search(r"\w", part)]
    if max((len(part.split()) for part in parts), default=0) < 2:
        return False  # too little to say anything
    if all(part in joined for part in parts):
        return True
    plain = sentence.replace("…", "x")
    return any(pattern.fullmatch(plain) for pattern in known)


def patterns(found):
    """Those of at least three words of their own, as patterns."""
    for text in found:
        if len(re.findall(r"[A-Za-z]{2,}", text)) >= 3 and "\0" in text:
            yield re.compile(".+?".join(re.escape(part) for part in text.split("\0")), re.DOTALL)


def unknown(page, found):
    joined = "\n".join(found)
    known = list(patterns(found))
    return [f"{page.relative_to(pages.ROOT)}:{number}: the sources have no such text: {sentence}"
            for number, sentence in sentences(page) if not is_known(sentence, known, joined)]


def main():
    page = pages.ROOT / "docs/operations.md"
    found = texts()
    count, wrong = len(list(sentences(page))), unknown(page, found)
    # The test itself: words that nobody says are not found, and a sentence of the sources with words changed neither.
    for invented in ("nobody in this library says so", "rank 3 (node07, pid 4711) is away: killed"):
        if is_known(invented, list(patterns(found)), "\n".join(found)):
            wrong.append(f"an invented sentence was found: {invented}")
    print("\n".join(wrong) or f"{count} sentences of {page.name} are the sources' own")
    return bool(wrong) or count < 50


if __name__ == "__main__":
    sys.exit(main())
