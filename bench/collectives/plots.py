#!/usr/bin/env python3
"""Draws what `tutti bench` measured, by matplotlib, as SVG without scripts, legible on a light and on a dark page.

  plots.py FOLDER                       the plots of a report: FOLDER has rows.json
  plots.py --picture FILE.svg FOLDER    README's picture, of a report: how much longer than tutti its peers take, by size
"""
import argparse
import json
import pathlib
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402  (after the choice of what draws)

# Each implementation's colour and mark on all plots: mid tones, which stand out from white and from black.
STYLES = {"tutti": ("#d9383a", "o"), "tutti-plan": ("#a8528f", "P"), "openmpi": ("#3d85c8", "s"), "mpich": ("#3d9a50", "^"),
          "gloo": ("#d08a1d", "D"), "torch": ("#8c6bc0", "v")}
OTHERS = ("#3aa0a0", "X")
NAMES = {"openmpi": "Open MPI", "mpich": "MPICH", "gloo": "Gloo", "torch": "PyTorch, gloo", "tutti-plan": "tutti, as a plan"}
# Lines and words of the frame. The style below gives them another colour where the reader's page is dark.
INK, GRID = "#4a4a4b", "#b9b9ba"
DARK = f"""<style>
@media (prefers-color-scheme: dark) {{
  [style*="fill: {INK}"] {{ fill: #d6d6d7 !important }}
  [style*="stroke: {INK}"] {{ stroke: #d6d6d7 !important }}
  [style*="stroke: {GRID}"] {{ stroke: #55565a !important }}
}}
</style>
"""


def size_text(count):
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1024 or unit == "GB":
            return f"{count:g} {unit}"
        count /= 1024
    return ""


def name_of(implementation):
    """Of "openmpi 4.1.4", as its makers write it."""
    word, *version = implementation.split(" ")
    return " ".join([NAMES.get(word, word), *version])


def style_of(implementation):
    colour, mark = STYLES.get(implementation.split(" ")[0], OTHERS)
    own = implementation == "tutti"
    return {"color": colour, "marker": mark, "markersize": 5 if own else 4, "linewidth": 2.6 if own else 1.6,
            "zorder": 4 if own else 3}


def prepare():
    plt.rcParams.update({
        "svg.fonttype": "none", "svg.hashsalt": "tutti", "font.family": "sans-serif", "font.size": 11,
        "font.sans-serif": ["system-ui", "Helvetica", "Arial", "DejaVu Sans"], "text.color": INK, "axes.edgecolor": INK,
        "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK, "axes.spines.top": False,
        "axes.spines.right": False, "axes.grid": True, "grid.color": GRID, "grid.linewidth": 0.6, "legend.frameon": False,
        "axes.titlelocation": "left", "axes.titlesize": 12, "axes.titlepad": 10})
    # The page's own fonts are taken, whichever matplotlib knows here.
    import logging
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)


def over_sizes(axes, sizes):
    """A logarithmic axis with at most seven of the sizes, in words."""
    axes.set_xscale("log", base=2)
    step = -(-len(sizes) // 7)
    shown = sizes[::step]
    axes.set_xticks(shown, [size_text(s) for s in shown])
    axes.xaxis.minorticks_off()
    margin = 1.35
    axes.set_xlim(sizes[0] / margin, sizes[-1] * margin)
    axes.set_xlabel("size of the buffer")


def plain(value, _):
    return f"{value:,.0f}" if value >= 10 else f"{value:g}"


def save(figure, file):
    figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    plt.close(figure)
    text = pathlib.Path(file).read_text()
    head = text.index("<defs>")
    pathlib.Path(file).write_text(text[:head] + DARK + text[head:])


def by_implementation(rows):
    curves = {}
    for row in rows:
        curves.setdefault(row["implementation"], []).append(row)
    return curves


def draw(file, collective, rows):
    curves = by_implementation(rows)
    sizes = sorted({row["bytes"] for row in rows})
    figure, (time, speed) = plt.subplots(1, 2, figsize=(12, 4.4), layout="constrained")
    for implementation, points in reversed(curves.items()):
        bytes_, style = [p["bytes"] for p in points], style_of(implementation)
        time.plot(bytes_, [p["median_us"] for p in points], label=name_of(implementation), **style)
        speed.plot(bytes_, [p["busbw_gbps"] for p in points], **style)
        if implementation == "tutti":
            time.fill_between(bytes_, [p["p10_us"] for p in points], [p["p90_us"] for p in points], color=style["color"],
                              alpha=0.15, linewidth=0)
    known = [row for row in curves.get("tutti", []) if row["bound_us"]]
    if len(known) > 1:
        time.plot([p["bytes"] for p in known], [p["bound_us"] for p in known], color="#8a8a8b", linestyle=(0, (5, 3)),
                  linewidth=1.4, label="limit of the machine", zorder=2)
    time.set_yscale("log")
    time.yaxis.set_major_formatter(plain)
    time.set_title(f"{collective}: time in µs (lower is better)")
    speed.set_title("bus bandwidth in GB/s (higher is better)")
    speed.set_ylim(bottom=0)
    for axes in (time, speed):
        over_sizes(axes, sizes)
    handles, labels = time.get_legend_handles_labels()
    if len(handles) > 1:
        time.legend(handles[::-1], labels[::-1], loc="upper left")
    save(figure, file)


def report(folder):
    rows = [row for row in json.loads((folder / "rows.json").read_text()) if row["bytes"] > 0]
    for collective in dict.fromkeys(row["collective"] for row in rows):
        # Of several types the first: the table has them all.
        mine = [row for row in rows if row["collective"] == collective]
        draw(folder / f"{collective}.svg", collective, [row for row in mine if row["dtype"] == mine[0]["dtype"]])


def picture(file, folder):
    """The peers' times over tutti's: what a reader wants to know first, and all that holds on other machines."""
    rows = json.loads((folder / "rows.json").read_text())
    about = json.loads((folder / "about.json").read_text())
    curves = by_implementation(rows)
    own = {row["bytes"]: row["median_us"] for row in curves.pop("tutti")}
    figure, axes = plt.subplots(figsize=(8.6, 4.4), layout="constrained")
    axes.axhline(1, zorder=3, color=STYLES["tutti"][0], linewidth=2.6)
    axes.annotate("tutti", (max(own), 1), xytext=(14, 0), textcoords="offset points", va="center",
                  color=STYLES["tutti"][0], weight="bold")
    ends = []
    for implementation, points in curves.items():
        ratios = [row["median_us"] / own[row["bytes"]] for row in points]
        axes.plot([row["bytes"] for row in points], ratios, **style_of(implementation))
        ends.append([implementation, ratios[-1]])
    axes.set_yscale("log", base=2)
    # Names at the lines' ends, as far from one another as words are high.
    apart, below = 1.45, 1.0
    for implementation, ratio in sorted(ends, key=lambda end: end[1]):
        below = max(ratio, below * apart)
        axes.annotate(name_of(implementation), (max(own), below), xytext=(14, 0), textcoords="offset points", va="center",
                      color=STYLES[implementation.split(" ")[0]][0], annotation_clip=False)
    top = max(row["median_us"] / own[row["bytes"]] for points in curves.values() for row in points)
    every = 2 if top > 300 else 1  # powers of two; with many every second one
    ticks = [2**i for i in range(0, 20, every) if 2**i <= top * 1.3]
    axes.set_yticks(ticks, [f"{tick:g}×" for tick in ticks])
    axes.yaxis.minorticks_off()
    axes.set_ylim(0.6, top * 1.3)
    over_sizes(axes, sorted(own))
    first = rows[0]
    where = "TCP over loopback" if first["transport"] == "tcp" else "one host"
    axes.set_title(f"{first['collective']}, {first['ranks']} processes, {where}: time over tutti's (less is better)")
    notes = ["Gloo has no shared memory and goes over loopback"] if "gloo" in about["versions"] else []
    notes = [f"{about['cpu']}, {about['date'].split()[0]}; medians of rounds in turn", *notes]
    axes.set_xlabel(f"size of the buffer ({first['dtype']})")
    figure.supxlabel(". ".join(notes) + ".", fontsize=9, x=0.01, ha="left")
    save(figure, file)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--picture", type=pathlib.Path, metavar="FILE.svg")
    parser.add_argument("place", type=pathlib.Path, metavar="FOLDER")
    arguments = parser.parse_args()
    prepare()
    if arguments.picture:
        picture(arguments.picture, arguments.place)
    else:
        report(arguments.place)
    return 0


if __name__ == "__main__":
    sys.exit(main())
