#!/usr/bin/env python3
"""Draws what `tutti bench` measured, by matplotlib, as SVG without scripts, legible on a light and on a dark page.

  plots.py FOLDER                       the plots of a report: FOLDER has rows.json
  plots.py --picture FILE.svg FOLDER... README's picture, of reports of one collective with 2, 4, ... ranks: times beside the peers'
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


def picture(file, folders):
    """Times and their spread (10 to 90 %), a panel for each number of ranks."""
    reports = [json.loads((folder / "rows.json").read_text()) for folder in folders]
    about = json.loads((folders[0] / "about.json").read_text())
    across = min(2, len(reports))
    figure, grid = plt.subplots(-(-len(reports) // across), across, figsize=(5.4 * across, 3.6 * -(-len(reports) // across)),
                                layout="constrained", sharey=True, squeeze=False)
    for axes, rows in zip(grid.flat, reports):
        for implementation, points in reversed(by_implementation(rows).items()):
            sizes, style = [row["bytes"] for row in points], style_of(implementation)
            axes.plot(sizes, [row["median_us"] for row in points], label=name_of(implementation), **style)
            axes.fill_between(sizes, [row["p10_us"] for row in points], [row["p90_us"] for row in points],
                              color=style["color"], alpha=0.18, linewidth=0)
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(plain)
        axes.yaxis.minorticks_off()
        over_sizes(axes, sorted({row["bytes"] for row in rows}))
        axes.set_xlabel("")
        ranks = rows[0]["ranks"]
        shared = f" on {about['hardware_threads']} CPUs" if ranks > about["hardware_threads"] else ""
        axes.set_title(f"{ranks} processes{shared}")
    for axes in grid.flat[len(reports):]:
        axes.set_axis_off()
    handles, labels = grid.flat[0].get_legend_handles_labels()
    grid.flat[0].legend(handles[::-1], labels[::-1], loc="upper left")
    first = reports[0][0]
    where = "TCP over loopback" if first["transport"] == "tcp" else "one host"
    figure.suptitle(f"{first['collective']}, {where}: time in µs by the buffer's size ({first['dtype']})", x=0.01, ha="left")
    notes = ["Gloo has no shared memory and goes over loopback"] if "gloo" in about["versions"] else []
    notes = [f"{about['cpu']}, {about['date'].split()[0]}; medians, and from the 10th to the 90th percentile", *notes]
    figure.supxlabel(". ".join(notes) + ".", fontsize=9, x=0.01, ha="left")
    save(figure, file)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--picture", type=pathlib.Path, metavar="FILE.svg")
    parser.add_argument("places", type=pathlib.Path, metavar="FOLDER", nargs="+")
    arguments = parser.parse_args()
    prepare()
    if arguments.picture:
        picture(arguments.picture, arguments.places)
    for place in [] if arguments.picture else arguments.places:
        report(place)
    return 0


if __name__ == "__main__":
    sys.exit(main())
