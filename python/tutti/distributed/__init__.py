"""torch.distributed's functions, names and order of arguments, over NumPy arrays, DLPack and the buffer protocol."""
from __future__ import annotations

import typing as _typing
import warnings as _warnings
from datetime import timedelta as _timedelta
from typing import Any as _Any

from .._core import (
    FileStore, HashStore, PrefixStore, ProcessGroup, ReduceOp, Store, TCPStore, Window, Work, WorkResult,
    _make_nccl_premul_sum, empty_symmetric,
)
from .._core import BackendCompletion, BackendRequest, DistributedBackendOptions
from ..errors import (
    Aborted, CollectiveMismatch, DistBackendError, DistError, DistNetworkError, DistStoreError, InvalidArgument,
    ObjectError, PeerLost, Timeout,
)
from . import _names_of_others, collectives, neighbors, plan, quantized
from .backends import (
    Backend, is_backend_available, is_gloo_available, is_mpi_available, is_nccl_available, is_ucc_available,
    is_xccl_available,
)
from .coalescing import CoalescingManager, coalescing
from .collectives import *  # noqa: F403: those of its __all__
from .debug import DebugLevel, breakpoint, get_debug_level, set_debug_level, set_debug_level_from_env
from .device_mesh import DeviceMesh, current_device_mesh, init_device_mesh
from .groups import (
    AllreduceOptions, GroupMember, destroy_process_group, get_backend, get_global_rank, get_group_rank,
    get_process_group_ranks, get_rank, get_world_size, group, init_process_group, is_available, is_initialized,
    is_torchelastic_launched, join, new_group, new_subgroups, new_subgroups_by_enumeration, newcomers_waiting,
    set_default_group, split_group,
)
from .nccl import ProcessGroupNCCL
from .neighbors import *  # noqa: F403
from .object_collectives import (
    all_gather_object, broadcast_object_list, gather_object, recv_object_list, scatter_object_list, send_object_list,
)
from .point_to_point import (
    NO_RANK, MatchedMessage, MessageInfo, P2POp, batch_isend_irecv, iprobe, irecv, isend, isendrecv, matched_iprobe,
    matched_probe, probe, recv, send, sendrecv, sendrecv_replace,
)
from .quantized import *  # noqa: F403
from .resilience import Resilience, resilient
from .step_functions import register_step_function
from .trace import GroupCounters, dump_flight_recorder, dump_trace, group_counters, operation_hooks, prometheus_text

_coalescing_manager = coalescing
default_pg_timeout = _timedelta(minutes=30)
default_pg_nccl_timeout = _timedelta(minutes=10)


class _DeprecatedReduceOp:
    """The name that torch.distributed has given up, with its four values."""

    def __getattr__(self, name: str) -> _Any:
        if name not in ("SUM", "PRODUCT", "MIN", "MAX"):
            raise AttributeError(f"reduce_op has no {name}: expected SUM, PRODUCT, MIN or MAX")
        _warnings.warn("tutti.distributed.reduce_op is deprecated: use ReduceOp", FutureWarning, stacklevel=2)
        return getattr(ReduceOp, name)


reduce_op = _DeprecatedReduceOp()

if not _typing.TYPE_CHECKING:  # type checkers know the names that are here
    __getattr__ = _names_of_others.of_module
    ProcessGroup.__getattr__ = _names_of_others.of_group

from . import distributed_c10d  # noqa: E402: it has the names above

__all__ = [
    "Aborted", "AllreduceOptions", "Backend", "BackendCompletion", "BackendRequest", "CoalescingManager",
    "CollectiveMismatch", "DebugLevel", "DeviceMesh", "DistBackendError", "DistError", "DistNetworkError", "DistStoreError",
    "DistributedBackendOptions", "FileStore", "GroupCounters", "GroupMember", "HashStore", "InvalidArgument", "ObjectError",
    "P2POp", "PeerLost", "PrefixStore", "ProcessGroup", "ProcessGroupNCCL", "ReduceOp", "Store", "TCPStore", "Timeout",
    "Window", "Work", "WorkResult", "all_gather_object", "batch_isend_irecv", "breakpoint", "broadcast_object_list", "coalescing",
    "current_device_mesh", "default_pg_nccl_timeout", "default_pg_timeout", "destroy_process_group", "distributed_c10d",
    "dump_flight_recorder", "dump_trace", "empty_symmetric", "gather_object", "get_backend", "get_debug_level",
    "get_global_rank", "get_group_rank", "get_process_group_ranks", "get_rank", "get_world_size", "group", "group_counters",
    "init_device_mesh", "init_process_group", "irecv", "is_available", "is_backend_available", "is_gloo_available",
    "is_initialized", "is_mpi_available", "is_nccl_available", "is_torchelastic_launched", "is_ucc_available",
    "is_xccl_available", "isend", "new_group", "new_subgroups", "new_subgroups_by_enumeration", "operation_hooks", "plan",
    "prometheus_text", "recv", "recv_object_list", "reduce_op", "register_step_function", "scatter_object_list", "send", "send_object_list",
    "set_debug_level", "set_debug_level_from_env", "set_default_group", "split_group",
]
__all__ += [
    "MatchedMessage", "MessageInfo", "NO_RANK", "Resilience", "iprobe", "isendrecv", "join", "matched_iprobe", "matched_probe",
    "newcomers_waiting", "probe", "resilient", "sendrecv", "sendrecv_replace",
]
__all__ += collectives.__all__
__all__ += neighbors.__all__
__all__ += quantized.__all__
