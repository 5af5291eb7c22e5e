"""What the modules for Ray, Dask and Spark share: rank 0, or a process that outlives the ranks, serves a store, and the engine's
own channel carries an invitation with the job's secret to the others; an error that is about a rank says what the engine calls it.
"""
from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

from . import distributed as dist
from ._core import Store, TCPStore
from .distributed import resilience
from .errors import DistError, DistStoreError

__all__ = ["Invitation", "accept", "member", "naming", "serve"]


@dataclass(frozen=True)
class Invitation:
    """Where the store of a job is, and what opens it."""

    host: str
    port: int
    secret: str

    def to_text(self) -> str:
        return f"{self.host} {self.port} {self.secret}"

    @classmethod
    def from_text(cls, text: str) -> Invitation:
        words = text.split()
        if len(words) != 3 or not words[1].isdigit():
            raise DistStoreError("what the engine keeps for this group is no invitation: expected HOST PORT SECRET")
        return cls(words[0], int(words[1]), words[2])

    def __repr__(self) -> str:  # the secret stays out of logs
        return f"<Invitation to {self.host} port {self.port}>"


def serve(host: str, timeout: timedelta | None = None) -> tuple[TCPStore, Invitation]:
    """A store on a free port of `host`, by which the others reach this process."""
    secret = secrets.token_hex(32)
    store = TCPStore(host, 0, is_master=True, timeout=timeout, secret=secret)
    return store, Invitation(host, store.port, secret)


def accept(invitation: Invitation, timeout: timedelta | None = None) -> TCPStore:
    """The others: that store."""
    return TCPStore(invitation.host, invitation.port, timeout=timeout, secret=invitation.secret)


@contextmanager
def naming(names: Sequence[str]) -> Iterator[None]:
    """Adds to an error what the engine calls the ranks that it speaks of: names[rank]."""
    try:
        yield
    except DistError as error:
        text = str(error)
        ranks = [int(number) for number in re.findall(r"\brank (\d+)\b", text)] + [error.peer]
        known = [rank for rank in dict.fromkeys(ranks) if 0 <= rank < len(names)][:8]
        if known:
            error.args = (text + "".join(f"\n  rank {rank} is {names[rank]}" for rank in known), *error.args[1:])
        raise


@contextmanager
def member(store: Store, rank: int, world_size: int, timeout: timedelta) -> Iterator[None]:
    """Within it this process is a rank of a job whose `store` outlives the ranks. When `rank` has begun before, it has died since,
    and this process waits until the others take it in.
    """
    if store.add(f"begun/{rank}", 1) == 1:
        dist.init_process_group(store=store, rank=rank, world_size=world_size, timeout=timeout)
    else:
        dist.set_default_group(dist.join(store, timeout=timeout))
    resilience._place_of_engine = store
    try:
        yield
    finally:
        resilience._place_of_engine = None
        if dist.is_initialized():
            dist.destroy_process_group()
