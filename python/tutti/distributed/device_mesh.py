"""Meshes: ranks in an n-dimensional array, with groups along its dimensions."""
from __future__ import annotations

from .. import _core
from .._core import DeviceMesh, current_device_mesh

__all__ = ["DeviceMesh", "current_device_mesh", "init_device_mesh"]


def init_device_mesh(device_type: str, mesh_shape: tuple[int, ...], *,
                     mesh_dim_names: tuple[str, ...] | None = None) -> DeviceMesh:
    """A mesh of all ranks, in row-major order; initialises the default group where there is none. All ranks call it."""
    return _core.init_device_mesh(device_type, mesh_shape, mesh_dim_names)
