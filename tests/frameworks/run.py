"""Runs each framework's program three times: on gloo, on tutti by name, and with gloo replaced; compares what came of it. Runs
programs for NCCL once, on libtutti-nccl. Writes docs/frameworks.md. Usage: run.py [--only NAME,...] RESULTS_FOLDER [DOCUMENT]

The Python that runs this has the frameworks; PYTHONPATH has tutti.torch. A right result is kept in RESULTS_FOLDER as long as
neither the program nor a package changes; the document is written when that is all of them. The exit status is 1 where
something is wrong.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import hashlib
import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

FOLDER = pathlib.Path(__file__).resolve().parent
ROUNDING = 1e-6  # of a number, relative to the largest of the tensor list


@dataclasses.dataclass
class Framework:
    name: str  # of the program
    title: str
    package: str  # whose version is told
    torchrun: bool = True
    ranks: int = 2


FRAMEWORKS = [
    Framework("accelerate", "accelerate", "accelerate"),
    Framework("transformers", "transformers, `Trainer`", "transformers"),
    Framework("fabric", "Lightning, `Fabric`", "lightning"),
    Framework("lightning", "Lightning, `Trainer`", "lightning"),
    Framework("ignite", "ignite", "pytorch-ignite"),
    Framework("deepspeed", "DeepSpeed, ZeRO 1 to 3", "deepspeed"),
    Framework("ray", "Ray Train", "ray", torchrun=False),
    Framework("torchft", "torchft", "torchft-nightly", torchrun=False),
    Framework("dcp", "DCP (`torch.distributed.checkpoint`)", "torch"),
    Framework("megatron", "Megatron-Core: tensor parallel, pipeline, its DDP", "megatron-core"),
    Framework("torchrec", "torchrec: tables by table, rows and columns", "torchrec"),
    Framework("composite", "torchtitan's composition: FSDP2, tensor and sequence parallel, pipeline, DCP", "torch", ranks=8),
]
#: Programs for NCCL, which compare their results themselves. The files that they need beside their Python are in build/frameworks/NAME.
ON_NCCL = [
    Framework("vllm", "vLLM's `PyNcclCommunicator`", "vllm", torchrun=False),
    Framework("cupy", "cupy's `NcclCommunicator`", "cupy", torchrun=False),
    Framework("nccl_tests", "NVIDIA's nccl-tests", "nccl-tests", torchrun=False),
]
#: How a program is run: what it does, and what is in its environment.
HOW = {"gloo": ("default", "0"), "name": ("name", "0"), "replaced": ("default", "1")}


def source_of(name: str) -> str:
    return (FOLDER / f"{name}_program.py").read_text()


def lines_of(name: str) -> str:
    """What a user writes: between `# lines` and `# end` in the program that was run."""
    lines = source_of(name).splitlines()
    begin, end = (next(i for i, line in enumerate(lines) if line.strip() == mark) for mark in ("# lines", "# end"))
    indent = len(lines[begin]) - len(lines[begin].lstrip())
    return "\n".join(line[indent:] for line in lines[begin + 1:end])


def known_of(name: str) -> str:
    """What is known not to work: KNOWN in the program."""
    for statement in ast.parse(source_of(name)).body:
        if isinstance(statement, ast.Assign) and getattr(statement.targets[0], "id", "") == "KNOWN":
            return str(ast.literal_eval(statement.value))
    return ""


def run(framework: Framework, how: str, logs: pathlib.Path) -> dict:
    """What the program said, and the seconds that it took. RuntimeError where it fails."""
    program = str(FOLDER / f"{framework.name}_program.py")
    command = [sys.executable, program]
    name, replaced = HOW[how]
    environment = os.environ | {"FRAMEWORKS_HOW": name, "TUTTI_REPLACE_GLOO": replaced, "HF_HUB_OFFLINE": "1"}
    log = logs / f"{framework.name}.{how}.log"
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        if framework.torchrun:
            command[1:1] = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(framework.ranks),
                            "--log-dir", folder]
        with open(log, "w") as errors:
            done = subprocess.run(["timeout", "--kill-after", "5", "600", *command], stdout=subprocess.PIPE, stderr=errors,
                                  text=True, env=environment)
    said = [line for line in done.stdout.splitlines() if line.startswith('{"code"')]
    if done.returncode != 0 or len(said) != 1:
        raise RuntimeError(f"status {done.returncode}, {len(said)} outcomes; see {log}")
    return json.loads(said[0]) | {"seconds": round(time.monotonic() - began)}


def compare(ours: dict, theirs: dict) -> str:
    """"bit for bit" or "within rounding". ValueError where they differ, or are not whose they should be."""
    if (ours["code"], theirs["code"]) != ("tutti", "gloo"):
        raise ValueError(f"it ran on {ours['code']}, its reference on {theirs['code']}")
    exact = True
    for what in ("losses", "parameters"):
        mine, expected = ([float.fromhex(number) for number in outcome[what]] for outcome in (ours, theirs))
        if len(mine) != len(expected) or not expected:
            raise ValueError(f"{len(mine)} {what}, gloo has {len(expected)}")
        limit = ROUNDING * max(map(abs, expected))
        for index, (a, b) in enumerate(zip(mine, expected)):
            if not abs(a - b) <= limit:
                raise ValueError(f"{what}[{index}] is {a}, gloo's is {b}")
        exact = exact and mine == expected
    return "bit for bit" if exact else "within rounding"


MARK = "<!-- test: skip because make test-frameworks runs it, with the framework's own package -->\n"
BEGINNING = """# Frameworks on tutti

Written by `make test-frameworks`, from a run of each framework's own package with PyTorch {torch} on two ranks (torchtitan's
composition on eight): a small training on gloo, the same on tutti by name, and the same program with gloo replaced. "Bit for
bit": all losses and all parameters at the end are gloo's. The run has tried everything that the column at the right calls
refused. [Programs for NCCL](#programs-for-nccl) run on `libtutti-nccl` at the end.

By replacement nothing in the program changes ([pytorch.md](pytorch.md)):

<!-- test: skip because train.py is the reader's program -->
```console
$ TUTTI_REPLACE_GLOO=1 torchrun --nproc-per-node 2 train.py
```

By name a program has the lines that stand under the table, as they were run.

| framework | version | by name | gloo replaced | what does not work |
|---|---|---|---|---|
"""


NCCL_SECTION = """
## Programs for NCCL

These know nothing of tutti. They open `libtutti-nccl.so.2` where NCCL's library would be, without a GPU
([how](nccl.md#nccl-programs-without-a-gpu)), and compare all results themselves.

| program | version | what was right | what does not work |
|---|---|---|---|
"""


def public(version: str) -> str:
    """Without what it was built for: "2.13.0" of "2.13.0+cpu"."""
    return version.partition("+")[0]


def section_of(framework: Framework) -> str:
    return f"## {framework.title}\n\n{MARK}```python\n{lines_of(framework.name)}\n```"


def document(results: dict) -> str:
    text = BEGINNING.format(torch=public(importlib.metadata.version("torch")))
    for framework in FRAMEWORKS:
        said = results.get(framework.name, {"version": "-", "name": "not run", "replaced": "not run"})
        text += (f"| {framework.title} | {public(said['version'])} | {said['name']} | {said['replaced']} | "
                 f"{known_of(framework.name) or '-'} |\n")
    for framework in FRAMEWORKS:
        text += f"\n{section_of(framework)}\n"
    text += NCCL_SECTION
    for framework in ON_NCCL:
        said = results.get(framework.name, {"version": "-", "what": "not run"})
        text += f"| {framework.title} | {said['version']} | {said['what']} | {known_of(framework.name)} |\n"
    return text


def is_of_now(framework: Framework, results: dict) -> bool:
    try:
        return facts_of(framework).items() <= results.get(framework.name, {}).items()
    except importlib.metadata.PackageNotFoundError:
        return False


def environment_on_nccl(framework: Framework, logs: pathlib.Path) -> dict[str, str]:
    build = FOLDER.parent.parent / "build"
    library = build / "lib/libtutti-nccl.so.2"
    here = logs / "nccl"  # NCCL's name for the library, for those that look for it by that
    here.mkdir(exist_ok=True)
    (here / "libnccl.so.2").unlink(missing_ok=True)
    (here / "libnccl.so.2").symlink_to(library)
    path = [str(build / "frameworks" / framework.name), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"VLLM_NCCL_SO_PATH": str(library), "LD_LIBRARY_PATH": str(here.resolve()), "FRAMEWORKS_FOLDER": str(logs),
                         "CUDA_FAKE": str(build / "tests/fakes/libcuda-fake.so"), "PYTHONPATH": ":".join(filter(None, path))}


def check_on_nccl(framework: Framework, logs: pathlib.Path) -> dict:
    """What the program has checked, or why it cannot run here. ValueError where it fails."""
    log = logs / f"{framework.name}.log"
    with open(log, "w") as errors:
        done = subprocess.run(["timeout", "--kill-after", "5", "900", sys.executable, str(FOLDER / f"{framework.name}_program.py")],
                              stdout=subprocess.PIPE, stderr=errors, text=True, env=environment_on_nccl(framework, logs))
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"')]
    if done.returncode != 0 or len(said) != 1:
        raise ValueError(f"status {done.returncode}, {len(said)} outcomes; see {log}")
    return said[0]


def facts_of(framework: Framework) -> dict:
    """What a result is of: the versions, and what was run. PackageNotFoundError."""
    source = source_of(framework.name) + (FOLDER / "small.py").read_text()
    return {"version": importlib.metadata.version(framework.package), "torch": importlib.metadata.version("torch"),
            "program": hashlib.sha256(source.encode()).hexdigest()}


def check(framework: Framework, logs: pathlib.Path) -> dict:
    """Runs it all three ways. ValueError that says how it went wrong."""
    outcomes = {}
    for how in HOW:
        try:
            outcomes[how] = run(framework, how, logs)
        except RuntimeError as error:
            raise ValueError(f"{how}: {error}") from None
    said = {how: compare(outcomes[how], outcomes["gloo"]) for how in ("name", "replaced")}
    return said | facts_of(framework) | {"seconds": sum(outcome["seconds"] for outcome in outcomes.values())}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="names of programs, with commas between them")
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("document", type=pathlib.Path, nargs="?")
    given = parser.parse_args()
    names = [framework.name for framework in FRAMEWORKS + ON_NCCL]
    wanted = given.only.split(",") if given.only else names
    unknown = set(wanted) - set(names)
    if unknown:
        parser.error(f"--only names {sorted(unknown)}; expected some of {names}")
    given.results.mkdir(parents=True, exist_ok=True)
    kept = given.results / "results.json"
    results = json.loads(kept.read_text()) if kept.exists() else {}
    failed = 0
    for framework in FRAMEWORKS:
        if framework.name not in wanted:
            continue
        results.pop(framework.name, None)
        try:
            said = check(framework, given.results)
        except ValueError as error:
            failed += 1
            print(f"FAILED {framework.name}, {error}", flush=True)
        else:
            results[framework.name] = said
            print(f"{framework.name} {said['version']}: by name {said['name']}, replaced {said['replaced']} "
                  f"({said['seconds']} s)", flush=True)
        kept.write_text(json.dumps(results, indent=1))
    for framework in ON_NCCL:
        if framework.name not in wanted:
            continue
        try:
            said = check_on_nccl(framework, given.results)
        except ValueError as error:
            failed += 1
            results.pop(framework.name, None)
            print(f"FAILED {framework.name}, {error}", flush=True)
        else:
            if "skipped" not in said:
                results[framework.name] = said
            outcome = said.get("what") or f"left out, because {said['skipped']}"
            print(f"{framework.name} {said.get('version', '')}: {outcome}", flush=True)
        kept.write_text(json.dumps(results, indent=1))
    missing = [framework.name for framework in FRAMEWORKS if not is_of_now(framework, results)]
    if given.document and missing:
        print(f"{given.document} stays as it was: there is no result of {', '.join(missing)}")
    elif given.document:
        given.document.write_text(document(results))
        print(f"{given.document} tells so")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
