"""tutti.torch: the backend "tutti" for torch.distributed.

    import torch.distributed as dist
    dist.init_process_group("tutti")    # no import of tutti.torch where it is installed: PyTorch finds its entry point

Every collective on CPU tensors, send and recv, coalescing, splitting; DDP, FSDP2, DTensor, functional collectives and
distributed checkpoints work over it. Groups that also serve a GPU: init_process_group("cpu:tutti,cuda:nccl").

TUTTI_REPLACE_GLOO=1 in the environment, or `python -m tutti.torch --replace-gloo script.py ...`, makes every use of gloo
ours. Importing this package is cheap; its C++ part is loaded when the first group is made.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from . import _strangers

__all__ = [
    "__version__",
    "FileStore",
    "HashStore",
    "Options",
    "ProcessGroupTutti",
    "QuantizedReducer",
    "QuantizedState",
    "TCPStore",
    "all_gather_into_tensor",
    "all_gather_into_tensor_uneven",
    "dump_flight_recorder",
    "empty_symmetric",
    "is_gloo_replaced",
    "quantized_all_gather",
    "quantized_all_reduce",
    "quantized_hook",
    "quantized_reduce_scatter",
    "reduce_scatter_tensor",
    "reduce_scatter_tensor_uneven",
    "register",
    "replace_gloo",
    "resilient",
]

_strangers.refuse()
_QUANTIZED = ("QuantizedReducer", "QuantizedState", "quantized_all_gather", "quantized_all_reduce", "quantized_hook",
              "quantized_reduce_scatter")
_SWITCH = "TUTTI_REPLACE_GLOO"


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from . import _version

        return _version.version
    if name in ("ProcessGroupTutti", "Options"):
        from ._module import backend

        group = backend().ProcessGroupTutti
        return group if name == "ProcessGroupTutti" else group.Options
    if name in _QUANTIZED:
        from . import quantized

        return getattr(quantized, name)
    if name == "empty_symmetric":
        from . import symmetric

        return symmetric.empty_symmetric
    if name.startswith(("all_gather_into_tensor", "reduce_scatter_tensor")):
        from . import uneven

        if name in uneven.__all__:
            return getattr(uneven, name)
    if name == "resilient":
        from . import resilience

        return resilience.resilient
    if name == "dump_flight_recorder":
        from . import flight

        return flight.dump_flight_recorder
    if name in ("FileStore", "HashStore", "TCPStore"):
        from . import stores

        return getattr(stores, name)
    raise AttributeError(f"module 'tutti.torch' has no attribute {name!r}")


def _timeout(options: Any) -> timedelta:
    timeout = options.timeout
    return timeout if isinstance(timeout, timedelta) else timedelta(seconds=float(timeout))


def _describe(own: Any, options: Any) -> None:
    """Writes what torch.distributed says of a group into our options."""
    own._timeout = _timeout(options)
    own.group_name = options.group_id
    own.global_ranks_in_group = options.global_ranks_in_group or list(range(options.group_size))
    if getattr(options, "enable_reconfigure", False):  # since PyTorch 2.14
        own.enable_reconfigure = True


def _create(options: Any, backend_options: Any) -> Any:
    """What torch.distributed calls for each group. `options`: its _DistributedBackendOptions."""
    from ._module import backend

    module = backend()
    own = backend_options
    if own is None:
        own = module.ProcessGroupTutti.Options()
    elif not isinstance(own, module.ProcessGroupTutti.Options):
        raise TypeError(f"tutti: pg_options is a {type(own).__name__}; expected tutti.torch.Options or None")
    _describe(own, options)
    return module.ProcessGroupTutti(options.store, options.group_rank, options.group_size, own)


def register() -> None:
    """Makes "tutti" a backend of torch.distributed. Importing tutti.torch does it; again it does nothing."""
    from . import limits, monitored, rendezvous

    if "TUTTI" not in dist.Backend._plugins:
        # Asked without looking for GPUs: that would make this process unfit to be forked.
        devices = ["cpu", "cuda"] if torch.backends.cuda.is_built() else ["cpu"]
        dist.Backend.register_backend("tutti", _create, extended_api=True, devices=devices)
    limits.install()
    monitored.install()
    rendezvous.register()


def replace_gloo() -> None:
    """Makes every later use of gloo in this process ours: as a backend's name, as the default, as ProcessGroupGloo.

    Groups that exist already stay as they are. Spawned children do the same only where TUTTI_REPLACE_GLOO=1 is in the
    environment, which `python -m tutti.torch --replace-gloo` sees to.
    """
    from . import gloo

    gloo.replace()


def is_gloo_replaced() -> bool:
    """Whether gloo is ours in this process."""
    from . import gloo

    return gloo.replaced


register()
if os.environ.get(_SWITCH, "0") not in ("", "0"):
    replace_gloo()
