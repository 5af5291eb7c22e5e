"""Ctrl-C ends every wait within 100 ms; forks and spawned processes; the interpreter ends with work pending."""
import multiprocessing
import multiprocessing.util
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from datetime import timedelta

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import numpy as np
from ranks import free_port, run_ranks
from rows import main, rows

import tutti
import tutti.distributed as dist
from tutti.futures import Future


def interrupted(wait):
    """Seconds from SIGINT, 0.15 s after the wait began, to KeyboardInterrupt."""
    sent, begins = [], threading.Event()

    def interrupt():
        begins.wait()  # start() itself may take as long
        time.sleep(0.15)
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        begins.set()
        wait()
        return "it came back"
    except KeyboardInterrupt:
        return time.monotonic() - sent[0]
    finally:
        thread.join()


def scratch():
    """A folder that goes with the process."""
    folder = tempfile.TemporaryDirectory()
    multiprocessing.util.Finalize(None, folder.cleanup, exitpriority=0)
    return folder.name


def store_waits():
    """By name: waits of stores for what never comes."""
    folder = scratch()
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    file = dist.FileStore(os.path.join(folder, "store"), -1)
    waits = {"TCPStore, for workers": lambda: dist.TCPStore("127.0.0.1", 0, 2, True),
             "TCPStore, for a server": lambda: dist.TCPStore("127.0.0.1", free_port(), 2, False)}
    for store in (dist.HashStore(), file, server, dist.PrefixStore("p", server),
                  dist.TCPStore("127.0.0.1", server.port)):
        name = f"{type(store).__name__} {store!r}"
        waits[f"{name}.get"] = lambda store=store: store.get("none")
        waits[f"{name}.wait"] = lambda store=store: store.wait(["none"])
        waits[f"{name}.multi_get"] = lambda store=store: store.multi_get(["none", "nothing"])
    return waits


def init_waits():
    """By name: joining a group whose other rank never comes."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()), RANK="0", WORLD_SIZE="2")
    path = os.path.join(scratch(), "file")
    return {"env://": lambda: dist.init_process_group(),
            "tcp://, rank 1": lambda: dist.init_process_group(init_method=f"tcp://127.0.0.1:{free_port()}", rank=1,
                                                              world_size=2),
            "file://": lambda: dist.init_process_group(init_method=f"file://{path}", rank=0, world_size=2),
            "store": lambda: dist.init_process_group(store=dist.HashStore(), rank=0, world_size=2),
            "ProcessGroup": lambda: dist.ProcessGroup(dist.HashStore(), 0, 2)}


def group_waits():
    """By name: calls that wait for the other rank. Each ends its group."""
    x, y = np.zeros(3), np.zeros(6)

    def coalesced():
        with dist.coalescing():
            dist.all_reduce(x)
            dist.all_reduce(y)

    return {"all_reduce": lambda: dist.all_reduce(x), "long all_reduce": lambda: dist.all_reduce(np.zeros(10**6)),
            "barrier": dist.barrier, "monitored_barrier": dist.monitored_barrier,
            "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(y, x), "recv": lambda: dist.recv(x, src=1),
            "long send": lambda: dist.send(np.zeros(10**7), 1), "a plan": dist.plan.all_reduce(x).run,
            "coalescing": coalesced,
            "all_gather_object": lambda: dist.all_gather_object([None, None], {"a": 1}),
            "recv_object_list": lambda: dist.recv_object_list([None], src=1),
            "gather_object": lambda: dist.gather_object(1, [None, None]),
            "new_group": lambda: dist.new_group([0, 1]),
            "Work.wait": lambda: dist.all_reduce(x, async_op=True).wait(),
            "Work.wait with a time": lambda: dist.irecv(x, src=1).wait(timedelta(seconds=60)),
            "a future of a Work": lambda: dist.irecv(x, src=1).get_future().wait(),
            "breakpoint": lambda: dist.breakpoint(rank=1)}


# What ends with the wait alone, and not with the group.
GOES_ON = "Work.wait", "Work.wait with a time", "a future of a Work", "monitored_barrier"


def interrupt_each(rank, kind):
    """Rank 0's times; each wait in a process of its own, as most of them end the group."""
    del rank
    return {name: interrupted(wait) for name, wait in kind().items()}


def interrupt_call(rank, name):
    dist.barrier()
    if rank == 0:
        return interrupted(group_waits()[name])
    try:
        dist.recv(np.zeros(7), src=0, tag=99, timeout=timedelta(seconds=2))
    except dist.DistBackendError as error:
        return str(error)


FORKED_CALLS = {
    "all_reduce": lambda x, work, store: dist.all_reduce(x),
    "barrier": lambda x, work, store: dist.barrier(),
    "isend": lambda x, work, store: dist.isend(x, 0),
    "objects": lambda x, work, store: dist.all_gather_object([None, None], 1),
    "new_group": lambda x, work, store: dist.new_group([0, 1]),
    "Work.wait": lambda x, work, store: work.wait(),
    "a store's connection": lambda x, work, store: store.get("k"),
}


def forked(rank, port):
    """In a child every call is an error that says why; the parent goes on, however the child ends."""
    store = dist.TCPStore("127.0.0.1", port, 2, rank == 0, timedelta(seconds=20))
    store.set("k", "v")
    texts = {}
    for how in ("_exit", "exit", "kill", "exception"):
        x = np.ones(1)
        work = dist.irecv(np.zeros(1), src=1 - rank, tag=5)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            with os.fdopen(write, "w") as pipe:
                for name, call in FORKED_CALLS.items():
                    try:
                        call(x, work, store)
                        pipe.write(f"{name}\taccepted\n")
                    except tutti.DistError as error:
                        pipe.write(f"{name}\t{type(error).__name__}: {error}\n")
            if how == "_exit":
                os._exit(0)
            if how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            end_of_interpreter(how)
        os.close(write)
        with os.fdopen(read) as pipe:
            texts[how] = dict(line.rstrip("\n").split("\t", 1) for line in pipe)
        status = os.waitpid(child, 0)[1]
        texts[how]["status"] = os.waitstatus_to_exitcode(status)
        dist.all_reduce(x)
        dist.send(np.ones(1), 1 - rank, tag=5)
        work.wait()
        assert x[0] == 2.0 and store.get("k") == b"v"
    dist.barrier()  # rank 0 serves the store
    return texts


def end_of_interpreter(how):
    """The process ends as a Python program does: atexit's functions run, modules are cleared."""
    import atexit

    code = 0
    try:
        if how == "exception":
            raise ValueError("of a child")
    except ValueError:
        code = 1
    dist.destroy_process_group()  # of the parent: nothing happens here
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code)


def forked_world(index, port, results):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group(rank=index, world_size=2)
    x = np.array([index + 1.0])
    dist.all_reduce(x)
    dist.destroy_process_group()
    results.put(float(x[0]))


def spawned(index, port, path):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group(rank=index, world_size=2)
    x = np.array([index + 1.0])
    dist.all_reduce(x)
    pathlib.Path(path, str(index)).write_text(str(x[0]))
    dist.destroy_process_group()


START = """
import os, sys, threading, time
import numpy as np
import tutti.distributed as dist
dist.init_process_group()
rank = dist.get_rank()
"""
ENDINGS = {  # a program, and the status it ends with
    "a receive that never comes": ("work = dist.irecv(np.zeros(4), src=1 - rank)\ndist.barrier()", 0),
    "callbacks that wait": ("f = dist.irecv(np.zeros(4), src=1 - rank).get_future().then(lambda f: print('never'))\n"
                            "dist.barrier()", 0),
    "a long collective": ("work = dist.all_reduce(np.zeros(1 << 20), async_op=True)", 0),
    "threads in receives": ("def receive(i):\n    try: dist.recv(np.zeros(4), src=1 - rank, tag=i)\n"
                            "    except dist.PeerLost: pass\n"  # the other rank has ended first
                            "for i in range(16): threading.Thread(daemon=True, target=receive, args=(i,)).start()\n"
                            "time.sleep(0.2)\ndist.barrier()", 0),
    "an exception": ("work = dist.irecv(np.zeros(4), src=1 - rank)\ndist.barrier()\nraise ValueError('of a program')", 1),
    "sys.exit in the middle": ("dist.barrier()\nwork = dist.all_reduce(np.zeros(9), async_op=True)\nsys.exit(3)", 3),
    "one rank that leaves early": ("if rank == 1: sys.exit(0)\ntry: dist.all_reduce(np.zeros(9))\n"
                                   "except dist.DistBackendError as e: assert e.peer == 1, e; sys.exit(0)\nsys.exit(1)", 0),
    "a plan, a mesh, hooks and symmetric memory": (
        "step = dist.plan.all_reduce(np.zeros(4)); step.start()\nm = dist.init_device_mesh('cpu', (2,))\n"
        "g = m.get_group(); s = dist.empty_symmetric((4,), 'float32', None)\n"
        "h = dist.operation_hooks(lambda n: None); h.__enter__()\nstore = dist.HashStore()", 0),
    "everything held by a cycle": ("class A: pass\na = A(); a.self = a; a.work = dist.irecv(np.zeros(1), src=1 - rank)\n"
                                   "a.group = dist.group.WORLD\ndist.barrier()", 0),
}


class Interrupts(unittest.TestCase):
    def check(self, times):
        for name, seconds in times.items():
            with self.subTest(wait=name):
                self.assertIsInstance(seconds, float, f"{name}: {seconds}")
                self.assertLess(seconds, 1, name)  # a machine may be busy for a moment
        self.assertLess(statistics.median(times.values()), 0.1, times)

    def test_ctrl_c_ends_the_waits_of_stores(self):
        self.check(run_ranks(interrupt_each, 1, (store_waits,), init=False)[0])

    def test_ctrl_c_ends_joining(self):
        self.check(run_ranks(interrupt_each, 1, (init_waits,), init=False)[0])

    def test_ctrl_c_ends_every_call_that_waits_for_others(self):
        names = run_ranks(lambda rank: list(group_waits()), 1)[0]
        times = {name: run_ranks(interrupt_call, args=(name,)) for name in names}
        self.check({name: first for name, (first, _) in times.items()})
        for name, (_, other) in times.items():
            with self.subTest(told=name):
                self.assertRegex(other, "nothing from rank 0|has left" if name in GOES_ON else "interrupted by a signal")

    def test_ctrl_c_ends_the_wait_for_a_future_and_for_spawned_ranks(self):
        self.check({"Future.wait": interrupted(Future().wait)})
        context = tutti.multiprocessing.spawn(time.sleep, (), nprocs=1, join=False)  # sleep(0): ends by itself
        context.join()
        begin = time.monotonic()
        self.assertIsInstance(interrupted(lambda: tutti.multiprocessing.start_processes(
            sleep_long, nprocs=2, start_method="fork")), float)
        self.assertLess(time.monotonic() - begin, 5)


def sleep_long(index):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    time.sleep(60)


class Forks(unittest.TestCase):
    def test_a_forked_child_is_told_why_and_harms_nobody(self):
        port = free_port()
        for texts in run_ranks(forked, args=(port,)):
            for how, by_call in texts.items():
                status = by_call.pop("status")
                self.assertEqual(status, {"_exit": 0, "exit": 0, "kill": -9, "exception": 1}[how])
                self.assertEqual(list(by_call), list(FORKED_CALLS))
                for name, text in by_call.items():
                    with self.subTest(how=how, call=name):
                        self.assertNotEqual(text, "accepted")
                        self.assertRegex(text, "fork|process [0-9]+")

    @rows("S15-003")
    def test_processes_that_the_program_starts_itself_are_ranks(self):
        for method in ("fork", "spawn"):
            with self.subTest(method=method):
                context, port = multiprocessing.get_context(method), free_port()
                results = context.Queue()
                processes = [context.Process(target=forked_world, args=(i, port, results)) for i in range(2)]
                for process in processes:
                    process.start()
                self.assertEqual([results.get(timeout=30) for _ in processes], [3.0, 3.0])
                for process in processes:
                    process.join(10)
                self.assertEqual([process.exitcode for process in processes], [0, 0])

    @rows("S15-001")
    def test_spawn_takes_every_start_method(self):
        for method in ("fork", "spawn", "forkserver"):
            with self.subTest(method=method), tempfile.TemporaryDirectory() as folder:
                tutti.multiprocessing.start_processes(spawned, (free_port(), folder), nprocs=2, start_method=method)
                self.assertEqual([pathlib.Path(folder, str(i)).read_text() for i in range(2)], ["3.0", "3.0"])
        with self.assertRaises(tutti.InvalidArgument):
            tutti.multiprocessing.spawn(spawned, nprocs=0)


class Endings(unittest.TestCase):
    @rows("S18-002")
    def test_the_interpreter_ends_however_much_is_pending(self):
        for name, (text, status) in ENDINGS.items():
            with self.subTest(program=name), tempfile.TemporaryDirectory() as folder:
                path, port = pathlib.Path(folder, "program.py"), free_port()
                path.write_text(START + text + "\n")
                begin = time.monotonic()
                ranks = [subprocess.Popen([sys.executable, str(path)], stderr=subprocess.PIPE, text=True,
                                          env={**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                                               "RANK": str(rank), "WORLD_SIZE": "2"}) for rank in range(2)]
                for rank in ranks:
                    try:
                        errors = rank.communicate(timeout=30)[1]
                    finally:
                        rank.kill()
                    self.assertEqual(rank.returncode, status, errors)
                    if name == "threads in receives":
                        self.assertNotIn("Traceback", errors)  # many at the interpreter's end can abort it
                self.assertLess(time.monotonic() - begin, 15)


if __name__ == "__main__":
    main("python_" + pathlib.Path(__file__).stem)
