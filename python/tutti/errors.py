"""The one family of exceptions that tutti raises: what was asked for is impossible (InvalidArgument, before anything is
sent), or the world failed. All are RuntimeErrors, as torch.distributed's are.
"""
from __future__ import annotations

__all__ = [
    "Aborted", "ArgumentTypeError", "AtbError", "CollectiveMismatch", "DistBackendError", "DistError", "DistNetworkError",
    "DistStoreError", "HostRead", "InternalError", "InvalidArgument", "ObjectError", "PeerLost", "PickleWarning", "Timeout",
]


class DistError(RuntimeError):
    """Base of all. What is known about the failure; what does not apply keeps its default."""

    code: str = "unknown"
    """A short stable name: invalid_argument, timeout, peer_lost, collective_mismatch, network, store, backend,
    aborted, interrupted, security, not_initialized, internal."""
    operation: str = ""
    sequence: int = 0
    """Number of the operation in its group, from 1; 0: none."""
    group: str = ""
    rank: int = -1
    """The rank that raises, in the group."""
    peer: int = -1
    """The rank it is about, in the group."""
    hint: str = ""
    """What to do; empty: nothing, or it is not known."""


class DistBackendError(DistError):
    """A backend failed; the base of everything that ends a collective."""

    code = "backend"


class DistNetworkError(DistError):
    """The network failed: refused, reset, unreachable, not authenticated."""

    code = "network"


class DistStoreError(DistError):
    """A store failed: timed out, lost its server, was misused."""

    code = "store"


class InvalidArgument(DistError, ValueError):
    """The caller asked for something impossible; raised before any communication."""

    code = "invalid_argument"

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        message = str(self)  # "…: expected …", or "…; call this first"
        _, expected, what = message.rpartition("expected ")
        self.hint = expected + what if expected else message.rpartition("; ")[2] if "; " in message else ""


class ArgumentTypeError(InvalidArgument, TypeError):
    """An argument is of a type that cannot be used."""


class ObjectError(InvalidArgument):
    """An object cannot be sent, or what came is no valid object. `path` leads to the place, "[2].name"; empty: the
    object itself."""

    path: str = ""
    reason: str = ""

    @classmethod
    def at(cls, path: str, reason: str) -> ObjectError:
        error = cls(f"{path or 'object'}: {reason}")
        error.path, error.reason = path, reason
        return error


class AtbError(InvalidArgument):
    """tutti.atb refuses a call, before anything moves. `code` is ATB's name: ERROR_INVALID_PARAM,
    ERROR_INVALID_IN_TENSOR_NUM, ERROR_INVALID_TENSOR_DTYPE, ERROR_INVALID_TENSOR_DIM or ERROR_INVALID_TENSOR_ADDR."""


class HostRead(InvalidArgument):
    """A captured array was read while its graph was being captured (tutti.graph): its value does not exist yet."""

    read_at: str = ""
    """The call site of the read."""
    written_at: str = ""
    """That of the captured call that writes it."""


class CollectiveMismatch(DistBackendError):
    """The ranks called different collectives, or the same with other arguments. Every rank raises it."""

    code = "collective_mismatch"


class PeerLost(DistBackendError):
    """A rank died, left or cannot be reached; `peer` names it."""

    code = "peer_lost"


class Timeout(DistBackendError):
    """A deadline passed."""

    code = "timeout"


class Aborted(DistBackendError):
    """The group was aborted or destroyed while the operation ran, or a signal ended the wait."""

    code = "aborted"


class InternalError(DistError):
    """A bug in tutti: please report it with the message."""

    code = "internal"


class PickleWarning(UserWarning):
    """Pickle was opened: whoever can send to this process can run code in it."""
