"""The pages that a user reads, and what is in them: fenced blocks, their marks, code between backticks, links, anchors.

A comment directly above a block says what a test does with it:

    <!-- test: file NAME -->            the block is that file, for the commands of the same page
    <!-- test: skip because REASON -->  it cannot run in a test; commands are checked as far as they can be
    <!-- test: given CODE -->           code (often of several lines) that stands before the block where it runs
"""
import dataclasses
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MARK = re.compile(r"<!-- test: (file|skip because|given)\s(.*?)\s*-->$", re.DOTALL)
FENCE = re.compile(r"^(```+)(\S*)\s*$")


@dataclasses.dataclass
class Block:
    page: pathlib.Path
    line: int  # of its first line
    language: str
    text: str
    file: str = ""
    skip: str = ""
    given: str = ""

    @property
    def place(self):
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages():
    """All Markdown files of the project, in order."""
    found = [*ROOT.glob("*.md")]
    for folder in ("docs", "examples", "python", "src", "backends", "nccl", "bench", "tests"):
        found += (ROOT / folder).rglob("*.md")
    return sorted(found)


def manual():
    """Those that a user reads from: their programs and commands are tried."""
    return [page for page in pages() if page.parent in (ROOT, ROOT / "docs", ROOT / "examples")]


def blocks(page):
    """The fenced blocks of a page. Raises ValueError for a mark that is none."""
    lines = page.read_text().splitlines()
    found, comment, index = [], "", 0
    while index < len(lines):
        fence = FENCE.match(lines[index])
        if fence:
            end = next(i for i in range(index + 1, len(lines)) if lines[i].strip() == fence.group(1))
            block = Block(page, index + 2, fence.group(2), "\n".join(lines[index + 1:end]) + "\n")
            if comment:
                mark = MARK.match(comment)
                if not mark:
                    raise ValueError(f"{block.place}: \"{comment}\": expected a mark that tests/docs/pages.py knows")
                setattr(block, mark.group(1).split()[0], mark.group(2))
            found.append(block)
            index, comment = end, ""
        elif lines[index].startswith("<!-- test:"):
            start = index
            while not lines[index].endswith("-->"):
                index += 1
            comment = "\n".join(lines[start:index + 1])
        elif lines[index].strip():
            if comment:
                raise ValueError(f"{page.relative_to(ROOT)}:{index + 1}: a mark stands above no block")
        index += 1
    return found


def prose(page):
    """(line number, line) outside of fenced blocks and comments."""
    fence, comment = None, False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        found = FENCE.match(line)
        if fence:
            if found and found.group(1) == fence:
                fence = None
        elif found:
            fence = found.group(1)
        elif comment or line.startswith("<!--"):
            comment = "-->" not in line
        else:
            yield number, line


def code(page):
    """(line number, text) of what stands between backticks."""
    for number, line in prose(page):
        for found in re.finditer(r"(?<!`)`([^`]+)`(?!`)", line):
            yield number, found.group(1)


def slug(heading):
    """The name of a heading, as GitHub makes it."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


def anchors(page):
    """The names of a page's headings."""
    seen, found = {}, set()
    for _, line in prose(page):
        heading = re.match(r"#+ (.*)", line)
        if heading:
            name = slug(heading.group(1))
            count = seen.get(name, 0)
            seen[name] = count + 1
            found.add(f"{name}-{count}" if count else name)
    return found
