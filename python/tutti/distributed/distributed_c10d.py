"""torch.distributed's submodule of this name: the same names as in tutti.distributed."""
from __future__ import annotations

from typing import Any

from .. import distributed as _distributed


def __getattr__(name: str) -> Any:
    return getattr(_distributed, name)


def __dir__() -> list[str]:
    return dir(_distributed)
