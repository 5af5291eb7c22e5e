#!/usr/bin/env python3
"""docs/performance.json, which `targets.py --save` writes, and the table that docs/performance.md shows of it.

Usage: results.py [--check]      writes the table into the page; --check: exit status 1 where the page has another one
"""
import datetime
import json
import os
import pathlib
import platform
import sys

DOCS = pathlib.Path(__file__).resolve().parent.parent / "docs"
BEGIN = "<!-- results: bench/results.py writes what follows, of docs/performance.json -->\n"
END = "<!-- end of the results -->\n"


def facts(program_version, turns, command):
    """What a reader needs to know of a run, beside its figures."""
    cpu = next((line.split(":", 1)[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith("model name")), platform.machine())
    return {"date": datetime.date.today().isoformat(), "tutti": program_version, "cpu": cpu, "cpus": len(os.sched_getaffinity(0)),
            "kernel": platform.release().split("-")[0], "load": [round(os.getloadavg()[0], 1)], "turns": turns, "command": command}


def save(file, about, lines):
    """`lines`: what targets.py knows of each target. The load at the end is added to that at the beginning."""
    about["load"].append(round(os.getloadavg()[0], 1))
    pathlib.Path(file).write_text(json.dumps({"about": about, "targets": lines}, indent=1) + "\n")


def figure(value, unit):
    if value is None:
        return "-"
    if unit == "%":
        return f"{100 * value:.1f} %"
    return f"{value:.3g}{' ' + unit if unit else ''}"


def table(data):
    about, lines = data["about"], data["targets"]
    holding = sum(line["holds"] for line in lines)
    measured = [line for line in lines if line["measured"] is not None]
    busy = "" if max(about["load"]) <= 0.5 else (
        f" The machine had other work: its load was {about['load'][0]} when this began, so single cases are worse than on a quiet one.")
    text = (f"tutti {about['tutti']}, {about['date']}, {about['cpus']} CPUs ({about['cpu']}), Linux {about['kernel']}; "
            f"`{about['command']}`, {about['turns']} turn{'s' if about['turns'] > 1 else ''}.{busy} "
            f"{holding} of {len(lines)} targets held, {len(lines) - len(measured)} were not measured.\n\n"
            "| target | limit | measured | the case furthest from it | cases beyond it |\n|---|---|---|---|---|\n")
    for line in lines:
        limit = f"{line['sign']} {figure(line['limit'], line['unit'])}"
        short = sum(not case["holds"] for case in line["cases"].values())
        beyond = f"{short} of {len(line['cases'])}" if line["cases"] else "-"
        value = figure(line["measured"], line["unit"])
        case = line["case"] if line["measured"] is not None else "not measured"
        if line["measured"] is not None and not line["holds"]:
            value = f"**{value}**"
        text += f"| {line['target']} | {limit} | {value} | {case} | {beyond} |\n"
    return text


def with_table(page, data):
    """The page with the table of this data. Raises ValueError where it has no place for one."""
    begin, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    return page[:begin] + "\n" + table(data) + "\n" + page[end:]


def main():
    page = DOCS / "performance.md"
    text = page.read_text()
    wanted = with_table(text, json.loads((DOCS / "performance.json").read_text()))
    if sys.argv[1:] != ["--check"]:
        page.write_text(wanted)
        return 0
    if text == wanted:
        return 0
    print("docs/performance.md shows other figures than docs/performance.json has; type: bench/results.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
