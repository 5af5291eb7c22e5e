"""What PyTorch puts around a backend or looks at in it: the wrapper of TORCH_DISTRIBUTED_DEBUG=DETAIL, the profiler, the names
and options of groups, per-call timeouts, splitting."""

import os
import subprocess
import sys
import unittest
from datetime import timedelta

import ranks
import torch
import torch._dynamo  # noqa: F401: PyTorch loads it for the wrapper and the profiler; forked ranks need not
import torch.distributed as dist
from failures_test import expect, message_of

CPU = torch.device("cpu")


def detail(rank: int, n: int, name: str, path: str) -> None:
    """Each collective is compared between the ranks first; a mismatch is an error with both sides, on every rank."""
    os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    if name == "gloo":
        import tutti.torch

        tutti.torch.replace_gloo()
    dist.init_process_group(name, init_method=f"file://{path}", rank=rank, world_size=n)
    backend = dist.group.WORLD._get_backend(CPU)
    assert type(backend).__name__ == "_ProcessGroupWrapper", type(backend)
    x = torch.full((3,), float(rank))
    dist.all_reduce(x)
    assert x.eq(n * (n - 1) / 2).all()
    out = torch.empty(n)
    dist.all_gather_into_tensor(out, torch.tensor([float(rank)]))
    assert torch.equal(out, torch.arange(n).float())
    if name == "tutti":  # under gloo's name DDP's logger takes the wrapper for ProcessGroupGloo, also around gloo itself
        net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
        net(torch.ones(2, 4)).sum().backward()
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    if rank == 0:
        dist.send(x, 1)
    if rank == 1:
        dist.recv(x, 0)
    dist.barrier()
    expect(message_of(dist.all_reduce, torch.ones(3 + rank)), "Detected mismatch between collectives on ranks")


def profiled(rank: int, n: int, name: str, path: str) -> None:
    if name == "gloo":
        import tutti.torch

        tutti.torch.replace_gloo()
    dist.init_process_group(name, init_method=f"file://{path}", rank=rank, world_size=n)
    x, parts = torch.ones(4), [torch.ones(4) for _ in range(n)]
    out = torch.empty(4 * n)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profiler:
        dist.all_reduce(x)
        dist.all_reduce(x, async_op=True).wait()
        dist.broadcast(x, 0)
        dist.reduce(x, 0)
        dist.all_gather(parts, x)
        dist.all_gather_into_tensor(out, x)
        dist.gather(x, parts if rank == 0 else None)
        dist.scatter(x, parts if rank == 0 else None)
        dist.reduce_scatter_tensor(x, out)
        dist.all_to_all_single(out, out.clone())
        dist.send(x, 1) if rank == 0 else dist.recv(x, 0) if rank == 1 else None
        dist.barrier()
    counts = {event.key: event.count for event in profiler.key_averages()}
    for operation, count in (("all_reduce", 2), ("broadcast", 1), ("reduce", 1), ("all_gather", 2), ("gather", 1),
                             ("scatter", 1), ("reduce_scatter", 1), ("all_to_all", 1), ("barrier", 1)):
        assert counts.get(f"{name}:{operation}") == count, (operation, count, counts)
    assert rank > 1 or counts.get(f"{name}:{'send' if rank == 0 else 'recv'}") == 1, counts
    event = next(event for event in profiler.events() if event.name == f"{name}:broadcast")
    assert event.input_shapes == [[4]], event.input_shapes


def options(rank: int, n: int, path: str) -> None:
    import tutti.torch

    given = tutti.torch.Options(transport="tcp", determinism="run_to_run")
    dist.init_process_group("tutti", init_method=f"file://{path}", rank=rank, world_size=n, timeout=timedelta(seconds=17),
                            pg_options=given)
    backend = dist.group.WORLD._get_backend(CPU)
    found = backend.options
    assert (found.transport, found.determinism, found._timeout) == ("tcp", "run_to_run", timedelta(seconds=17))
    assert found.global_ranks_in_group == list(range(n)) and found.group_name == "0" and found.backend == "tutti"
    for name, value in (("transport", "ib"), ("determinism", "never")):
        expect(message_of(tutti.torch.Options, **{name: value}), "ValueError", f"Options.{name}", value, "expected")
    expect(message_of(dist.new_group, pg_options=dist.Backend._plugins), "TypeError", "pg_options", "Options")
    backend.set_timeout(timedelta(seconds=5))
    assert backend.options._timeout == timedelta(seconds=5)
    # a limit of one call's own
    if rank == 0:
        own = dist.AllreduceOptions()
        own.timeout = timedelta(milliseconds=150)
        expect(message_of(lambda: backend.allreduce([torch.ones(1)], own).wait()), "DistBackendError", "Timed out")
    else:
        import time

        time.sleep(1)


def refused_group(rank: int, n: int) -> None:
    """A group that has been left refuses what is asked of it."""
    pair = dist.new_group(list(range(n)))
    backend = pair._get_backend(CPU)
    dist.all_reduce(torch.ones(1), group=pair)
    dist.destroy_process_group(pair)
    expect(message_of(dist.all_reduce, torch.ones(1), group=pair), "ValueError")  # PyTorch itself
    expect(message_of(lambda: backend.allreduce([torch.ones(1)]).wait()), "all_reduce", f"rank {rank}", "destroyed")
    expect(message_of(lambda: backend.barrier().wait()), "barrier", f"rank {rank}", "destroyed")


class Wrapped(unittest.TestCase):
    def each(self, function, *arguments, count: int = 2) -> None:
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            ranks.run(count, function, *arguments, os.path.join(folder, "store"), backend=None)

    def test_debug_level_detail(self) -> None:
        for name in ("tutti", "gloo"):
            with self.subTest(name):
                self.each(detail, name)

    def test_the_profiler_shows_operations(self) -> None:
        for name in ("tutti", "gloo"):
            with self.subTest(name):
                self.each(profiled, name, count=3)

    def test_options_and_timeouts(self) -> None:
        self.each(options)

    def test_a_group_that_has_been_left(self) -> None:
        ranks.run(2, refused_group)

    def test_the_tutti_rendezvous(self) -> None:
        port = ranks.free_port()
        program = ("import torch, torch.distributed as dist, sys\n"
                   f"dist.init_process_group('tutti', init_method='tutti://127.0.0.1:{port}?rank=' + sys.argv[1] + "
                   "'&world_size=2')\n"
                   "x = torch.ones(2); dist.all_reduce(x); print(x.tolist())\n")
        started = [subprocess.Popen([sys.executable, "-c", program, str(rank)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                    text=True) for rank in range(2)]
        for process in started:
            out, error = process.communicate(timeout=60)
            self.assertEqual((process.returncode, out), (0, "[2.0, 2.0]\n"), error)
        for address, word in (("tutti://127.0.0.1", "HOST:PORT"), (f"tutti://127.0.0.1:{port}?rank=x&world_size=2", "'x'"),
                              (f"tutti://127.0.0.1:{port}?rank=0", "world_size")):
            with self.assertRaisesRegex(ValueError, word):
                next(dist.rendezvous(address))


if __name__ == "__main__":
    unittest.main()
