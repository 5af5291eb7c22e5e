"""AllToAllVV2, the operation of that name of Huawei's Ascend Transformer Boost (ATB): its parameters, its spellings, its
error codes. Beneath it is tutti.distributed.all_to_all_v, which programs that know no ATB use.

    operation = tutti.atb.AllToAllVV2(tutti.atb.AllToAllVV2Param(rank=rank, rankSize=2))
    output = operation.execute(x, sendCounts=[2, 4], recvCounts=[2, 2])

Tensors are NumPy arrays, PyTorch's tensors, and what else has the buffer protocol or DLPack; a result is of x's kind.
PyTorch is not imported here. Ranks find each other by the parameters (see AllToAllVV2Param), so that
init_process_group() is not needed. `import tutti.atb.torch_classes` puts OperationTorch where ATB's tests look for it.
"""
from __future__ import annotations

import dataclasses
import enum
from typing import Any, Sequence

from .. import _core
from .._core import DeviceMesh, ProcessGroup
from ..errors import AtbError as Error

__all__ = [
    "AllToAllVV2", "AllToAllVV2Param", "COMM_MULTI_PROCESS", "COMM_MULTI_THREAD", "COMM_UNDEFINED", "CommMode", "Error",
    "OperationTorch",
]


class CommMode(enum.IntEnum):
    COMM_UNDEFINED = -1
    """Refused."""
    COMM_MULTI_PROCESS = 0
    """Each rank is a process."""
    COMM_MULTI_THREAD = 1
    """Each rank is a thread of this process."""


COMM_UNDEFINED = CommMode.COMM_UNDEFINED
COMM_MULTI_PROCESS = CommMode.COMM_MULTI_PROCESS
COMM_MULTI_THREAD = CommMode.COMM_MULTI_THREAD


@dataclasses.dataclass
class AllToAllVV2Param:
    """How ranks become a domain, in the first of these ways: `hcclComm`, a group that the caller has; `rankTableFile`, the
    ranks on the hosts that the file lists; `commMode` COMM_MULTI_THREAD, threads of this process; else the processes of
    this host with the same MASTER_ADDR and MASTER_PORT, else the same TUTTI_JOB_SECRET, else the same parent. Under
    `tutti run` all of its job."""

    rank: int = -1
    """Of this rank in the domain; -1: the only one of one."""
    rankSize: int = 0
    """How many ranks the domain has; a rank table may leave it 0."""
    rankRoot: int = 0
    """At which rank the others meet; equal on all ranks."""
    backend: str = "hccl"
    """Nothing else; tutti moves the data."""
    hcclComm: ProcessGroup | DeviceMesh | None = None
    commMode: CommMode = COMM_MULTI_PROCESS
    rankTableFile: str = ""
    commDomain: str = ""
    """Tells several domains apart; at most 128 characters."""
    rsv: bytes = bytes(64)
    """Zeros."""


def _make_output(x: Any, elements: int) -> Any:
    """An array of x's kind and type, of zeros, to be written into."""
    if hasattr(x, "new_zeros"):  # PyTorch's
        return x.new_zeros((1, elements))
    import numpy as np

    if isinstance(x, np.ndarray):
        return np.zeros((1, elements), dtype=x.dtype)
    like = np.from_dlpack(x) if hasattr(x, "__dlpack__") else np.asarray(memoryview(x))
    return np.zeros((1, elements), dtype=like.dtype)


def _of_kind(x: Any, output: Any) -> Any:
    """The output as x's library has it, where it can be asked by the array interface (JAX, CuPy)."""
    if type(x) is type(output) or not hasattr(x, "__array_namespace__") or not hasattr(x, "__dlpack__"):
        return output
    return x.__array_namespace__().from_dlpack(output)


class _Bound:
    """What both spellings have in common."""

    def __init__(self, name: str) -> None:
        self._operation = _core.AtbOperation(name)

    @property
    def group(self) -> ProcessGroup:
        """The domain's ranks; hcclComm, where there is one."""
        return self._operation.group

    def _execute(self, inTensors: Sequence[Any], sendCount: Any = None) -> Any:
        output = self._operation.execute(inTensors, sendCount, _make_output)
        return _of_kind(inTensors[0], output)


class AllToAllVV2(_Bound):
    """Each rank sends to each rank a block from anywhere in its input, and places the blocks that it gets anywhere in its
    output. Making it makes or joins the domain, and returns when all ranks have come."""

    def __init__(self, param: AllToAllVV2Param) -> None:
        super().__init__("AllToAllVV2Operation")
        self._operation.set_param(param)
        self.param = dataclasses.replace(param)

    def execute(self, x: Any, sendCounts: Any = None, sdispls: Any = None, recvCounts: Any = None, rdispls: Any = None,
                tensorForInferShape: Any = None, *, sendCount: Any = None) -> Any:
        """A new array [1, n] of x's kind and type, zero where no block comes.

        Counts and displacements are in elements, one for each rank: lists, arrays or tensors of integers. Without counts
        the blocks are equal, without displacements one lies after the other. n is the length of tensorForInferShape, else
        where the last block ends. `sendCount` is another name of sendCounts.

        All ranks call it. Errors come on every rank, before anything moves, and the group stays usable: Error for what
        cannot be, which on the other ranks names the rank (`peer`) that was refused; CollectiveMismatch where a rank sends
        another count or type than its peer expects."""
        return self._execute((x, sendCounts, sdispls, recvCounts, rdispls, tensorForInferShape), sendCount)


class OperationTorch(_Bound):
    """The class by which ATB's tests run any operation: parameters are JSON texts."""

    def __init__(self, opName: str) -> None:
        super().__init__(opName)

    def set_param(self, param: str | AllToAllVV2Param) -> None:
        """{"rank": 0, "rankSize": 2, "rankRoot": 0, "backend": "hccl", ...}: a key that is missing has its default. Or a
        structure, which may have a hcclComm. Makes or joins the domain; returns when all ranks have come."""
        if isinstance(param, str):
            self._operation.set_param_text(param)
        else:
            self._operation.set_param(param)

    def set_varaintpack_param(self, param: str) -> None:
        """{"sendCounts": [...], "sdispls": [...], "recvCounts": [...], "rdispls": [...]}: takes the place of the tensors
        that execute() is given; a key that is missing leaves it to them. Holds until the next call."""
        self._operation.set_varaintpack_param(param)

    def execute(self, inTensors: Sequence[Any]) -> list[Any]:
        """[x, sendCounts, sdispls, recvCounts, rdispls, tensorForInferShape]: 1 to 6 of them, None for one that is not
        given. One output, as AllToAllVV2.execute's."""
        return [self._execute(inTensors)]
