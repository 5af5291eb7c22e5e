"""explain(): what became of the pieces of communication that compiled graphs have replayed."""

from __future__ import annotations

import re
from typing import Any

import torch.distributed as dist

#: A call site in a sentence: compiled code, which says nothing to a reader.
_SITE = re.compile(r" \([^()]*:\d+ in [^()]*\)")


def explain(group: Any = None) -> str:
    """For each piece, in the order of their first replays: its calls and local steps, how often it has been replayed, what the
    passes did to it, and its predicted time before and after. `group`: a ProcessGroup of tutti's; None: the default one.
    ValueError for a group of another backend. Pieces of the same program and other sizes are told apart."""
    from .backend import backend_of

    name = (dist.group.WORLD if group is None else group).group_name
    found = backend_of(name)
    if found is None:
        raise ValueError(f"explain: group {name!r} is not tutti's; expected one with the backend tutti")
    pieces = found.pieces()
    return "\n".join(_of(number, piece) for number, piece in enumerate(pieces, 1)) if pieces else "no pieces\n"


def _of(number: int, piece: dict[str, Any]) -> str:
    calls, steps = _counts(piece["captured"])
    calls_left, steps_left = _counts(piece["optimised"])
    lines = [f"piece {number}, replayed {piece['replays']} times: {_these(calls, steps)} -> {_these(calls_left, steps_left)}"]
    lines += [f"    {step.strip()}" for step in piece["program"].split(";") if step.split()[0] not in ("piece", "bucket", "algebra")]
    name, first, last = "", "", ""
    for line in piece["changes"].splitlines():
        if not line.startswith(" "):
            name, _, times = line.partition(": ")
            before, _, last = times.split(",")[0].partition(" -> ")
            first = first or before
        elif line != "  nothing to change":
            lines.append(f"  {name}: {_SITE.sub('', line.strip())}")
    if first != last:
        lines.append(f"  predicted: {first} -> {last}")
    return "\n".join(lines) + "\n"


def _counts(text: str) -> tuple[int, int]:
    """Of a graph's text: its collectives, and its other nodes."""
    kinds = [line.split()[2] for line in text.splitlines() if line.startswith("node ")]
    steps = sum(kind in ("compute", "copy") for kind in kinds)
    return len(kinds) - steps, steps


def _these(calls: int, steps: int) -> str:
    text = f"{calls} call{'' if calls == 1 else 's'}"
    return f"{text}, {steps} local step{'' if steps == 1 else 's'}" if steps else text
