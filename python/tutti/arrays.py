"""The types of arrays that functions take: what a checker of types lets through, `Array` for programs of one's own too.

    from tutti.arrays import Array

    def average(gradient: Array) -> None:
        dist.all_reduce(gradient, op=dist.ReduceOp.AVG)

Which element types and memory an array may have is found at the call: bytes are buffers, and cannot be written.
"""
from __future__ import annotations

from typing import Any, Protocol, Union

__all__ = ["Array", "BufferArray", "DLPackArray"]


class DLPackArray(Protocol):
    """What hands out its memory by DLPack: arrays of NumPy, PyTorch, CuPy, JAX and others."""

    def __dlpack__(self, *, stream: Any = ...) -> Any: ...

    def __dlpack_device__(self) -> tuple[Any, Any]: ...


class BufferArray(Protocol):
    """What has the buffer protocol: bytearray, memoryview, array.array, mmap, arrays of ctypes."""

    def __buffer__(self, flags: int, /) -> memoryview: ...


Array = Union[DLPackArray, BufferArray]
