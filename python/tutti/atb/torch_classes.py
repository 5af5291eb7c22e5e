"""import tutti.atb.torch_classes: torch.classes.OperationTorch.OperationTorch is tutti.atb.OperationTorch from then on.

ATB's tests load a library that puts the class there; with this import in its place they run on tutti.
"""
from __future__ import annotations

import importlib
import types

from . import OperationTorch

torch = importlib.import_module("torch")
torch.classes.OperationTorch = types.SimpleNamespace(OperationTorch=OperationTorch)
