"""Options of groups on the backend nccl, and on rccl, which is the same for AMD's devices."""
from __future__ import annotations

from typing import Any

from ..errors import ArgumentTypeError, DistBackendError, InvalidArgument
from .backends import is_backend_available

__all__ = ["ProcessGroupNCCL"]


class NCCLConfig:
    """The fields of NCCL's ncclConfig_t; None leaves one to NCCL."""

    _fields = ("blocking", "cga_cluster_size", "min_ctas", "max_ctas", "net_name", "split_share", "traffic_class",
               "comm_name", "collnet_enable", "cta_policy", "shrink_share", "nvls_ctas", "n_channels_per_net_peer",
               "nvlink_centric_sched")

    def __init__(self) -> None:
        for name in self._fields:
            object.__setattr__(self, name, None)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._fields:
            raise InvalidArgument(f"NCCLConfig: there is no field {name}: expected one of {', '.join(self._fields)}")
        wanted = str if name in ("net_name", "comm_name") else int
        if value is not None and not isinstance(value, wanted):
            raise ArgumentTypeError(f"NCCLConfig: {name} is {value!r}: expected {wanted.__name__} or None")
        object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        given = (f"{name}={getattr(self, name)!r}" for name in self._fields if getattr(self, name) is not None)
        return f"NCCLConfig({', '.join(given)})"


class ProcessGroupNCCL:
    """Holds the name Options, as torch.distributed.ProcessGroupNCCL does."""

    class Options:
        """`pg_options` of init_process_group and new_group. With `is_high_priority_stream` communication is picked before
        other work of the device that waits for it; `config` holds the fields of NCCL's configuration. Backends that are
        registered from Python, with extended_api, get the object itself. DistBackendError where no backend nccl can be
        used: NCCL's library is not found, and nobody has registered one."""

        backend = "nccl"

        def __init__(self, is_high_priority_stream: bool = False) -> None:
            if not (is_backend_available("nccl") or is_backend_available("rccl")):
                raise DistBackendError(
                    "ProcessGroupNCCL.Options: the backend nccl cannot be used here: expected NCCL's library (doctor says "
                    "where it is looked for; TUTTI_NCCL_LIB names another), or a backend nccl that is registered "
                    "(Backend.register_backend) or in a library of TUTTI_BACKEND_PATH")
            if not isinstance(is_high_priority_stream, bool):
                raise ArgumentTypeError("ProcessGroupNCCL.Options: is_high_priority_stream is "
                                        f"{is_high_priority_stream!r}: expected True or False")
            self.is_high_priority_stream = is_high_priority_stream
            self.config = NCCLConfig()
