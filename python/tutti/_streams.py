"""Streams of the libraries whose tensors are on devices: in which one a library works now, and its tensors as DLPack's.

An operation on such a tensor is put in the library's current stream, as the library's own operations are, so nothing is
waited for when the tensor is taken. A library whose streams are not known here makes its tensor ready for the default
stream, and that one is taken.
"""
from __future__ import annotations

import functools
import sys
from contextlib import contextmanager
from typing import Any, Callable, Iterator

__all__ = ["Source", "ambient", "beside", "export", "is_rocm", "torch_says"]

Source = Callable[[], int]
"""The handle of the stream in which a library works now on one device."""

_HANDLES = {"cuda": "cuda_stream", "xpu": "sycl_queue", "npu": "npu_stream"}  # torch's modules of devices, and their streams'
_CUDA, _CUDA_MANAGED, _ROCM = 2, 13, 10  # DLPack's numbers
_DEFAULT_STREAM = {_CUDA: 1, _CUDA_MANAGED: 1, _ROCM: 0}  # what __dlpack__ calls it


def is_rocm() -> bool:
    """Whether PyTorch is here and was built for AMD's devices, which it calls "cuda"."""
    return getattr(getattr(sys.modules.get("torch"), "version", None), "hip", None) is not None


def torch_says(device_type: str) -> str:
    """What PyTorch calls a kind of device."""
    return "cuda" if device_type == "rocm" and is_rocm() else device_type


class _TorchSource:
    def __init__(self, module: str, index: int) -> None:
        self.module, self.index = module, index
        self.handle = _HANDLES[module]

    @property
    def streams(self) -> Any:
        return getattr(sys.modules["torch"], self.module)

    def __call__(self) -> int:
        return int(getattr(self.streams.current_stream(self.index), self.handle))

    @functools.cached_property
    def side(self) -> Any:
        return self.streams.Stream(self.index)

    def enter(self) -> Any:
        return self.streams.stream(self.side)

    def waiting_for_side(self) -> Callable[[], None]:
        event = self.side.record_event()
        return lambda: self.streams.current_stream(self.index).wait_event(event)


class _CupySource:
    def __init__(self, index: int) -> None:
        self.index = index

    @property
    def cuda(self) -> Any:
        return sys.modules["cupy"].cuda

    def current(self) -> Any:
        with self.cuda.Device(self.index):
            return self.cuda.get_current_stream()

    def __call__(self) -> int:
        return int(self.current().ptr)

    @functools.cached_property
    def side(self) -> Any:
        with self.cuda.Device(self.index):
            return self.cuda.Stream(non_blocking=True)

    def enter(self) -> Any:
        return self.side

    def waiting_for_side(self) -> Callable[[], None]:
        event = self.side.record()
        return lambda: self.current().wait_event(event)


@functools.lru_cache(maxsize=None)
def _source(library: str, module: str, index: int) -> Any:
    return _TorchSource(module, index) if library == "torch" else _CupySource(index)


def _library_of(cls: type) -> str:
    for base in cls.__mro__:
        library = base.__module__.partition(".")[0]
        if library in ("torch", "cupy"):
            return library
    return ""


def export(array: Any, kind: int, index: int) -> tuple[Any, Source | None]:
    """A tensor on a device that __dlpack_device__ calls (kind, index) as a DLPack capsule; and where its library works, if
    that is known."""
    library = _library_of(type(array))
    if library == "cupy" and kind in _DEFAULT_STREAM:
        return array.__dlpack__(stream=-1), _source("cupy", "", index)
    if library == "torch" and str(array.device.type) != "cpu":
        module = str(array.device.type)
        source = _source("torch", module, index) if module in _HANDLES else None
        return _torch_capsule(array, module, index), source
    if kind in _DEFAULT_STREAM:
        return array.__dlpack__(stream=_DEFAULT_STREAM[kind]), None
    return array.__dlpack__(), None


def _torch_capsule(tensor: Any, module: str, index: int) -> Any:
    if module != "cuda":
        return tensor.__dlpack__()  # which waits for nothing there
    cuda = sys.modules["torch"].cuda
    if cuda.current_device() == index:
        return tensor.__dlpack__(stream=-1)
    with cuda.device(index):  # it gives no tensor of another device
        return tensor.__dlpack__(stream=-1)


def ambient() -> list[tuple[str, int]]:
    """Where libraries work now that have begun to use a device: (kind, stream), for calls that have no tensors."""
    found: list[tuple[str, int]] = []
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    for module in _HANDLES if torch is not None else ():
        streams = getattr(torch, module, None)
        if streams is not None and streams.is_initialized():
            kind = "rocm" if module == "cuda" and is_rocm() else module
            found.append((kind, _source("torch", module, int(streams.current_device()))()))
    if not found and cupy is not None and hasattr(cupy, "cuda"):
        found.append(("cuda", int(cupy.cuda.get_current_stream().ptr)))
    return found


@contextmanager
def beside(source: Any) -> Iterator[Callable[[], Callable[[], None]]]:
    """A block that works in a stream of its own on the source's device. Gives a function that returns, of what is in that
    stream by then, a function that makes the library's current stream wait for it."""
    if source is None:
        yield lambda: lambda: None
        return
    with source.enter():
        yield source.waiting_for_side
