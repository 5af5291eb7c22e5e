"""What torch.distributed's functions are inside a graph: functional operators, and copies into the tensors that the caller
gave. Dynamo reads these functions instead of the eager ones and binds their arguments by keyword, so parameters have the
eager names; `op` arrives as the operator's name.

Everything is exchanged flattened, so that tensors of any shape fit. In a compiled graph the copies and views cost nothing:
what is left of them after functionalisation is the write into a graph's inputs.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

c10d = torch.ops._c10d_functional

#: torch.distributed has more names for some of the functions here.
FURTHER_NAMES = {"reduce_scatter_single": "reduce_scatter_tensor", "_reduce_scatter_base": "reduce_scatter_tensor",
                 "all_gather_single": "all_gather_into_tensor", "_all_gather_base": "all_gather_into_tensor"}


class Pending:
    """What an asynchronous call returns inside a graph: the results are in the caller's tensors after wait(). May leave the
    graph; then wait() is called outside of it."""

    def __init__(self, outputs: Any, value: Any, waits: bool = True) -> None:
        self.outputs = outputs
        self.value = value
        self.waits = waits
        self.waited = False

    def wait(self, timeout: Any = None) -> bool:
        if not self.waited:
            self.waited = True
            value = c10d.wait_tensor(self.value) if self.waits else self.value
            _write(self.outputs, value)
        return True

    def is_completed(self) -> bool:
        return self.waited

    def synchronize(self) -> None:
        self.wait()


class Together:
    """Several of them."""

    def __init__(self, parts: Any) -> None:
        self.parts = parts

    def wait(self, timeout: Any = None) -> bool:
        for part in self.parts:
            part.wait()
        return True

    def is_completed(self) -> bool:
        for part in self.parts:
            if not part.is_completed():
                return False
        return True


def _write_one(output: Any, value: Any) -> None:
    if output.dtype != value.dtype:
        raise ValueError(f"a tensor to be written is of {output.dtype}, the result of {value.dtype}; expected equal types")
    value = value.view(output.shape)
    if output.requires_grad and output.is_leaf:
        with torch.no_grad():
            output.copy_(value)
    else:
        output.copy_(value)


def _write(outputs: Any, value: Any) -> None:
    """One after the other."""
    if len(outputs) == 1:
        _write_one(outputs[0], value)
        return
    offset = 0
    for output in outputs:
        _write_one(output, value.narrow(0, offset, output.numel()))
        offset = offset + output.numel()


def _finish(pending: Any, async_op: bool) -> Any:
    if async_op:
        return pending
    pending.wait()
    return None


def _group(group: Any) -> Any:
    return dist.group.WORLD if group is None else group


def _outside(group: Any) -> bool:
    return isinstance(group, int)  # GroupMember.NON_GROUP_MEMBER


def _root(group: Any, name: str, argument: str, root: Any, group_root: Any, default: Any) -> int:
    """As a rank of the group, from one of the two: `argument` ("src" or "dst"), and the same with group_ before it."""
    if root is not None and group_root is not None:
        raise ValueError(f"{name}: {argument} and group_{argument} are both given: expected one")
    if group_root is not None:
        return group_root
    if root is None:
        if default is None:
            raise ValueError(f"{name}: no {argument} is given: expected {argument} or group_{argument}")
        root = default
    ranks = dist.get_process_group_ranks(group)
    if root not in ranks:
        raise ValueError(f"{name}: {argument} {root} is not in the group: expected one of {ranks}")
    return ranks.index(root)


def _flat(tensor: Any) -> Any:
    return tensor.reshape(-1)


def _joined(tensors: Any) -> Any:
    if len(tensors) == 1:
        return _flat(tensors[0])
    return torch.cat([_flat(tensor) for tensor in tensors])


def _counts(tensors: Any) -> Any:
    return [tensor.numel() for tensor in tensors]


def _all_equal(counts: Any) -> bool:
    for count in counts:
        if count != counts[0]:
            return False
    return True


def _check_length(name: str, argument: str, given: Any, group: Any) -> None:
    n = dist.get_world_size(group)
    if len(given) != n:
        raise ValueError(f"{name}: {argument} has {len(given)} tensors; expected {n}, one for each rank")


# ---- Combining


def all_reduce(tensor: Any, op: str = "sum", group: Any = None, async_op: bool = False) -> Any:
    if _outside(group):
        return None
    return _finish(Pending([tensor], c10d.all_reduce(tensor, op, _group(group).group_name)), async_op)


def all_reduce_coalesced(tensors: Any, op: str = "sum", group: Any = None, async_op: bool = False) -> Any:
    if _outside(group):
        return None
    name = _group(group).group_name
    values = c10d.all_reduce_coalesced([tensor for tensor in tensors], op, name)
    return _finish(Together([Pending([tensor], value) for tensor, value in zip(tensors, values)]), async_op)


def reduce(tensor: Any, dst: Any = None, op: str = "sum", group: Any = None, async_op: bool = False,
           group_dst: Any = None) -> Any:
    if _outside(group):
        return None
    group = _group(group)
    root = _root(group, "reduce", "dst", dst, group_dst, None)
    value = torch.ops.tutti_graph.reduce(tensor, op, root, group.group_name)
    return _finish(Pending([tensor], value, False), async_op)


def reduce_scatter_tensor(output: Any, input: Any, op: str = "sum", group: Any = None, async_op: bool = False) -> Any:
    if _outside(group):
        return None
    group = _group(group)
    n = dist.get_world_size(group)
    if input.numel() != output.numel() * n:
        raise ValueError(f"reduce_scatter_tensor: input has {input.numel()} elements; expected {n} times those of output")
    return _finish(Pending([output], c10d.reduce_scatter_tensor(_flat(input), op, n, group.group_name)), async_op)


def reduce_scatter(output: Any, input_list: Any, op: str = "sum", group: Any = None, async_op: bool = False) -> Any:
    if _outside(group):
        return None
    group = _group(group)
    _check_length("reduce_scatter", "input_list", input_list, group)
    counts = _counts(input_list)
    mine = counts[dist.get_rank(group)]
    if mine != output.numel():
        raise ValueError(f"reduce_scatter: output has {output.numel()} elements; expected {mine}, as this rank's input")
    if _all_equal(counts):
        value = c10d.reduce_scatter_tensor(_joined(input_list), op, len(counts), group.group_name)
        return _finish(Pending([output], value), async_op)
    value = torch.ops.tutti_graph.reduce_scatter_tensor_uneven(_joined(input_list), counts, op, group.group_name)
    return _finish(Pending([output], value, False), async_op)


def reduce_scatter_tensor_uneven(output: Any, input: Any, input_split_sizes: Any = None, op: str = "sum",
                                 group: Any = None, async_op: bool = False) -> Any:
    if _outside(group):
        return None
    group = _group(group)
    sizes = _sizes("reduce_scatter_tensor_uneven", "input_split_sizes", input_split_sizes, input, output, group)
    value = torch.ops.tutti_graph.reduce_scatter_tensor_uneven(input, sizes, op, group.group_name)
    return _finish(Pending([output], value, False), async_op)


# ---- Gathering


def all_gather(tensor_list: Any, tensor: Any, group: Any = None, async_op: bool = False) -> Any:
    if _outside(group):
        return None
    group = _group(group)
    _check_length("all_gather", "tensor_list", tensor_list, group)
    counts = _counts(tensor_list)
    mine = counts[dist.get_rank(group)]
    if mine != tensor.numel():
        raise ValueError(f"all_gather: tensor has {tensor.numel()} elements; expected {mine}, as this rank's entry")
    if _all_equal(counts):
        value = c10d.all_gather_into_tensor(_flat(tensor), len(counts), group.group_name)
        return _finish(Pending(tensor_list, value), async_op)
    value = torch.ops.tutti_graph.all_gather_into_tensor_uneven(_flat(tensor), counts, group.group_name)
    return _finish(Pending(tensor_list, value, False), async_op)


def all_gather_into_tensor(output_tensor: Any, input_tensor: Any, group: Any = None, async_op: bool = False) -> Any:
    if _outside(group):
        return None
    group = _group(group)
    n = dist.get_world_size(group)
    if output_tensor.numel() != input_tensor.numel() * n:
        raise ValueError(
            f"all_gather_into_tensor: output has {output_tensor.numel()} elements; expected {n} times those of input")
    value = c10d.all_gather_into_tensor(_flat(input_tensor), n, group.group_name)
    return _finish(Pending([output_tensor], value), async_op)


def all_gather_into_tensor_uneven(output: Any, input: Any, output_split_sizes: Any = None, group: Any = None,
                                  async_op: bool = False) -> Any:
    if _outside(group):
        return None
    group = _group(group)
    sizes = _sizes("all_gather_into_tensor_uneven", "output_split_sizes", output_split_sizes, output, input, group)
    value = torch.ops.tutti_graph.all_gather_into_tensor_uneven(input, sizes, group.group_name)
    return _finish(Pending([output], value, False), async_op)


def _sizes(name: str, argument: str, sizes: Any, whole: Any, own: Any, group: Any) -> Any:
    """Nobody can be asked inside a graph: without sizes they are even."""
    n, rows = dist.get_world_size(group), whole.size(0)
    if sizes is None:
        if rows != own.size(0) * n:
            raise ValueError(f"{name}: inside a graph {argument} must be given where the ranks' rows differ")
        return [own.size(0)] * n
    if len(sizes) != n:
        raise ValueError(f"{name}: {argument} has {len(sizes)} entries; expected {n}, one for each rank")
    if sum(sizes) != rows or sizes[dist.get_rank(group)] != own.size(0):
        raise ValueError(f"{name}: {argument} are {sizes}; expected sizes for {rows} rows, of which this rank's are {own.size(0)}")
    return [size for size in sizes]


def _list_of_root(name: str, tensors: Any, root: int, group: Any) -> Any:
    """The list that only the root gives, with a tensor for each rank; elsewhere []."""
    tensors = tensors if tensors else []
    if dist.get_rank(group) == root:
        _check_length(name, f"{name}_list", tensors, group)
    elif tensors:
        raise ValueError(f"{name}: {name}_list is given on a rank that is not the root; expected it only there")
    return tensors


def gather(tensor: Any, gather_list: Any = None, dst: Any = None, group: Any = None, async_op: bool = False,
           group_dst: Any = None) -> Any:
    if _outside(group):
        return None
    group = _group(group)
    root = _root(group, "gather", "dst", dst, group_dst, 0)
    outputs = _list_of_root("gather", gather_list, root, group)
    value = torch.ops.tutti_graph.gather(_flat(tensor), root, dist.get_world_size(group), group.group_name)
    return _finish(Pending(outputs, value, False), async_op)


# ---- From one rank


def broadcast(tensor: Any, src: Any = None, group: Any = None, async_op: bool = False, group_src: Any = None) -> Any:
    if _outside(group):
        return None
    group = _group(group)
    root = _root(group, "broadcast", "src", src, group_src, None)
    return _finish(Pending([tensor], c10d.broadcast(tensor, root, group.group_name)), async_op)


def scatter(tensor: Any, scatter_list: Any = None, src: Any = None, group: Any = None, async_op: bool = False,
            group_src: Any = None) -> Any:
    if _outside(group):
        return None
    group = _group(group)
    root = _root(group, "scatter", "src", src, group_src, 0)
    inputs = _list_of_root("scatter", scatter_list, root, group)
    value = torch.ops.tutti_graph.scatter(tensor, [one for one in inputs], root, group.group_name)
    return _finish(Pending([tensor], value, False), async_op)


# ---- All to all


def all_to_all_single(output: Any, input: Any, output_split_sizes: Any = None, input_split_sizes: Any = None,
                      group: Any = None, async_op: bool = False) -> Any:
    if _outside(group):
        return None
    group = _group(group)
    n = dist.get_world_size(group)
    sent = _split_counts("input", input_split_sizes, input, n)
    received = _split_counts("output", output_split_sizes, output, n)
    value = c10d.all_to_all_single(_flat(input), received, sent, group.group_name)
    return _finish(Pending([output], value), async_op)


def _split_counts(argument: str, sizes: Any, tensor: Any, n: int) -> Any:
    """In elements, of blocks of whole rows."""
    rows = tensor.size(0)
    if not sizes:
        if rows % n != 0:
            raise ValueError(f"all_to_all_single: {argument} has {rows} rows; expected a multiple of {n}")
        return [tensor.numel() // n] * n
    if len(sizes) != n or sum(sizes) != rows:
        raise ValueError(f"all_to_all_single: {argument}_split_sizes are {sizes}; expected {n} that add up to {rows}")
    row = 1
    for size in tensor.shape[1:]:
        row = row * size
    return [size * row for size in sizes]


def all_to_all(output_tensor_list: Any, input_tensor_list: Any, group: Any = None, async_op: bool = False) -> Any:
    if _outside(group):
        return None
    group = _group(group)
    _check_length("all_to_all", "input_tensor_list", input_tensor_list, group)
    _check_length("all_to_all", "output_tensor_list", output_tensor_list, group)
    received, sent = _counts(output_tensor_list), _counts(input_tensor_list)
    value = c10d.all_to_all_single(_joined(input_tensor_list), received, sent, group.group_name)
    return _finish(Pending(output_tensor_list, value), async_op)


# ---- Messages and barriers


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None, timeout: Any = None) -> Any:
    if _outside(group):
        return None
    token = torch.empty(0)
    return _finish(Pending([], torch.ops.tutti_graph.barrier(token, _group(group).group_name), False), async_op)


def send(tensor: Any, dst: Any = None, group: Any = None, tag: int = 0, group_dst: Any = None) -> None:
    if _outside(group):
        return
    group = _group(group)
    torch.ops.tutti_graph.send(tensor, _root(group, "send", "dst", dst, group_dst, None), tag, group.group_name)


def recv(tensor: Any, src: Any = None, group: Any = None, tag: int = 0, group_src: Any = None) -> int:
    if _outside(group):
        return -1
    group = _group(group)
    if src is None and group_src is None:
        raise ValueError("recv: from any rank, which a graph cannot tell; inside a graph src or group_src must be given")
    source = _root(group, "recv", "src", src, group_src, None)
    _write([tensor], torch.ops.tutti_graph.recv(tensor, source, tag, group.group_name))
    return src if src is not None else dist.get_process_group_ranks(group)[source]


def isend(tensor: Any, dst: Any = None, group: Any = None, tag: int = 0, group_dst: Any = None) -> Any:
    if _outside(group):
        return None
    group = _group(group)
    to = _root(group, "isend", "dst", dst, group_dst, None)
    return Pending([], torch.ops.tutti_graph.start_send(tensor, to, tag, group.group_name))


def irecv(tensor: Any, src: Any = None, group: Any = None, tag: int = 0, group_src: Any = None) -> Any:
    if _outside(group):
        return None
    group = _group(group)
    source = -1 if src is None and group_src is None else _root(group, "irecv", "src", src, group_src, None)
    return Pending([tensor], torch.ops.tutti_graph.start_recv(tensor, source, tag, group.group_name))


def batch_isend_irecv(op_list: Any, peer_list: Any, tag_list: Any, tensors: Any, group_name: Any) -> Any:
    """What Dynamo makes of a list of P2POps."""
    pending = []
    for op, peer, tag, tensor in zip(op_list, peer_list, tag_list, tensors):
        call = isend if op == "isend" else irecv
        pending.append(call(tensor, peer, group_name, tag))
    return pending
