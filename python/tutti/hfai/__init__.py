"""hfai's names."""
from . import distributed

__all__ = ["distributed"]
