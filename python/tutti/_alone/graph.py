"""tutti.graph where the package libtutti-torch is not installed: graphs of a program's calls over arrays (tutti._captured).

This folder is the last one in which modules of tutti are looked for; the tutti.graph of libtutti-torch, which has the same and
more, comes before it.
"""
from __future__ import annotations

from tutti._captured import *  # noqa: F403
from tutti._captured import __all__, __doc__  # noqa: F401


def __getattr__(name: str) -> object:
    if name in ("CompilerConfig", "get_backend", "get_npu_backend", "patch_for_hcom", "patch_for_hcom_allreduce"):
        raise ImportError(f"tutti.graph.{name} is for torch.compile, and in another package; type: pip install libtutti-torch")
    raise AttributeError(f"module 'tutti.graph' has no attribute {name!r}")
