"""Backends: who moves the data of a group."""
from __future__ import annotations

from typing import Any, Callable

from .. import _core, _streams
from .._core import (
    is_backend_available, is_gloo_available, is_mpi_available, is_nccl_available, is_ucc_available, is_xccl_available,
)
from ..errors import InvalidArgument

__all__ = ["Backend", "is_backend_available", "is_gloo_available", "is_mpi_available", "is_nccl_available",
           "is_ucc_available", "is_xccl_available"]


class Backend(str):
    """The name of a backend, lower case.

    Raises:
        InvalidArgument: for one that is not known; it names those that are.

    Example:
        >>> dist.Backend("GLOO") == "gloo" == dist.Backend.GLOO
        True
    """

    UNDEFINED = "undefined"
    NATIVE = "native"
    GLOO = "gloo"
    NCCL = "nccl"
    UCC = "ucc"
    MPI = "mpi"
    XCCL = "xccl"

    default_device_backend_map = {"cpu": "native", "cuda": "nccl", "rocm": "rccl", "npu": "hccl", "xpu": "xccl"}
    """Who serves a kind of device in groups whose backend is left out."""

    def __new__(cls, name: str) -> Backend:
        if not isinstance(name, str):
            raise InvalidArgument(f"Backend: name is {name!r}: expected a str")
        return super().__new__(cls, _core.backend_name(name))

    @classmethod
    def register_backend(cls, name: str, func: Callable[..., Any], extended_api: bool = False,
                         devices: str | list[str] | None = None) -> None:
        """From now on groups may name it, and Backend has it as an attribute in upper case.

        `func` is called once for each group and rank. It returns an object with run(request, completion), which begins a
        BackendRequest and sees to it that completion.success() or completion.failure(error) is called once, from any
        thread; and abort(reason), which ends what is under way. For devices it may have begin_group() and end_group(),
        around calls of run() that belong together; an attribute takes_blocks that is true; and call
        completion.enqueued(event).

        Args:
            name: of the backend.
            func: func(store, rank, world_size, timeout), or with `extended_api` func(DistributedBackendOptions,
                pg_options).
            extended_api: what `func` takes.
            devices: kinds that it serves; None: "cpu" and "cuda".

        Raises:
            InvalidArgument: for what is no name or no function.

        Example:
            >>> class Alone:
            ...     def run(self, request, completion):
            ...         np.copyto(request.output, request.input)
            ...         completion.success()
            ...     def abort(self, reason):
            ...         pass
            >>> dist.Backend.register_backend("alone", lambda store, rank, world_size, timeout: Alone(), devices="cpu")
            >>> dist.Backend.ALONE
            'alone'
        """
        if not isinstance(name, str):
            raise InvalidArgument(f"Backend.register_backend: name is {name!r}: expected a str")
        if not callable(func):
            raise InvalidArgument(f"Backend.register_backend: func is {func!r}: expected a function")
        served = ["cpu", "cuda"] if devices is None else [devices] if isinstance(devices, str) else list(devices)
        _core.register_backend(name, func, extended_api, served)
        setattr(cls, name.upper(), name.lower())


_asked_for: set[str] = set()


def nccl_may_be_in_use() -> bool:
    """Whether a group on NCCL, or RCCL, has been asked for: the library has read its environment variables then."""
    if "" in _asked_for and not {"nccl", "rccl"}.isdisjoint(_core.available_backends()):
        return True
    return any(name in text for text in _asked_for for name in ("nccl", "rccl"))


def backend_text(backend: Any) -> str:
    """What the core is told for a `backend` argument of a group. Where PyTorch is built for AMD's devices it calls them
    "cuda", and RCCL "nccl"."""
    text = str(backend or "")
    _asked_for.add(text.lower())
    if not text or not _streams.is_rocm():
        return text
    parts = [part.strip().lower().split(":") for part in text.split(",")]
    for part in parts:
        if part[0] == "cuda" and len(part) > 1:
            part[0] = "rocm"
        if part[-1] == "nccl" and not _core._is_from_python("nccl"):
            part[-1] = "rccl"
    return ",".join(":".join(part) for part in parts)
