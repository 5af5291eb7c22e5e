"""tutti://HOST:PORT[?rank=R&world_size=N] as init_method: ranks meet in tutti's own store. RANK and WORLD_SIZE of the
environment fill in what the address leaves out; rank 0 serves the store."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any, Iterator
from urllib.parse import parse_qs, urlparse

from torch.distributed import register_rendezvous_handler

_registered = False


def _number(name: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise ValueError(f"tutti:// rendezvous: {name} is {value!r}; expected a number") from None


def _handler(url: str, timeout: timedelta = timedelta(minutes=30), **_: Any) -> Iterator[tuple[Any, int, int]]:
    from .stores import TCPStore

    parts = urlparse(url)
    query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    if not parts.hostname or parts.port is None:
        raise ValueError(f"tutti:// rendezvous: {url!r}; expected tutti://HOST:PORT")
    found = []
    for name in ("rank", "world_size"):
        value = query.get(name, os.environ.get(name.upper()))
        if value is None:
            raise ValueError(f"tutti:// rendezvous: no {name}; expected ?{name}=... or {name.upper()} in the environment")
        found.append(_number(name, value))
    rank, world_size = found
    yield TCPStore(parts.hostname, parts.port, world_size, rank == 0, timeout), rank, world_size
    raise RuntimeError("tutti:// rendezvous: ranks cannot meet a second time; start the job again")


def register() -> None:
    """Makes tutti:// known to torch.distributed. Once: PyTorch refuses a second time."""
    global _registered
    if not _registered:
        register_rendezvous_handler("tutti", _handler)
    _registered = True
