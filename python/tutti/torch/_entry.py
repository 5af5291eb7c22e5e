"""The entry point. PyTorch calls it at the end of `import torch`, and when the name "tutti" is first used."""

from __future__ import annotations

import contextlib
import sys
from importlib import import_module


def load() -> None:
    """Imports tutti.torch, which registers itself."""
    import_module("tutti.torch")

    # Where the program imports tutti.torch before torch, the package is still being imported: it registers itself then.
    register = getattr(sys.modules["tutti.torch"], "register", None)
    if register is None:
        return
    register()
    # Beside the import of PyTorch it takes little, in the first init_process_group of many ranks much. What is wrong
    # with it is said there.
    with contextlib.suppress(ImportError):
        import_module("tutti.torch._module").backend()
