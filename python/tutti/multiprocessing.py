"""spawn(), and notebook_launcher() for notebooks: run a function on n ranks, each in a process of its own. Follow
torch.multiprocessing.spawn and accelerate.notebook_launcher.

    def train(rank, epochs):
        dist.init_process_group()
        ...

    if __name__ == "__main__":
        tutti.multiprocessing.spawn(train, args=(10,), nprocs=4)

A rank that says none to init_process_group gets its own of spawn, and the world of spawn's ranks, whatever job the caller is in. A
rank that says its rank, world_size, store or init_method has its way: to make the ranks a part of a larger world, it gives all of
them and sets MASTER_ADDR and MASTER_PORT.
"""
from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any, Callable

from .errors import DistError, InvalidArgument

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

__all__ = ["ProcessContext", "ProcessException", "ProcessExitedException", "ProcessRaisedException", "SpawnContext",
           "notebook_launcher", "spawn", "start_processes"]


class ProcessException(DistError):
    """A rank failed; `error_index` is its number."""

    def __init__(self, msg: str, error_index: int, error_pid: int) -> None:
        super().__init__(msg)
        self.code = "peer_lost"
        self.msg, self.error_index, self.error_pid, self.pid = msg, error_index, error_pid, error_pid


class ProcessRaisedException(ProcessException):
    """A rank's function raised; the message has its traceback."""


class ProcessExitedException(ProcessException):
    """A rank's process ended by a signal, or with a status other than 0."""

    def __init__(self, msg: str, error_index: int, error_pid: int, exit_code: int,
                 signal_name: str | None = None) -> None:
        super().__init__(msg, error_index, error_pid)
        self.exit_code, self.signal_name = exit_code, signal_name


def _run(fn: Callable[..., object], index: int, nprocs: int, args: tuple[Any, ...], meeting_file: str, error_file: str,
         parent: int) -> None:
    from ._core import become_spawned_rank

    if parent:
        _end_with_parent(parent)
    else:
        _end_with_grandparent()
    try:
        become_spawned_rank(index, nprocs, meeting_file)
        fn(index, *args)
    except KeyboardInterrupt:
        pass  # the parent has got it too
    except Exception:
        import traceback

        with open(error_file, "w", encoding="utf-8") as file:
            file.write(traceback.format_exc())
        sys.exit(1)


def _end_with_parent(parent: int) -> None:
    """The kernel ends this process when its parent's main thread is gone."""
    import ctypes
    import signal

    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


def _end_with_grandparent() -> None:
    """The same where a server of multiprocessing's is the parent, by a thread that waits for who asked it."""
    import multiprocessing
    import signal
    import threading

    asked = multiprocessing.parent_process()
    if asked is None:
        return

    def watch() -> None:
        asked.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True, name="tutti-parent").start()


class ProcessContext:
    """Ranks that run."""

    def __init__(self, processes: list[BaseProcess], error_files: list[str], meeting_file: str = "") -> None:
        self.processes, self.error_files, self._meeting_file = processes, error_files, meeting_file
        self._failed: ProcessException | None = None

    def pids(self) -> list[int]:
        """One for each rank."""
        return [int(process.pid or 0) for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """True: all ranks have returned. False: `timeout` seconds passed first. When one fails the others are ended,
        with SIGTERM and `grace_period` seconds later (30 if None) with SIGKILL, and ProcessRaisedException or
        ProcessExitedException tells of the first that failed."""
        from multiprocessing import connection

        if self._failed is not None:
            raise self._failed
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            running = [process for process in self.processes if process.exitcode is None]
            failed = next((i for i, p in enumerate(self.processes) if p.exitcode not in (None, 0)), None)
            if failed is not None:
                self._end(running, 30.0 if grace_period is None else grace_period)
                self._failed = self._exception(failed)
                self._remove_files()
                raise self._failed
            if not running:
                self._remove_files()
                return True
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            connection.wait([process.sentinel for process in running], left)
            for process in running:
                process.join(0)

    @staticmethod
    def _end(processes: list[BaseProcess], grace_period: float) -> None:
        for process in processes:
            process.terminate()
        until = time.monotonic() + grace_period
        for process in processes:
            process.join(max(0.0, until - time.monotonic()))
            if process.exitcode is None:
                process.kill()
                process.join()

    def _exception(self, index: int) -> ProcessException:
        process = self.processes[index]
        pid, code = int(process.pid or 0), int(process.exitcode or 0)
        if code < 0:
            import signal

            name = signal.Signals(-code).name
            return ProcessExitedException(f"process {index} terminated with signal {name}", index, pid, code, name)
        if os.path.getsize(self.error_files[index]) > 0:
            with open(self.error_files[index], encoding="utf-8") as file:
                trace = file.read()
            return ProcessRaisedException(
                f"\n\n-- Process {index} terminated with the following error:\n{trace}", index, pid)
        return ProcessExitedException(f"process {index} terminated with exit code {code}", index, pid, code)

    def _remove_files(self) -> None:
        for file in (*self.error_files, self._meeting_file):
            if os.path.exists(file):
                os.unlink(file)


SpawnContext = ProcessContext


def start_processes(fn: Callable[..., object], args: tuple[Any, ...] = (), nprocs: int = 1, join: bool = True,
                    daemon: bool = False, start_method: str = "spawn") -> ProcessContext | None:
    """As spawn(), with any of multiprocessing's start methods: spawn, fork, forkserver. With fork the ranks begin with a
    copy of this process: call it before joining a group, of which a child can make no use, and before starting threads."""
    import multiprocessing
    import tempfile

    if nprocs < 1:
        raise InvalidArgument(f"spawn: nprocs is {nprocs}: expected 1 or more")
    if not callable(fn):
        raise InvalidArgument(f"spawn: fn is of type {type(fn).__name__}: expected a function")
    if start_method != "fork" and _is_interactive(fn):
        raise InvalidArgument(f"spawn: fn is defined in a notebook or an interactive session, from which a process that is "
                              f"started by {start_method} cannot import it: expected a function of a module; or type "
                              "tutti.notebook_launcher(fn, nprocs), which forks")
    context = multiprocessing.get_context(start_method)
    processes: list[BaseProcess] = []
    files: list[str] = []

    def new_file() -> str:
        handle, name = tempfile.mkstemp(prefix="tutti-spawn-")
        os.close(handle)
        return name

    meeting_file = new_file()
    for index in range(nprocs):
        files.append(new_file())
        process = context.Process(  # type: ignore[attr-defined]
            target=_run, daemon=daemon,
            args=(fn, index, nprocs, args, meeting_file, files[index], 0 if start_method == "forkserver" else os.getpid()))
        process.start()
        processes.append(process)
    ranks = ProcessContext(processes, files, meeting_file)
    if not join:
        return ranks
    try:
        while not ranks.join():
            pass
    except KeyboardInterrupt:
        ranks._end([process for process in processes if process.exitcode is None], 5.0)
        ranks._remove_files()
        raise
    return None


def _is_interactive(fn: Callable[..., object]) -> bool:
    """Whether `fn` is of a __main__ that has no file."""
    main = sys.modules["__main__"]
    if getattr(getattr(fn, "func", fn), "__module__", "") != "__main__" or getattr(main, "__spec__", None) is not None:
        return False
    return not os.path.exists(getattr(main, "__file__", None) or "")


def _call(_: int, fn: Callable[..., object], *args: Any) -> None:
    fn(*args)


def notebook_launcher(fn: Callable[..., object], nprocs: int, *args: Any) -> None:
    """Runs fn(*args) on `nprocs` ranks, from a notebook: the ranks are forks of its kernel, so `fn` may be defined in a
    cell, and sees what cells have made. What it changes is gone with the ranks.

    `fn` calls init_process_group() itself, without arguments, and finds its rank by get_rank(). When a rank fails the
    others are ended. The cell's Ctrl-C (interrupting the kernel) ends all.

    Args:
        fn: a function, of a cell too.
        nprocs: how many ranks.
        args: what `fn` gets.

    Raises:
        InvalidArgument: the kernel has joined a group or used a CUDA device, neither of which a fork can use. The message
            says what to do.
        ProcessRaisedException, ProcessExitedException: of the first rank that failed.

    Warns:
        RuntimeWarning: threads run that are not the kernel's own. A fork has none of them, and waits forever for a lock
            that one of them holds.

    Example:
        >>> def train(epochs):
        ...     dist.init_process_group()
        ...     x = np.ones(3)
        ...     dist.all_reduce(x)
        ...     assert x[0] == dist.get_world_size()
        >>> tutti.notebook_launcher(train, 2, 10)
    """
    from ._core import is_initialized

    if is_initialized():
        raise InvalidArgument(
            "notebook_launcher: this kernel has called init_process_group itself, and its forks, the ranks, can make no use "
            "of a group that they inherit: call tutti.distributed.destroy_process_group() in a cell (or restart the kernel), "
            "and init_process_group() in the function alone")
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is not None and cuda.is_initialized():
        raise InvalidArgument("notebook_launcher: this kernel has used a CUDA device, and CUDA does not work in forks of such a "
                              "process: restart the kernel, and touch devices in the function alone")
    _warn_of_threads()
    start_processes(_call, (fn, *args), nprocs, start_method="fork")


def _warn_of_threads() -> None:
    import threading

    of_kernels = ("ipykernel", "IPython", "tornado", "zmq", "jupyter_client", "anyio")
    names = [thread.name for thread in threading.enumerate()
             if thread is not threading.main_thread() and thread is not threading.current_thread()
             and not type(thread).__module__.startswith(of_kernels)
             and not getattr(getattr(thread, "_target", None), "__module__", "").startswith(of_kernels)
             and thread.name not in ("IOPub", "Control", "Heartbeat", "Shell channel", "Parent Poller Unix")]
    if names:
        import warnings

        warnings.warn(f"notebook_launcher: threads run in this kernel ({', '.join(names)}). The ranks are forks, which have "
                      "none of them, and wait forever for a lock that one of them holds: end them first, or start them in "
                      "the function", RuntimeWarning, 3)


def spawn(fn: Callable[..., object], args: tuple[Any, ...] = (), nprocs: int = 1, join: bool = True,
          daemon: bool = False, start_method: str = "spawn") -> ProcessContext | None:
    """Starts `nprocs` processes that call fn(i, *args), i from 0.

    With `join` it waits for all; when one fails the others are ended, and ProcessRaisedException or
    ProcessExitedException tells of the first that failed. Otherwise it returns a ProcessContext. The processes end with
    the one that started them. `fn` must be importable, and the script guard its calls with __name__ == "__main__"; from a
    notebook there is notebook_launcher().
    """
    return start_processes(fn, args, nprocs, join, daemon, start_method)
