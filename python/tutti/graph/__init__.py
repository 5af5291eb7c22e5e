"""tutti.graph: a program's calls as graphs, and collectives inside the graphs that torch.compile makes.

Over arrays, without PyTorch (tutti._captured has the manual; needs the package tutti):

    import tutti.graph as graph
    captured = graph.capture(step)                     # a function that calls collectives and graph.compute
    replayed = graph.Executable(graph.optimise(captured).graph)
    replayed.replay()

With torch.compile:

    import tutti.graph
    tutti.graph.patch_for_hcom()                       # before the model is defined
    config = tutti.graph.CompilerConfig()
    model = torch.compile(model, backend=tutti.graph.get_backend(compiler_config=config), fullgraph=True)

patch_for_hcom() makes the functions of torch.distributed traceable: all collectives, in place as they are called, send and
recv, and what is called with async_op=True. Any backend of torch.compile may follow. get_backend() is inductor with passes
that start large collectives early and wait for them late, leave out the copies, and make one call of each connected piece of
small ones: the passes of the graphs over arrays optimise it, and explain() says what they did.

`import tutti.graph.patch_for_hcom_allreduce` is the older way, for all_reduce alone.

Nothing here imports PyTorch before it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

_OVER_ARRAYS = [
    "Change", "Edge", "Executable", "Graph", "GroupInfo", "HostRead", "Node", "Optimised", "Piece", "Proof", "Range",
    "capture", "check_host_read", "compute", "instantiate", "is_capturing", "item", "optimise", "prove", "temporary",
]
__all__ = ["CompilerConfig", "explain", "get_backend", "get_npu_backend", "patch_for_hcom", *_OVER_ARRAYS]

if TYPE_CHECKING:
    from tutti._captured import *


def _need_torch() -> None:
    try:
        import torch.distributed  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"tutti.graph needs PyTorch, with torch.distributed; type: pip install torch ({error})") from None


def patch_for_hcom() -> None:
    """Makes what torch.distributed's functions do part of the graphs that torch.compile captures from now on. Again it does
    nothing. Wrappers of frameworks (deepspeed.comm's) become traceable too, also where they are imported later. ImportError
    without PyTorch."""
    _need_torch()
    from . import patch

    patch.install()


def explain(group: Any = None) -> str:
    """What the passes made of the pieces of communication that compiled graphs have replayed with `group` on this rank, as a
    text. None: the default group. ValueError for a group of another backend; ImportError without PyTorch."""
    _need_torch()
    from . import explained

    return explained.explain(group)


def __getattr__(name: str) -> Any:
    if name in ("CompilerConfig", "get_backend", "get_npu_backend"):
        _need_torch()
        from . import backend

        return getattr(backend, name)
    if name in _OVER_ARRAYS:
        try:
            from tutti import _captured
        except ImportError as error:
            raise ImportError(f"tutti.graph.{name} needs the package libtutti; type: pip install libtutti ({error})") from None
        return getattr(_captured, name)
    raise AttributeError(f"module 'tutti.graph' has no attribute {name!r}")
