"""The two helpers that ATB's test of AllToAllVV2 takes from its harness."""
from __future__ import annotations

import sys
from typing import Any, Sequence

__all__ = ["compute_out_tensor_dim1", "golden_compare"]


def compute_out_tensor_dim1(recvCounts: Sequence[int]) -> Any:
    """The input that tells the output's length: int8, as long as the sum of the counts, filled with 3. A tensor of
    PyTorch's where the program has imported it, else a NumPy array."""
    length = int(sum(recvCounts))
    torch = sys.modules.get("torch")
    if torch is not None:
        return torch.full((length,), 3, dtype=torch.int8)
    import numpy as np

    return np.full(length, 3, dtype=np.int8)


def golden_compare(output: Any, golden: Any, rtol: float = 1e-3, atol: float = 1e-3) -> bool:
    """Whether two arrays have equal types and equal numbers of elements, one as the other within the bounds; shapes do not
    matter, since the document's golden values have one dimension and its outputs two."""
    a, b = output.reshape(-1), golden.reshape(-1)
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if hasattr(a, "double"):  # PyTorch's
        a, b = a.double(), b.double()
    else:
        a, b = a.astype("float64"), b.astype("float64")
    return bool((abs(a - b) <= atol + rtol * abs(b)).all())
