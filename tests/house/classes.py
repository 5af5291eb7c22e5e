"""Counts the functions and the fields of every class that C++ sources define. Standard library only.

It reads the house's layout and no more of C++ than that needs: comments, texts and lines of the preprocessor are taken
out; a class's body is cut into declarations at semicolons and behind the bodies of functions; a declaration with a
parameter list is a function, any other one has a field for each name. What macros add to a class is not seen.
"""
import dataclasses
import re

LITERALS = re.compile(r'R"([^(\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\'|//[^\n]*|/\*.*?\*/', re.DOTALL)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
OPERATOR = re.compile(r"\boperator\s*(\(\s*\)|[^\w\s(]+)(?=\s*\()")
# Between a function's name and its body, and before a field's name: words with parentheses that are no parameter list.
ASIDE = re.compile(r"\b(?:alignas|decltype|explicit|noexcept|requires|[A-Z][A-Z0-9_]{2,})\s*(?=\()")
BRACKETS = {"{": re.compile("[{}]"), "(": re.compile("[()]")}
HEAD = re.compile(r"(?<!enum )\b(class|struct|union)\b\s*(?:alignas\(\w+\)\s*|[A-Z_]{3,}\s+)*"
                  r"((?:\w+::)*\w+(?:<[^{};()]*>)?)?\s*(?:final\s*)?(?::(?!:)[^{};()]*)?\{")
NO_MEMBER = re.compile(r"(?:using|typedef|static_assert|enum|friend (?:class|struct)|(?:class|struct|union) \w+$)\b")


@dataclasses.dataclass
class Class:
    line: int
    name: str
    functions: int = 0
    fields: int = 0
    plain: bool = True  # data alone: no function but those that the compiler writes


def classes(source: str):
    """Yields every class, those inside of others and of functions too, in the order of the text."""
    text = without_literals(source)
    for head in HEAD.finditer(text):
        if head.group(2) is None and not names_behind(text, head.end() - 1):
            continue  # the members of an anonymous union belong to the class around it
        found = Class(text.count("\n", 0, head.start()) + 1, head.group(2) or "(unnamed)")
        count(text[head.end():end_of_block(text, head.end() - 1) - 1], found)
        yield found


def without_literals(source: str) -> str:
    def blank(found):
        return ("''" if found.group()[0] in "R\"'" else " ") + "\n" * found.group().count("\n")
    text = DIRECTIVE.sub(lambda found: "\n" * found.group().count("\n"), LITERALS.sub(blank, source))
    text = OPERATOR.sub(lambda found: "operator_assign" if found.group(1) == "=" else "operator_other", text)
    text = re.sub(r"\[\[.*?\]\]", lambda found: "\n" * found.group().count("\n"), text, flags=re.DOTALL)
    pieces, end = [], 0
    for aside in ASIDE.finditer(text):
        if aside.start() >= end:  # else it lies inside of another one
            pieces.append(text[end:aside.start()])
            end = end_of_block(text, aside.end())
            pieces.append("\n" * text.count("\n", aside.start(), end))  # as long as it was, so that the lines stay
    return "".join(pieces) + text[end:]


def end_of_block(text: str, begin: int) -> int:
    """Behind the bracket that closes the one at `begin`."""
    opening, brackets = text[begin], BRACKETS[text[begin]]
    depth = 0
    for found in brackets.finditer(text, begin):
        depth += 1 if found.group() == opening else -1
        if depth == 0:
            return found.end()
    return len(text)


def names_behind(text: str, brace: int) -> str:
    end = end_of_block(text, brace)
    return text[end:text.index(";", end)].strip()


def count(body: str, into: Class) -> None:
    special = False  # constructors, the destructor, and copies that are deleted or defaulted count once
    own_name = re.sub(r"<.*", "", into.name, flags=re.DOTALL).split("::")[-1]
    for text in declarations(body):
        if text.startswith("union {"):
            count(text[text.index("{") + 1:text.rindex("}")], into)
            continue
        if re.match(r"(?:class|struct|union|enum)\b[^()]*?\{", text):
            into.fields += declarators(text[end_of_block(text, text.index("{")):])
            continue
        if NO_MEMBER.match(text):
            continue
        name = function_name(text)
        if name is None:
            into.fields += 0 if re.match(r"(?:inline )?static (?:inline )?const", text) else declarators(text)
            continue
        by_compiler = re.search(r"= (?:default|delete)$", text) is not None
        if name in (own_name, "~" + own_name) or (by_compiler and name == "operator_assign"):
            special = True
        else:
            into.functions += 1
        into.plain = into.plain and by_compiler
    into.functions += special


def declarations(body: str):
    """The declarations of a class's body in one line each, without labels of access and bodies of functions."""
    begin = position = 0
    while position < len(body):
        letter = body[position]
        if letter == "(":
            position = end_of_block(body, position)
        elif letter == "{":
            text = tidy(body[begin:position])
            end = end_of_block(body, position)
            if is_before_body(text):
                yield text
                begin = end
            position = end
        elif letter == ";":
            if text := tidy(body[begin:position]):
                yield text
            position += 1
            begin = position
        else:
            position += 1


def tidy(text: str) -> str:
    text = " ".join(text.split())
    text = re.sub(r"^(?:(?:public|protected|private)\s*: ?)+", "", text)
    while text.startswith("template <"):
        text = text[end_of_angles(text, text.index("<")):].strip()
    return re.sub(r"^requires (?:[\w:]+(?:<[^()]*?>)?(?: && | \|\| )?)+ (?=\w)", "", text)


def is_before_body(text: str) -> bool:
    """Whether the brace that follows `text` begins a function's body (and not a class's, or a value)."""
    if re.match(r"(?:class|struct|union|enum)\b[^()]*$", text) or function_name(text) is None:
        return False
    _, behind = parameters(text)
    if re.match(r"[\w&\s]*:(?!:)", behind):  # a constructor's list of members, of which some are set with braces
        return text[-1] in ")}"
    return "=" not in behind


def function_name(text: str):
    before, _ = parameters(text)
    found = re.search(r"(?:operator [\w:*& ]+|~?\w+)$", before.rstrip()) if before is not None else None
    return found.group() if found else None


def parameters(text: str):
    """What stands before and behind the first parameter list; (None, text) where there is none."""
    position = 0
    while position < len(text):
        letter = text[position]
        if letter == "<":
            position = end_of_angles(text, position)
        elif letter in "={":
            return None, text
        elif letter == "(":
            if text[position + 1:position + 2] == "*":  # a pointer to a function is a field
                return None, text
            return text[:position], text[end_of_block(text, position):]
        else:
            position += 1
    return None, text


def end_of_angles(text: str, begin: int) -> int:
    depth = 0
    for found in re.compile(r"->|<=|>=|[<>]").finditer(text, begin):
        depth += {"<": 1, ">": -1}.get(found.group(), 0)
        if depth == 0:
            return found.end()
    return len(text)


def declarators(text: str) -> int:
    """How many names a declaration of fields has."""
    names, position = 1 if text.strip() else 0, 0
    while position < len(text):
        letter = text[position]
        if letter in "({":
            position = end_of_block(text, position)
        elif letter == "<" and text[position - 1:position] != " ":
            position = end_of_angles(text, position)
        else:
            names += letter == ","
            position += 1
    return names
