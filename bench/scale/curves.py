#!/usr/bin/env python3
"""Tables and the picture of docs/scale-joining.md, of the rows that scale_bench has written. Standard library only.

curves.py ROWS.json [--svg FILE]: prints a Markdown table for each part, with the exponent of each column: that of N in the
power of N that fits the upper half of the rows best. With --svg it draws the picture.
"""
import argparse
import json
import math
import pathlib

# Panels of the picture: title, then curves: part, column, words.
PANELS = [
    ("Requests of a rank while it joins", [
        ("meeting", "requests_of_rank_0", "rank 0, simulated"), ("meeting", "requests_of_another", "another, simulated"),
        ("world", "requests", "mean, measured")]),
    ("KB that a rank gets while it joins", [
        ("meeting", "outcome_kb", "simulated"), ("world", "got_kb", "measured")]),
    ("A death: messages of the busiest rank, ms", [
        ("lifelines", "verdict_busiest", "messages, simulated"), ("lifelines", "verdict_ms", "last is told, simulated"),
        ("world", "verdict_ms", "last is told, measured on 2 cores")]),
    ("Leaving: messages that a rank sends", [
        ("leaving", "slow_messages", "within a second, simulated"), ("leaving", "messages", "at once, simulated")]),
    ("A store's clients: ms until all are woken", [("store", "wake_ms", "measured on 2 cores")]),
    ("KiB of a rank, measured", [
        ("world", "private_kib", "its own, all in one process"), ("store", "server_kib", "of the store's server")]),
]
COLOURS = ["#2f73b5", "#c2622d", "#2f857c"]
STYLE = """<style>
text { font: 12px system-ui, Helvetica, Arial, sans-serif; fill: #4a4a4b }
.title { font-size: 13px; font-weight: 600 } .soft { font-size: 11px } .axis { stroke: #b9b9ba; fill: none }
@media (prefers-color-scheme: dark) { text { fill: #d6d6d7 } .axis { stroke: #55565a } }
</style>
"""


def derived(row):
    """The row with its columns in the units of the picture, too."""
    more = {"outcome_kb": ("outcome_bytes", 1e-3), "got_kb": ("bytes_got", 1e-3)}
    if row["part"] == "lifelines":
        more["verdict_ms"] = ("verdict_s", 1e3)
    return row | {name: row[of] * factor for name, (of, factor) in more.items() if of in row}


def exponent(points):
    """Of the power of N that fits the upper half of the points, at least three; None where no power is near all of them."""
    points = [(math.log(n), math.log(value)) for n, value in points if value > 0]
    points = points[min(len(points) // 2, max(0, len(points) - 3)):]
    if len(points) < 2:
        return None
    x, y = (sum(p[i] for p in points) / len(points) for i in (0, 1))
    slope = sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points)
    return round(slope, 2) + 0.0 if all(abs(b - y - slope * (a - x)) < math.log(1.7) for a, b in points) else None


def points_of(rows, part, column):
    return [(row["ranks"], row[column]) for row in rows if row["part"] == part and column in row]


def shown(value):
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def table(rows, part):
    of_part = [row for row in rows if row["part"] == part]
    columns = [name for name in of_part[0] if name not in ("part", "ranks")]
    lines = [f"**{part}**", "", "| N | " + " | ".join(columns) + " |", "|" + "---|" * (len(columns) + 1)]
    for row in of_part:
        lines.append(f"| {row['ranks']:,} | " + " | ".join(shown(row[name]) for name in columns) + " |")
    fits = [exponent(points_of(rows, part, name)) for name in columns]
    lines.append("| exponent | " + " | ".join("" if fit is None else f"{fit:.2f}" for fit in fits) + " |")
    return "\n".join(lines) + "\n"


def panel(rows, title, curves, left, top, width=300, height=170):
    drawn = [(words, [(n, v) for n, v in points_of(rows, part, column) if v > 0]) for part, column, words in curves]
    every = [point for _, points in drawn for point in points]
    low, high = (math.floor(math.log10(min(v for _, v in every))), math.ceil(math.log10(max(v for _, v in every)) + 1e-9))
    first, last = math.log10(min(n for n, _ in every)), math.log10(max(n for n, _ in every))

    def x(n):
        return left + (math.log10(n) - first) / max(last - first, 1e-9) * width

    def y(value):
        return top + height - (math.log10(value) - low) / max(high - low, 1) * height

    svg = [f'<text x="{left - 36}" y="{top - 14}" class="title">{title}</text>',
           f'<path class="axis" d="M{left} {top}V{top + height}H{left + width}"/>']
    for power in range(low, high + 1):
        svg.append(f'<text x="{left - 6}" y="{y(10 ** power) + 4:.1f}" class="soft" text-anchor="end">{10 ** power:g}</text>')
    for power in range(math.ceil(first), math.floor(last) + 1):
        svg.append(f'<text x="{x(10 ** power):.1f}" y="{top + height + 15}" class="soft" text-anchor="middle">{10 ** power:,}</text>')
    for number, (words, points) in enumerate(drawn):
        colour, fit = COLOURS[number], exponent(points)
        path = "L".join(f"{x(n):.1f} {y(v):.1f}" for n, v in points)
        svg.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        svg += [f'<circle cx="{x(n):.1f}" cy="{y(v):.1f}" r="3" fill="{colour}"/>' for n, v in points]
        power = "" if fit is None else f": N^{fit:.2f}"
        svg.append(f'<path d="M{left} {top + height + 26 + 16 * number}h18" stroke="{colour}" stroke-width="3"/>'
                   f'<text x="{left + 24}" y="{top + height + 30 + 16 * number}" class="soft">{words}{power}</text>')
    return svg


def picture(rows):
    wide, high = 380, 290
    count = math.ceil(len(PANELS) / 2)
    svg = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * wide} {count * high}" width="{2 * wide}" '
           f'height="{count * high}" role="img">', STYLE]
    for number, (title, curves) in enumerate(PANELS):
        svg += panel(rows, title, curves, 56 + number % 2 * wide, 34 + number // 2 * high)
    return "\n".join(svg) + "\n</svg>\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=pathlib.Path)
    parser.add_argument("--svg", type=pathlib.Path)
    arguments = parser.parse_args()
    rows = [derived(row) for row in json.loads(arguments.rows.read_text())]
    for part in dict.fromkeys(row["part"] for row in rows):
        print(table(rows, part))
    if arguments.svg:
        arguments.svg.write_text(picture(rows))


if __name__ == "__main__":
    main()
