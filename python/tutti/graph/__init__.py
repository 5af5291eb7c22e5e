"""tutti.graph: collectives inside the graphs that torch.compile makes.

    import tutti.graph
    tutti.graph.patch_for_hcom()                       # before the model is defined
    config = tutti.graph.CompilerConfig()
    model = torch.compile(model, backend=tutti.graph.get_backend(compiler_config=config), fullgraph=True)

patch_for_hcom() makes the functions of torch.distributed traceable: all collectives, in place as they are called, send and
recv, and what is called with async_op=True. Any backend of torch.compile may follow. get_backend() is inductor with passes
that put small collectives together, start large ones early and wait for them late, and leave out the copies.

`import tutti.graph.patch_for_hcom_allreduce` is the older way, for all_reduce alone.
"""

from __future__ import annotations

from typing import Any

try:
    import torch.distributed
except ImportError as error:
    raise ImportError(f"tutti.graph needs PyTorch, with torch.distributed; type: pip install torch ({error})") from None

__all__ = ["CompilerConfig", "get_backend", "get_npu_backend", "patch_for_hcom"]


def patch_for_hcom() -> None:
    """Makes what torch.distributed's functions do part of the graphs that torch.compile captures from now on. Again it does
    nothing. Wrappers of frameworks (deepspeed.comm's) become traceable too, also where they are imported later."""
    from . import patch

    patch.install()


def __getattr__(name: str) -> Any:
    if name in ("CompilerConfig", "get_backend", "get_npu_backend"):
        from . import backend

        return getattr(backend, name)
    raise AttributeError(f"module 'tutti.graph' has no attribute {name!r}")
