"""How the benchmarks of this folder time a call that all ranks make."""

from __future__ import annotations

import statistics
import time
from typing import Any, Callable

import torch
import torch.distributed as dist


def timed(function: Callable[[], Any], seconds: float = 0.4, warm: int = 3, least: int = 5) -> float:
    """The median time of a call, in microseconds; all ranks make equally many calls, `least` or more, after `warm` others."""
    for _ in range(warm):
        function()
    began = time.perf_counter()
    function()
    count = torch.tensor([max(least, min(2000, int(seconds / max(time.perf_counter() - began, 1e-6))))])
    dist.broadcast(count, 0)
    times = []
    for _ in range(int(count)):
        began = time.perf_counter()
        function()
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e6
