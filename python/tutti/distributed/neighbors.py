"""Exchange between neighbours: halos of the blocks of an array, and MPI's neighbourhood collectives.

    mesh = dist.init_device_mesh("cpu", dist.balanced_mesh_shape(dist.get_world_size(), (0, 0)))
    dist.exchange_halos(block, mesh, [dist.Halo(0), dist.Halo(1, periodic=True)])

A rank waits for its neighbours only. Ranks make the calls along one dimension of a mesh, or on one graph, in the same
order; they match neither send and recv nor each other. Arrays are in host memory, of any shape and strides.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, overload

from .. import _core
from .._core import NeighborGraph, Work
from ..errors import InvalidArgument
from ._arguments import Array
from .device_mesh import DeviceMesh

__all__ = [
    "Halo", "NeighborGraph", "balanced_mesh_shape", "exchange_halos", "mesh_neighbors", "neighbor_all_gather",
    "neighbor_all_to_all",
]


@dataclass(frozen=True)
class Halo:
    """The halos along one dimension of an array.

    Args:
        dim: of the array; negative: from the last one.
        width: the number of cells on both sides, or (low, high); equal on all ranks along the dimension.
        mesh_dim: dimension of the mesh along which the array is divided, by index or name. None: of a mesh of one
            dimension its only one, else the one with the index `dim`.
        periodic: the last rank's high neighbour is the first rank. Otherwise the halos beyond the ends of the array
            keep their values.

    Example:
        >>> dist.Halo(0, width=(2, 1), periodic=True)
        Halo(dim=0, width=(2, 1), mesh_dim=None, periodic=True)
    """

    dim: int
    width: int | tuple[int, int] = 1
    mesh_dim: int | str | None = None
    periodic: bool = False


def _as_tuples(halos: Halo | Sequence[Halo]) -> list[tuple[int, tuple[int, int], int | str | None, bool]]:
    halos = [halos] if isinstance(halos, Halo) else halos
    if not isinstance(halos, (list, tuple)) or not all(isinstance(halo, Halo) for halo in halos):
        raise InvalidArgument(f"exchange_halos: halos is {halos!r:.80}: expected a Halo, or a list of them")
    result = []
    for halo in halos:
        width = halo.width if isinstance(halo.width, tuple) else (halo.width, halo.width)
        if len(width) != 2:
            raise InvalidArgument(f"exchange_halos: width {width!r:.80}: expected a number, or (low, high)")
        result.append((halo.dim, width, halo.mesh_dim, halo.periodic))
    return result


@overload
def exchange_halos(tensor: Array, mesh: DeviceMesh, halos: Halo | Sequence[Halo], async_op: Literal[False] = ..., *,
                   timeout: timedelta | None = ...) -> None: ...
@overload
def exchange_halos(tensor: Array, mesh: DeviceMesh, halos: Halo | Sequence[Halo], async_op: Literal[True] = ..., *,
                   timeout: timedelta | None = ...) -> Work: ...
@overload
def exchange_halos(tensor: Array, mesh: DeviceMesh, halos: Halo | Sequence[Halo], async_op: bool = ..., *,
                   timeout: timedelta | None = ...) -> Work | None: ...
def exchange_halos(tensor: Array, mesh: DeviceMesh, halos: Halo | Sequence[Halo], async_op: bool = False, *,
                   timeout: timedelta | None = None) -> Work | None:
    """Fills the halos of this rank's block with the cells of its neighbours that lie next to it.

    Args:
        tensor: this rank's block with its halos; only the number of inner cells along a dimension with halos may differ
            between the ranks along that dimension.
        mesh: the ranks that have the blocks. The first use of a dimension makes its group, which is collective.
        halos: exchanged one after the other, so that corners are right, too.
        async_op: return a Work at once; `tensor` may not be touched before it is complete.
        timeout: of this call; None or zero: the group's.

    Returns:
        A Work with `async_op`; otherwise None, as outside of the mesh.

    Raises:
        InvalidArgument: before anything is sent; also if a block has fewer inner cells than a halo.
        CollectiveMismatch: on every rank, if neighbours pass other dtypes, sizes, widths or dimensions.
        PeerLost, Timeout, Aborted: on every rank; the group is unusable afterwards.

    Example:
        >>> mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
        >>> row = np.array([0, 1, 2, 3, 0])
        >>> dist.exchange_halos(row, mesh, dist.Halo(0, periodic=True))
    """
    return _core.exchange_halos(tensor, mesh, _as_tuples(halos), async_op, timeout)


@overload
def neighbor_all_to_all(output_list: Sequence[Array], input_list: Sequence[Array], graph: NeighborGraph,
                        async_op: Literal[False] = ..., *, timeout: timedelta | None = ...) -> None: ...
@overload
def neighbor_all_to_all(output_list: Sequence[Array], input_list: Sequence[Array], graph: NeighborGraph,
                        async_op: Literal[True] = ..., *, timeout: timedelta | None = ...) -> Work: ...
@overload
def neighbor_all_to_all(output_list: Sequence[Array], input_list: Sequence[Array], graph: NeighborGraph,
                        async_op: bool = ..., *, timeout: timedelta | None = ...) -> Work | None: ...
def neighbor_all_to_all(output_list: Sequence[Array], input_list: Sequence[Array], graph: NeighborGraph,
                        async_op: bool = False, *, timeout: timedelta | None = None) -> Work | None:
    """Sends input_list[i] to destination i of the graph, and receives output_list[j] from source j.

    Args:
        output_list: an array for each source; it has the sender's dtype and number of elements, which may be zero.
        input_list: an array for each destination.
        graph: who sends to whom.
        async_op: return a Work at once; no array may be touched before it is complete.
        timeout: of this call; None or zero: the group's.

    Returns:
        A Work with `async_op`; otherwise None.

    Raises:
        InvalidArgument: before anything is sent.
        CollectiveMismatch, PeerLost, Timeout, Aborted: on every rank; the group is unusable afterwards.

    Example:
        >>> left, right = (dist.get_rank() - 1) % dist.get_world_size(), (dist.get_rank() + 1) % dist.get_world_size()
        >>> graph, came = dist.NeighborGraph([left], [right]), np.zeros(3)
        >>> dist.neighbor_all_to_all([came], [np.ones(3)], graph)
    """
    return _core.neighbor_all_to_all(output_list, input_list, graph, async_op, timeout)


@overload
def neighbor_all_gather(output_list: Sequence[Array], input: Array, graph: NeighborGraph,
                        async_op: Literal[False] = ..., *, timeout: timedelta | None = ...) -> None: ...
@overload
def neighbor_all_gather(output_list: Sequence[Array], input: Array, graph: NeighborGraph,
                        async_op: Literal[True] = ..., *, timeout: timedelta | None = ...) -> Work: ...
@overload
def neighbor_all_gather(output_list: Sequence[Array], input: Array, graph: NeighborGraph,
                        async_op: bool = ..., *, timeout: timedelta | None = ...) -> Work | None: ...
def neighbor_all_gather(output_list: Sequence[Array], input: Array, graph: NeighborGraph, async_op: bool = False, *,
                        timeout: timedelta | None = None) -> Work | None:
    """Sends `input` to all destinations of the graph, and receives output_list[j] from source j.

    Args:
        output_list: an array for each source; it has the sender's dtype and number of elements, which may be zero.
        input: what this rank sends.
        graph: who sends to whom.
        async_op: return a Work at once; no array may be touched before it is complete.
        timeout: of this call; None or zero: the group's.

    Returns:
        A Work with `async_op`; otherwise None.

    Raises:
        InvalidArgument: before anything is sent.
        CollectiveMismatch, PeerLost, Timeout, Aborted: on every rank; the group is unusable afterwards.

    Example:
        >>> graph = dist.NeighborGraph([dist.get_rank()], [dist.get_rank()])
        >>> came = np.zeros(3)
        >>> dist.neighbor_all_gather([came], np.ones(3), graph)
    """
    return _core.neighbor_all_gather(output_list, input, graph, async_op, timeout)


def mesh_neighbors(mesh: DeviceMesh, mesh_dim: int | str | None = None, *, periodic: bool = False,
                   distance: int = 1) -> tuple[int | None, int | None]:
    """The global ranks beside this one along a dimension of a mesh (MPI_Cart_shift). Local.

    Args:
        mesh: the ranks.
        mesh_dim: the dimension, by index or name; None: the only one.
        periodic: the first and the last rank are neighbours.
        distance: how many steps away.

    Returns:
        (low, high); None stands for no rank: beyond an end, or outside of the mesh.

    Raises:
        InvalidArgument: for another dimension, or a distance below 1.

    Example:
        >>> mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
        >>> low, high = dist.mesh_neighbors(mesh, periodic=True)
    """
    return _core.mesh_neighbors(mesh, mesh_dim, periodic, distance)


def balanced_mesh_shape(ranks: int, shape: Sequence[int]) -> tuple[int, ...]:
    """A shape for a mesh, as near to a cube as possible, sizes in descending order (MPI_Dims_create). Local.

    Args:
        ranks: how many there are.
        shape: a size for each dimension; 0: to be chosen.

    Returns:
        The shape.

    Raises:
        InvalidArgument: if the given sizes do not divide the number of ranks.

    Example:
        >>> dist.balanced_mesh_shape(12, (0, 0))
        (4, 3)
    """
    return _core.balanced_mesh_shape(ranks, shape)
