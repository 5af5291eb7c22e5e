"""NCCL's tuning, as hfai names it: environment variables of this process, which NCCL's library reads when it is used
first, and never again. So it is called before the first group of the backend nccl is made, by tutti or by PyTorch; that
the library has been loaded (by `import torch`, or is_nccl_available()) does no harm. A later call sets the variables for
processes that this one starts, and warns. Native groups are not concerned.

Follows hfai.distributed.set_nccl_opt_level.
"""
from __future__ import annotations

import os
import pathlib
import sys
import warnings
from typing import Any, Callable

from ..distributed.backends import nccl_may_be_in_use
from ..errors import ArgumentTypeError, InvalidArgument

__all__ = ["HFAI_NCCL_OPT_LEVEL", "set_nccl_opt_level"]


class HFAI_NCCL_OPT_LEVEL:
    """The levels of set_nccl_opt_level."""

    DISABLED = 0
    """NCCL decides everything; what an earlier call has set is taken back."""
    AUTO = 1
    """What this machine surely has no use for is turned off: InfiniBand where there is no adapter."""
    FULL = 3
    """AUTO, and GPU-direct RDMA at every distance where the kernel offers it, and at least 4 channels."""
    COVER_AUTO = 10
    """AUTO, then what CUSTOM_CONFIG says."""
    CUSTOM = 101
    """What CUSTOM_CONFIG says."""


_LEVELS = {getattr(HFAI_NCCL_OPT_LEVEL, name): name for name in ("DISABLED", "AUTO", "FULL", "COVER_AUTO", "CUSTOM")}
_SYSTEM = pathlib.Path("/sys")
_set_by_us: dict[str, str | None] = {}  # variable: what it was before


def set_nccl_opt_level(OPT_LEVEL: int = 0, CUSTOM_CONFIG: dict[str, Any] | None = None) -> None:
    """Chooses a level of HFAI_NCCL_OPT_LEVEL; the last call counts. CUSTOM_CONFIG, for COVER_AUTO and CUSTOM:

    GRAPH_OPT      path of a file with a topology graph; also GRAPH_OPT_CUSTOM_FILE
    NCCL_ALGO      "Ring" or "Tree"
    NCCL_PROTO     "LL", "LL128" or "Simple"
    GDR            whether GPU-direct RDMA is used
    MIN_NCHANNELS, MAX_NCHANNELS   a str with an integer of at least 1

    InvalidArgument for another level, key or value, or a CUSTOM_CONFIG at another level; nothing is changed then. Variables
    that the user has set win over AUTO and FULL, not over CUSTOM_CONFIG. RuntimeWarning where NCCL may have read them
    already. Not thread-safe, as os.environ is not.
    """
    if OPT_LEVEL not in _LEVELS:
        raise InvalidArgument(f"set_nccl_opt_level: OPT_LEVEL is {OPT_LEVEL!r}: expected one of HFAI_NCCL_OPT_LEVEL, "
                              + ", ".join(f"{name} = {level}" for level, name in _LEVELS.items()))
    takes_config = OPT_LEVEL in (HFAI_NCCL_OPT_LEVEL.COVER_AUTO, HFAI_NCCL_OPT_LEVEL.CUSTOM)
    if CUSTOM_CONFIG and not takes_config:
        raise InvalidArgument(f"set_nccl_opt_level: CUSTOM_CONFIG is given at the level {_LEVELS[OPT_LEVEL]}: expected "
                              "it with COVER_AUTO or CUSTOM")
    custom = _variables_of(CUSTOM_CONFIG or {})
    if user := _user_of_nccl():
        warnings.warn(f"set_nccl_opt_level: {user} has made a group on NCCL, whose library keeps what it has read of its "
                      "variables: expected the call before the first such group", RuntimeWarning, stacklevel=2)
    _take_back()
    chosen = {}
    if OPT_LEVEL in (HFAI_NCCL_OPT_LEVEL.AUTO, HFAI_NCCL_OPT_LEVEL.FULL, HFAI_NCCL_OPT_LEVEL.COVER_AUTO):
        chosen = _variables_of_this_machine(OPT_LEVEL == HFAI_NCCL_OPT_LEVEL.FULL)
    for name, value in (chosen | custom).items():
        if name in os.environ and name not in custom:
            continue
        _set_by_us[name] = os.environ.get(name)
        os.environ[name] = value


def _user_of_nccl() -> str:
    if nccl_may_be_in_use():
        return "tutti"
    torch = sys.modules.get("torch.distributed")
    if torch is not None and torch.is_available() and torch.is_initialized() and "nccl" in str(torch.get_backend()):
        return "PyTorch"
    return ""


def _take_back() -> None:
    for name, before in _set_by_us.items():
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before
    _set_by_us.clear()


def _variables_of_this_machine(full: bool) -> dict[str, str]:
    adapters = _SYSTEM / "class/infiniband"
    has_adapter = adapters.is_dir() and any(adapters.iterdir())
    chosen = {} if has_adapter else {"NCCL_IB_DISABLE": "1"}
    if full:
        chosen["NCCL_MIN_NCHANNELS"] = "4"
        if has_adapter and any((_SYSTEM / "module" / name).is_dir() for name in ("nvidia_peermem", "nv_peer_mem")):
            chosen["NCCL_NET_GDR_LEVEL"] = "SYS"
    return chosen


def _variables_of(config: dict[str, Any]) -> dict[str, str]:
    if not isinstance(config, dict):
        raise ArgumentTypeError(f"set_nccl_opt_level: CUSTOM_CONFIG is of type {type(config).__name__}: expected a dict")
    variables = {}
    for key, value in config.items():
        if key not in _KEYS:
            raise InvalidArgument(f"set_nccl_opt_level: CUSTOM_CONFIG has the key {key!r}: expected " + ", ".join(_KEYS))
        variable, expected, text = _KEYS[key]
        translated = text(value)
        if translated is None:
            raise InvalidArgument(f"set_nccl_opt_level: CUSTOM_CONFIG[{key!r}] is {value!r}: expected {expected}")
        variables[variable] = translated
    return variables


def _one_of(*choices: str) -> Callable[[Any], str | None]:
    return lambda value: value if value in choices else None


def _path(value: Any) -> str | None:
    return str(value) if isinstance(value, (str, os.PathLike)) and str(value) else None


def _channels(value: Any) -> str | None:
    return value if isinstance(value, str) and value.isdecimal() and int(value) >= 1 else None


def _gdr(value: Any) -> str | None:
    return None if not isinstance(value, bool) else "SYS" if value else "LOC"


_KEYS: dict[str, tuple[str, str, Callable[[Any], str | None]]] = {  # NCCL's variable, what is expected, its text
    "GRAPH_OPT": ("NCCL_GRAPH_FILE", "the path of a file", _path),
    "GRAPH_OPT_CUSTOM_FILE": ("NCCL_GRAPH_FILE", "the path of a file", _path),
    "NCCL_ALGO": ("NCCL_ALGO", "'Ring' or 'Tree'", _one_of("Ring", "Tree")),
    "NCCL_PROTO": ("NCCL_PROTO", "'LL', 'LL128' or 'Simple'", _one_of("LL", "LL128", "Simple")),
    "GDR": ("NCCL_NET_GDR_LEVEL", "True or False", _gdr),
    "MIN_NCHANNELS": ("NCCL_MIN_NCHANNELS", "a str with an integer of at least 1", _channels),
    "MAX_NCHANNELS": ("NCCL_MAX_NCHANNELS", "a str with an integer of at least 1", _channels),
}
