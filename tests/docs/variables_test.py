#!/usr/bin/env python3
"""docs/variables-of-others.md has each variable of launchers and other libraries that the sources name, and no other."""
import re
import sys

import pages

PAGE = pages.ROOT / "docs/variables-of-others.md"
LAUNCHERS = "FLUX|GROUP|JOB|LOCAL|MASTER|NCCL|OMPI|PALS|PET|PMI|PMIX|ROLE|SLURM|TORCH|TORCHELASTIC|WORLD|XDG"
# A name at the beginning of a text, or of NAME=value.
NAME = re.compile(rf'"((?:{LAUNCHERS})_[A-Za-z_]+|MPI_LOCAL[A-Z]+|RANK|HOME|TMPDIR|PYTHON_EXEC)[="]')
NO_VARIABLES = {"PMIX_JOB_SIZE", "PMIX_LOCAL_RANK", "PMIX_LOCAL_SIZE"}  # but keys of PMIx's server


def named():
    found = {}
    for folder in ("src", "nccl", "backends", "python/src", "python/torch", "python/tutti"):
        for suffix in ("cpp", "hpp", "py"):
            for file in sorted((pages.ROOT / folder).rglob(f"*.{suffix}")):
                if "_test" in file.stem or "hfai" in file.parts:  # hfai's table has NCCL's own, for NCCL
                    continue
                for name in NAME.findall(file.read_text()):
                    found.setdefault(name, file.relative_to(pages.ROOT))
    return {name: file for name, file in found.items() if name not in NO_VARIABLES}


def main():
    told = {text for _, text in pages.code(PAGE) if re.fullmatch(r"[A-Z]+(_[A-Za-z_]+)?", text) and not text.startswith("TUTTI_")}
    sources = named()
    faults = [f"{file} names {name}, which docs/variables-of-others.md does not" for name, file in sources.items() if name not in told]
    faults += [f"docs/variables-of-others.md names {name}, which no source does" for name in sorted(told - set(sources))]
    print("\n".join(faults) or f"{len(told)} variables of others are on their page")
    return bool(faults) or len(told) < 50


if __name__ == "__main__":
    sys.exit(main())
