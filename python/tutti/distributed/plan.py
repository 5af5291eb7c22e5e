"""Plans: calls that are checked once and made often on the same arrays.

    step = tutti.distributed.plan.all_reduce(gradient)
    while training:
        fill(gradient)
        step.run()

Each function takes what the plain one takes, but `async_op`: Plan.start() begins a call without waiting. The arrays stay
alive as long as the plan. A plan talks as the plain call does: ranks may mix the two. Making a plan moves no data and
waits for nobody.

Errors: InvalidArgument here, all others in run(). A `timeout` of None or zero is the group's at the time of each run.
Threads: one at a time for each plan; plans of one group are issued in the same order on all ranks, as other calls are.
"""
from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from .. import _core
from .._core import NeighborGraph, Plan, ReduceOp
from ._arguments import Array, Group
from .device_mesh import DeviceMesh
from .neighbors import Halo, _as_tuples

__all__ = [
    "Plan", "all_gather", "all_gather_into_tensor", "all_gather_into_tensor_uneven", "all_gather_v", "all_reduce", "all_to_all",
    "all_to_all_single", "all_to_all_v", "barrier", "broadcast", "exchange_halos", "exscan", "gather", "gather_v",
    "neighbor_all_gather", "neighbor_all_to_all", "recv", "reduce", "reduce_scatter", "reduce_scatter_tensor",
    "reduce_scatter_tensor_uneven", "reduce_scatter_v", "scan", "scatter", "scatter_v", "send",
]


def broadcast(tensor: Array, src: int | None = None, group: Group = None, group_src: int | None = None, *,
              timeout: timedelta | None = None) -> Plan:
    """A plan of tutti.distributed.broadcast, whose arguments these are.

    Example:
        >>> plan = dist.plan.broadcast(np.ones(3), src=0)
        >>> plan.run()
    """
    return _core.plan_broadcast(tensor, src, group_src, group, timeout)


def all_reduce(tensor: Array, op: ReduceOp = ReduceOp.SUM, group: Group = None, *,
               timeout: timedelta | None = None) -> Plan:
    """A plan of tutti.distributed.all_reduce, whose arguments these are.

    Example:
        >>> plan = dist.plan.all_reduce(np.ones(3), op=dist.ReduceOp.MAX)
        >>> plan.run()
    """
    return _core.plan_all_reduce(tensor, op, group, timeout)


def reduce(tensor: Array, dst: int | None = None, op: ReduceOp = ReduceOp.SUM, group: Group = None,
           group_dst: int | None = None, *, timeout: timedelta | None = None) -> Plan:
    """A plan of tutti.distributed.reduce, whose arguments these are.

    Example:
        >>> plan = dist.plan.reduce(np.ones(3), dst=0)
        >>> plan.run()
    """
    return _core.plan_reduce(tensor, dst, group_dst, op, group, timeout)


def scan(tensor: Array, op: ReduceOp = ReduceOp.SUM, group: Group = None, *, timeout: timedelta | None = None) -> Plan:
    """A plan of tutti.distributed.scan, whose arguments these are.

    Example:
        >>> plan = dist.plan.scan(np.ones(3))
        >>> plan.run()
    """
    return _core.plan_scan(tensor, op, group, timeout)


def exscan(tensor: Array, op: ReduceOp = ReduceOp.SUM, group: Group = None, *, timeout: timedelta | None = None) -> Plan:
    """A plan of tutti.distributed.exscan, whose arguments these are.

    Example:
        >>> plan = dist.plan.exscan(np.ones(3))
        >>> plan.run()
    """
    return _core.plan_exscan(tensor, op, group, timeout)


def all_gather(tensor_list: Sequence[Array], tensor: Array, group: Group = None, *, timeout: timedelta | None = None) -> Plan:
    """A plan of tutti.distributed.all_gather, whose arguments these are.

    Example:
        >>> plan = dist.plan.all_gather([np.empty(3)], np.ones(3))
        >>> plan.run()
    """
    return _core.plan_all_gather(tensor_list, tensor, group, timeout)


def all_gather_into_tensor(output_tensor: Array, input_tensor: Array, group: Group = None, *,
                           output_split_sizes: list[int] | None = None, timeout: timedelta | None = None) -> Plan:
    """A plan of tutti.distributed.all_gather_into_tensor, whose arguments these are.

    Example:
        >>> plan = dist.plan.all_gather_into_tensor(np.empty(3), np.ones(3))
        >>> plan.run()
    """
    if output_split_sizes is not None:
        return all_gather_v(output_tensor, input_tensor, output_split_sizes, group, timeout=timeout)
    return _core.plan_all_gather_into_tensor(output_tensor, input_tensor, group, timeout)


def all_gather_v(output: Array, input: Array, output_split_sizes: list[int] | None = None, group: Group = None, *,
                 output_offsets: list[int] | None = None, timeout: timedelta | None = None) -> Plan:
    """A plan of tutti.distributed.all_gather_v, whose arguments these are.

    Example:
        >>> plan = dist.plan.all_gather_v(np.empty((3, 2)), np.ones((3, 2)), [3])
        >>> plan.run()
    """
    return _core.plan_all_gather_v(output, input, output_split_sizes, output_offsets, group, timeout)


all_gather_into_tensor_uneven = all_gather_v


def gather_v(input: Array, output: Array | None = None, receive_counts: list[int] | None = None,
             receive_offsets: list[int] | None = None, dst: int | None = None, group: Group = None,
             group_dst: int | None = None, *, timeout: timedelta | None = None) -> Plan:
    """A plan of tutti.distributed.gather_v, whose arguments these are.

    Example:
        >>> plan = dist.plan.gather_v(np.ones(3), np.empty(3), [3])
        >>> plan.run()
    """
    return _core.plan_gather_v(input, output, receive_counts, receive_offsets, dst, group_dst, group, timeout)


def scatter_v(output: Array, input: Array | None = None, send_counts: list[int] | None = None,
              send_offsets: list[int] | None = None, src: int | None = None, group: Group = None,
              group_src: int | None = None, *, timeout: timedelta | None = None) -> Plan:
    """A plan of tutti.distributed.scatter_v, whose arguments these are.

    Example:
        >>> plan = dist.plan.scatter_v(np.empty(3), np.ones(3), [3])
        >>> plan.run()
    """
    return _core.plan_scatter_v(output, input, send_counts, send_offsets, src, group_src, group, timeout)


def gather(tensor: Array, gather_list: Sequence[Array] | None = None, dst: int | None = None, group: Group = None,
           group_dst: int | None = None, *, timeout: timedelta | None = None) -> Plan:
    """A plan of tutti.distributed.gather, whose arguments these are.

    Example:
        >>> plan = dist.plan.gather(np.ones(3), [np.empty(3)], dst=0)
        >>> plan.run()
    """
    return _core.plan_gather(tensor, gather_list, dst, group_dst, group, timeout)


def scatter(tensor: Array, scatter_list: Sequence[Array] | None = None, src: int | None = None, group: Group = None,
            group_src: int | None = None, *, timeout: timedelta | None = None) -> Plan:
    """A plan of tutti.distributed.scatter, whose arguments these are.

    Example:
        >>> plan = dist.plan.scatter(np.empty(3), [np.ones(3)], src=0)
        >>> plan.run()
    """
    return _core.plan_scatter(tensor, scatter_list, src, group_src, group, timeout)


def reduce_scatter(output: Array, input_list: Sequence[Array], op: ReduceOp = ReduceOp.SUM, group: Group = None, *,
                   timeout: timedelta | None = None) -> Plan:
    """A plan of tutti.distributed.reduce_scatter, whose arguments these are.

    Example:
        >>> plan = dist.plan.reduce_scatter(np.empty(3), [np.ones(3)])
        >>> plan.run()
    """
    return _core.plan_reduce_scatter(output, input_list, op, group, timeout)


def reduce_scatter_tensor(output: Array, input: Array, op: ReduceOp = ReduceOp.SUM, group: Group = None, *,
                          input_split_sizes: list[int] | None = None, timeout: timedelta | None = None) -> Plan:
    """A plan of tutti.distributed.reduce_scatter_tensor, whose arguments these are.

    Example:
        >>> plan = dist.plan.reduce_scatter_tensor(np.empty(3), np.ones(3))
        >>> plan.run()
    """
    if input_split_sizes is not None:
        return reduce_scatter_v(output, input, input_split_sizes, op, group, timeout=timeout)
    return _core.plan_reduce_scatter_tensor(output, input, op, group, timeout)


def reduce_scatter_v(output: Array, input: Array, input_split_sizes: list[int] | None = None,
                     op: ReduceOp = ReduceOp.SUM, group: Group = None, *, timeout: timedelta | None = None) -> Plan:
    """A plan of tutti.distributed.reduce_scatter_v, whose arguments these are.

    Example:
        >>> plan = dist.plan.reduce_scatter_v(np.empty((3, 2)), np.ones((3, 2)), [3])
        >>> plan.run()
    """
    return _core.plan_reduce_scatter_v(output, input, input_split_sizes, op, group, timeout)


reduce_scatter_tensor_uneven = reduce_scatter_v


def all_to_all_single(output: Array, input: Array, output_split_sizes: list[int] | None = None,
                      input_split_sizes: list[int] | None = None, group: Group = None, *,
                      timeout: timedelta | None = None) -> Plan:
    """A plan of tutti.distributed.all_to_all_single, whose arguments these are.

    Example:
        >>> plan = dist.plan.all_to_all_single(np.empty(3), np.ones(3))
        >>> plan.run()
    """
    return _core.plan_all_to_all_single(output, input, output_split_sizes, input_split_sizes, group, timeout)


def all_to_all_v(output: Array, input: Array, *, send_counts: list[int] | None = None, send_offsets: list[int] | None = None,
                 receive_counts: list[int] | None = None, receive_offsets: list[int] | None = None, group: Group = None,
                 timeout: timedelta | None = None) -> Plan:
    """A plan of tutti.distributed.all_to_all_v, whose arguments these are.

    Example:
        >>> plan = dist.plan.all_to_all_v(np.empty(3), np.ones(3), send_counts=[3])
        >>> plan.run()
    """
    return _core.plan_all_to_all_v(output, input, send_counts, send_offsets, receive_counts, receive_offsets, group, timeout)


def all_to_all(output_tensor_list: Sequence[Array], input_tensor_list: Sequence[Array], group: Group = None, *,
               timeout: timedelta | None = None) -> Plan:
    """A plan of tutti.distributed.all_to_all, whose arguments these are.

    Example:
        >>> plan = dist.plan.all_to_all([np.empty(3)], [np.ones(3)])
        >>> plan.run()
    """
    return _core.plan_all_to_all(output_tensor_list, input_tensor_list, group, timeout)


def barrier(group: Group = None, device_ids: list[int] | None = None, *, timeout: timedelta | None = None) -> Plan:
    """A plan of tutti.distributed.barrier, whose arguments these are.

    Example:
        >>> plan = dist.plan.barrier()
        >>> plan.run()
    """
    return _core.plan_barrier(device_ids, group, timeout)


def send(tensor: Array, dst: int | None = None, group: Group = None, tag: int = 0, group_dst: int | None = None, *,
         timeout: timedelta | None = None) -> Plan:
    """A plan of tutti.distributed.send, whose arguments these are.

    Example:
        >>> if dist.get_world_size() > 1 and dist.get_rank() == 0:
        ...     dist.plan.send(np.ones(3), dst=1).run()
    """
    return _core.plan_send(tensor, dst, group, tag, group_dst, timeout)


def recv(tensor: Array, src: int | None = None, group: Group = None, tag: int = 0, group_src: int | None = None, *,
         timeout: timedelta | None = None) -> Plan:
    """A plan of tutti.distributed.recv, whose arguments these are. Plan.source_rank() tells the sender's rank in the group.

    Example:
        >>> if dist.get_world_size() > 1 and dist.get_rank() == 1:
        ...     dist.plan.recv(np.empty(3), src=0).run()
    """
    return _core.plan_recv(tensor, src, group, tag, group_src, timeout)


def exchange_halos(tensor: Array, mesh: DeviceMesh, halos: Halo | Sequence[Halo], *,
                   timeout: timedelta | None = None) -> Plan:
    """A plan of tutti.distributed.exchange_halos, whose arguments these are; InvalidArgument outside of the mesh.

    Example:
        >>> mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
        >>> plan = dist.plan.exchange_halos(np.ones((5, 4)), mesh, dist.Halo(0))
        >>> plan.run()
    """
    return _core.plan_exchange_halos(tensor, mesh, _as_tuples(halos), timeout)


def neighbor_all_to_all(output_list: Sequence[Array], input_list: Sequence[Array], graph: NeighborGraph, *,
                        timeout: timedelta | None = None) -> Plan:
    """A plan of tutti.distributed.neighbor_all_to_all, whose arguments these are.

    Example:
        >>> graph = dist.NeighborGraph([dist.get_rank()], [dist.get_rank()])
        >>> plan = dist.plan.neighbor_all_to_all([np.empty(3)], [np.ones(3)], graph)
        >>> plan.run()
    """
    return _core.plan_neighbor_all_to_all(output_list, input_list, graph, timeout)


def neighbor_all_gather(output_list: Sequence[Array], input: Array, graph: NeighborGraph, *,
                        timeout: timedelta | None = None) -> Plan:
    """A plan of tutti.distributed.neighbor_all_gather, whose arguments these are.

    Example:
        >>> graph = dist.NeighborGraph([dist.get_rank()], [dist.get_rank()])
        >>> plan = dist.plan.neighbor_all_gather([np.empty(3)], np.ones(3), graph)
        >>> plan.run()
    """
    return _core.plan_neighbor_all_gather(output_list, input, graph, timeout)
