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
    master_listen_fd: int | None = None,
    use_libuv: bool = True,
) -> Any:
    """A store that one process serves and the others reach over TCP. Its `port` is the one that is listened on.

    master_listen_fd: a socket that is bound already, for the server, which owns it then. use_libuv: as torch's; the server
    always runs on libuv. ValueError names an argument that cannot be.
    """
    if world_size == 0:
        raise ValueError("TCPStore: world_size is 0; expected at least 1, or None")
    if master_listen_fd is not None and master_listen_fd < 0:
        raise ValueError(f"TCPStore: master_listen_fd is {master_listen_fd}; expected a descriptor, or None")
    store, bound = backend().tcp_store(
        host_name, port, world_size, is_master, timeout, wait_for_workers, multi_tenant, master_listen_fd
    )
    store.port, store.host, store.libuvBackend = bound, host_name, True
    return store
