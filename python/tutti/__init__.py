"""Collective communication: N processes exchange arrays and objects, with torch.distributed's functions.

    import numpy as np
    import tutti.distributed as dist

    dist.init_process_group()                    # env://, as tutti run, torchrun, srun or mpirun set it
    x = np.full(4, dist.get_rank(), dtype=np.float32)
    dist.all_reduce(x, op=dist.ReduceOp.AVG)     # in place, the same bits on every rank

A tensor is a NumPy array, or anything with the buffer protocol or DLPack: PyTorch's tensors too, of any strides.
bfloat16 and float8 are the types of ml_dtypes. Nothing here imports PyTorch, and NumPy only where it is needed.
"""
import atexit
import os
import pkgutil
import typing as _typing

from . import _strangers

_strangers.refuse()
__path__ = pkgutil.extend_path(__path__, __name__)  # tutti.torch is made for one PyTorch, and may lie elsewhere
__path__.append(os.path.join(os.path.dirname(__file__), "_alone"))  # for modules that libtutti-torch has too, with more

from . import _core, arrays, distributed, errors, multiprocessing
from ._core import version as __version__
from .errors import (
    Aborted, CollectiveMismatch, DistBackendError, DistError, DistNetworkError, DistStoreError, InternalError,
    InvalidArgument, ObjectError, PeerLost, Timeout,
)
from .multiprocessing import notebook_launcher

__all__ = [
    "Aborted", "CollectiveMismatch", "DistBackendError", "DistError", "DistNetworkError", "DistStoreError",
    "InternalError", "InvalidArgument", "ObjectError", "PeerLost", "Timeout", "__version__", "arrays", "atb", "distributed",
    "errors", "futures", "graph", "hfai", "multiprocessing", "notebook_launcher", "objects",
]

if _typing.TYPE_CHECKING:
    from . import atb, futures, graph, hfai, objects
else:
    def __getattr__(name: str) -> object:
        if name in ("atb", "futures", "graph", "hfai", "objects"):  # imported when they are used first
            import importlib

            return importlib.import_module(f"{__name__}.{name}")
        expected = f": expected {__name__}.distributed.{name}" if name in distributed.__all__ else ""
        raise AttributeError(f"module {__name__} has no attribute {name}{expected}", name=name)

atexit.register(_core._close)
