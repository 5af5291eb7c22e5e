"""tutti's stores as torch.distributed.Store: for init_process_group(store=...), and by themselves.

Every connection of a TCPStore proves the job's secret (TUTTI_JOB_SECRET; one host needs none). All have the extended API
and queues, and may be used from several threads at once: a wait holds up nobody else.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from ._module import backend

_DEFAULT = timedelta(seconds=300)


def HashStore(timeout: timedelta = _DEFAULT) -> Any:
    """A store in the memory of this process, for its threads."""
    return backend().hash_store(timeout)


def FileStore(file_name: str, world_size: int = -1, timeout: timedelta = _DEFAULT) -> Any:
    """A store in a file that all ranks can lock. world_size: how many use it; the last one removes the file."""
    return backend().file_store(file_name, world_size, timeout)


def TCPStore(
    host_name: str,
    port: int,
    world_size: int | None = None,
    is_master: bool = False,
    timeout: timedelta = _DEFAULT,
    wait_for_workers: bool = True,
    multi_tenant: bool = False,
) -> Any:
    """A store that one process serves and the others reach over TCP. Its `port` is the one that is listened on."""
    store, store.port = _tcp(host_name, port, world_size, is_master, timeout, wait_for_workers, multi_tenant)
    store.host = host_name
    return store


def _tcp(host: str, port: int, world_size: int | None, master: bool, timeout: timedelta, wait: bool, multi: bool) -> Any:
    return backend().tcp_store(host, port, world_size, master, timeout, wait, multi)
