"""get_backend(): inductor, with the passes of passes.py."""

from __future__ import annotations

import functools
import hashlib
import pathlib
from dataclasses import dataclass, field
from typing import Any, Callable

import torch
from torch.distributed import distributed_c10d

from . import ops, passes, patch

#: What a call costs beside the collective: the operator's call from the compiled code, and its checks.
CALL_US = 2.0
#: The size that has so much of the full bandwidth is large enough for a bucket.
PART_OF_BANDWIDTH = 0.9


@dataclass
class CompilerConfig:
    """What get_backend() does with collectives. All ranks give equal values.

    bucket: small ones become one call, with the local steps between them. bucket_bytes: the size of a bucket, which is what
    counts as small; None: the smallest that has 90 % of the bandwidth, by the latency and bandwidth that the group's ranks
    measured when they met. algebra: within such a call collectives that give what is there already are left out, and pairs
    that are one become one. overlap: those that take longer
    than overlap_us, by the same numbers, go on while something is computed. in_place: the others are done when their call
    returns, in the tensors that they are given. inductor: options of torch._inductor.config.
    """

    bucket: bool = True
    bucket_bytes: int | None = None
    algebra: bool = True
    overlap: bool = True
    overlap_us: float = 200.0
    in_place: bool = True
    inductor: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.bucket_bytes is not None and self.bucket_bytes < 0:
            raise ValueError(f"CompilerConfig: bucket_bytes is {self.bucket_bytes}; expected zero or more, or None")
        if self.overlap_us < 0:
            raise ValueError(f"CompilerConfig: overlap_us is {self.overlap_us}; expected zero or more")


def backend_of(group_name: str) -> Any:
    """The ProcessGroupTutti of a group; None: it has another backend."""
    members = distributed_c10d._resolve_process_group(group_name)
    found = members._get_backend(torch.device("cpu"))
    found = getattr(found, "wrapped_pg", found)  # TORCH_DISTRIBUTED_DEBUG=DETAIL
    return found if hasattr(found, "predicted_us") else None


def replays(group_name: str) -> bool:
    """Whether the group can replay pieces: it is tutti's, and nothing stands before it that would see each call."""
    members = distributed_c10d._resolve_process_group(group_name)
    return hasattr(members._get_backend(torch.device("cpu")), "pieces")


def predicted_us(group_name: str, collective: str, size: int) -> float:
    """Microseconds. Of other backends than tutti, which measures nothing: as over a good local network."""
    found = backend_of(group_name)
    if found is not None:
        return float(found.predicted_us(collective, size))
    return 50.0 + size / 1000.0


def bucket_bytes(group_name: str) -> int:
    """The smallest size that reaches PART_OF_BANDWIDTH: a part p of the bandwidth b has who sends p/(1-p)·latency·b."""
    small, large = 8, 4 << 20
    latency = predicted_us(group_name, "all_reduce", small)
    a_byte = max(predicted_us(group_name, "all_reduce", large) - latency, 1e-3) / (large - small)
    factor = PART_OF_BANDWIDTH / (1 - PART_OF_BANDWIDTH)
    return int(factor * (latency + CALL_US) / a_byte)


class _Passes:
    """As inductor's configuration wants a pass: a function of the graph, and what its results depend on."""

    def __init__(self, config: CompilerConfig) -> None:
        self.config = config

    def __call__(self, graph: torch.fx.Graph) -> None:
        config = self.config
        fixed = config.bucket_bytes
        passes.run(graph, passes.Settings(
            bucket=config.bucket, algebra=config.algebra, overlap=config.overlap, in_place=config.in_place, overlap_us=config.overlap_us,
            bucket_bytes=functools.cache(bucket_bytes) if fixed is None else lambda group_name: fixed,
            predicted_us=functools.cache(predicted_us), replays=functools.cache(replays)))

    def uuid(self) -> Any:
        files = sorted(pathlib.Path(__file__).parent.glob("*.py"))
        digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
        numbers = {name: (replays(name), bucket_bytes(name), [predicted_us(name, kind, 1 << 20) for kind in passes._ALONE])
                   for name in _group_names()}
        return digest, repr(self.config), repr(numbers)


def _group_names() -> list[str]:
    return sorted(str(name) for members, name in distributed_c10d._world.pg_names.items()
                  if members is not distributed_c10d.GroupMember.NON_GROUP_MEMBER)


def _with_passes(config: CompilerConfig) -> dict[str, Any]:
    """inductor's own passes over collectives are off: they would undo ours, or price them by a GPU's numbers."""
    from torch._inductor import config as inductor
    from torch._inductor.custom_graph_pass import CustomGraphPass

    kind = type("Passes", (_Passes, CustomGraphPass), {})
    options: dict[str, Any] = {"post_grad_custom_post_pass": kind(config)}
    for name, value in (("bucket_all_gathers_fx", "none"), ("bucket_reduce_scatters_fx", "none"),
                        ("bucket_all_reduces_fx", "none"), ("reorder_for_compute_comm_overlap", False),
                        ("aten_distributed_optimizations.enable_overlap_scheduling", False),
                        ("aten_distributed_optimizations.simple_overlap", False)):
        place = functools.reduce(lambda at, part: getattr(at, part, None), name.split("."), inductor)
        if place is not None:
            options[name] = value
    options.update(config.inductor)
    return options


def get_backend(compiler_config: CompilerConfig | None = None) -> Callable:
    """For torch.compile(model, backend=...). Also makes the functions of torch.distributed traceable, as
    patch_for_hcom() does."""
    config = CompilerConfig() if compiler_config is None else compiler_config
    if not isinstance(config, CompilerConfig):
        raise TypeError(f"get_backend: compiler_config is a {type(config).__name__}; expected a tutti.graph.CompilerConfig")
    patch.install()

    def tutti(graph: torch.fx.GraphModule, example_inputs: Any) -> Callable:
        from torch._inductor.compile_fx import compile_fx

        ops.lower()
        return compile_fx(graph, example_inputs, config_patches=_with_passes(config))  # type: ignore[return-value]

    return tutti


get_npu_backend = get_backend  # the name that programs for other accelerators call
