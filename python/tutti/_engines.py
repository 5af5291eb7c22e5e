"""What the modules for Ray, Dask and Spark share: rank 0 serves a store, and the engine's own channel carries an invitation
with the job's secret to the others; an error that is about a rank says what the engine calls it.
"""
from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

from ._core import TCPStore
from .errors import DistError, DistStoreError

__all__ = ["Invitation", "accept", "naming", "serve"]


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
    """Rank 0: a store on a free port of `host`, by which the others reach this process."""
    secret = secrets.token_hex(32)
    store = TCPStore(host, 0, is_master=True, timeout=timeout, secret=secret)
    return store, Invitation(host, store.port, secret)


def accept(invitation: Invitation, timeout: timedelta | None = None) -> TCPStore:
    """The other ranks: the store that rank 0 serves."""
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
