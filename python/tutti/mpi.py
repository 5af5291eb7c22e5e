"""MPI: init(comm) makes the processes of a communicator of mpi4py the ranks of a job, beside MPI.

    from mpi4py import MPI
    import tutti.distributed as dist, tutti.mpi

    tutti.mpi.init(MPI.COMM_WORLD)
    dist.all_reduce(gradient)
    dist.destroy_process_group()

tutti's rank is the communicator's. MPI carries the address of rank 0 and the job's secret, by a broadcast, so they are as safe
as MPI's own connections, and nobody finds them on a command line or in the environment. The data takes tutti's ways; the
backend "mpi" is what moves it by MPI.
"""
from __future__ import annotations

import os
import socket
from datetime import timedelta
from typing import Any

from . import distributed as dist
from ._core import TCPStore
from ._engines import Invitation, accept, serve
from .errors import DistError, InvalidArgument

__all__ = ["init"]


def init(comm: Any = None, backend: str | None = None, timeout: timedelta = timedelta(minutes=5)) -> None:
    """Makes the default group of all processes of `comm` (None: MPI.COMM_WORLD); all of them call it. `backend`: as
    dist.init_process_group's. `timeout`: of joining, and of every operation that gives none. Where rank 0's host has several
    networks, MASTER_ADDR in its environment names the address by which the others reach it.
    """
    from mpi4py import MPI  # type: ignore[import-not-found,unused-ignore]

    comm = MPI.COMM_WORLD if comm is None else comm
    if not isinstance(comm, MPI.Intracomm) or comm == MPI.COMM_NULL:
        raise InvalidArgument(f"tutti.mpi.init: comm={comm!r}: expected a communicator of mpi4py that this process is in, such "
                              "as MPI.COMM_WORLD")
    rank, size = comm.Get_rank(), comm.Get_size()
    found = comm.gather((MPI.Get_processor_name(), dist.is_initialized()))
    store: TCPStore | None = None
    answer: Invitation | DistError | None = None
    if found is not None:  # the others learn it too, instead of waiting for this rank
        hosts = [host for host, _ in found]
        taken = [number for number, (_, has_group) in enumerate(found) if has_group]
        try:
            if taken:
                answer = InvalidArgument(f"tutti.mpi.init: rank {taken[0]} of the communicator ({len(taken)} in all) has a default "
                                         "group already: expected destroy_process_group() before")
            else:
                store, answer = serve(_address(hosts), timeout)
        except (DistError, OSError) as error:
            answer = DistError(f"tutti.mpi.init: rank 0 could not serve the store of this group: {error}")
    answer = comm.bcast(answer)
    if not isinstance(answer, Invitation):
        assert answer is not None
        raise answer
    if store is None:
        store = accept(answer, timeout)
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timeout)


# The address of this host, rank 0's, by which the others reach it. On Debian its own name is 127.0.1.1 at home, so the system
# is asked for the way to another host; nothing is sent for that.
def _address(hosts: list[str]) -> str:
    named = os.environ.get("MASTER_ADDR")
    if named:
        return named
    others = [host for host in hosts if host != hosts[0]]
    if not others:
        return "127.0.0.1"
    for host in dict.fromkeys(others):
        try:
            found = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)
        except OSError:
            continue
        for family, kind, protocol, _, address in found:
            with socket.socket(family, kind, protocol) as probe:
                try:
                    probe.connect(address)
                except OSError:
                    continue
                own = str(probe.getsockname()[0])
                if not own.startswith("127.") and own != "::1":
                    return own
    return hosts[0]
