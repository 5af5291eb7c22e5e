"""What a wheel of libtutti-torch is called and depends on, by the PyTorch that it is built for. scikit-build-core asks for it.

Its version is that of the sources and PyTorch's two numbers, 0.1.0.2.14: so a folder or an index has one wheel for each PyTorch,
and pip takes the one whose dependency fits.
"""

from __future__ import annotations

from importlib import metadata
from typing import Any

VERSION = "0.1.0"
OLDEST, TRIED = (2, 10), (2, 15)


def dynamic_metadata(field: str, settings: Any = None, *others: Any) -> str | list[str]:
    version = metadata.version("torch").partition("+")[0]  # without an import: a build needs none of what PyTorch loads
    major, minor = (int(part) for part in version.split(".")[:2])
    if (major, minor) < OLDEST:
        raise RuntimeError(f"libtutti-torch needs PyTorch 2.10 or later; this is {version}")
    if (major, minor) > TRIED:
        print(f"libtutti-torch: it has been tried with PyTorch 2.10 to 2.15; this is {version}")
    if field == "version":
        return f"{VERSION}.{major}.{minor}"
    return [f"torch>={major}.{minor},<{major}.{minor + 1}"]
