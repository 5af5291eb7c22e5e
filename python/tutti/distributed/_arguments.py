"""The types of arguments that most functions have."""
from __future__ import annotations

from .._core import DeviceMesh, ProcessGroup
from ..arrays import Array

__all__ = ["Array", "Group"]

Group = ProcessGroup | DeviceMesh | None
