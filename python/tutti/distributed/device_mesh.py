"""Meshes: ranks in an n-dimensional array, with groups along its dimensions."""
from __future__ import annotations

from .. import _core
from .._core import DeviceMesh, current_device_mesh

__all__ = ["DeviceMesh", "current_device_mesh", "init_device_mesh"]


def init_device_mesh(device_type: str, mesh_shape: tuple[int, ...], *,
                     mesh_dim_names: tuple[str, ...] | None = None) -> DeviceMesh:
    """A mesh of all ranks, in row-major order; initialises the default group where there is none. All ranks call it.

    Args:
        device_type: "cpu", or the kind of device that the ranks work on.
        mesh_shape: ranks along each dimension; their product is the size of the world.
        mesh_dim_names: a name for each dimension.

    Returns:
        A mesh, whose lines are groups: mesh.get_group(0), or mesh[name] wherever a group is expected.

    Raises:
        InvalidArgument: the shape does not hold all ranks, or names do not fit it.

    Example:
        >>> mesh = dist.init_device_mesh("cpu", (1, dist.get_world_size()), mesh_dim_names=("dp", "tp"))
        >>> dist.all_reduce(np.ones(3), group=mesh["tp"])
    """
    return _core.init_device_mesh(device_type, mesh_shape, mesh_dim_names)
