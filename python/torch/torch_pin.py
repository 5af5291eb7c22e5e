"""What a wheel of libtutti-torch depends on: the PyTorch that it is built for. scikit-build-core asks for it."""

from __future__ import annotations

from typing import Any

OLDEST, TRIED = (2, 13), (2, 14)


def dynamic_metadata(field: str, settings: Any = None, *others: Any) -> list[str]:
    import torch

    version = torch.__version__.partition("+")[0]
    number = tuple(int(part) for part in version.split(".")[:2])
    if number < OLDEST:
        raise RuntimeError(f"libtutti-torch needs PyTorch 2.13 or later; this is {version}")
    if number > TRIED:
        print(f"libtutti-torch: it has been tried with PyTorch 2.13 and 2.14; this is {version}")
    return [f"torch=={version}"]
