"""Loads the C++ part, for the version of PyTorch that it was built for."""

from __future__ import annotations

import atexit
import functools
import os
from types import ModuleType

import torch


def backend() -> ModuleType:
    """The module tutti.torch._backend. ImportError where it is missing, or was built for another PyTorch."""
    module = _load()
    if os.environ.get("TORCH_FR_BUFFER_SIZE", os.environ.get("TORCH_NCCL_TRACE_BUFFER_SIZE")):
        from . import flight

        flight.install(module)
    return module


@functools.cache
def _load() -> ModuleType:
    try:
        from . import _version
    except ImportError:
        raise ImportError(
            "tutti.torch: its C++ part is not built; type: make torch (TORCH_PYTHON=/path/to/python names the Python "
            "whose PyTorch it is for)"
        ) from None
    # Checked before it is loaded: classes of another minor version have other virtual functions.
    built_for, this = (version.split(".")[:2] for version in (_version.torch_version, torch.__version__))
    if built_for != this:
        raise ImportError(
            f"tutti.torch was built for PyTorch {_version.torch_version}, but this is PyTorch {torch.__version__}; "
            f"their binary interfaces differ. Type: pip install 'libtutti[torch]' 'torch=={'.'.join(this)}.*', or, where no "
            "wheel is for this PyTorch, build it from the sources: make torch"
        )
    from . import _backend

    atexit.register(_backend.leave_all)
    return _backend
