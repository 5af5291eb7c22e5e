"""Stores: the parameters of each kind, the examples of torch.distributed's documentation, and what is refused."""
import os
import pathlib
import socket
import sys
import tempfile
import threading
import time
import unittest
from datetime import timedelta

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from ranks import free_port, run_ranks
from rows import main, rows

import tutti.distributed as dist


def two_processes(rank, port):
    """The documentation's: the server's constructor waits for the client."""
    if rank == 0:
        server_store = dist.TCPStore("127.0.0.1", port, 2, True, timedelta(seconds=30))
        server_store.set("first_key", "first_value")
        server_store.get("seen")
        return server_store.port == port, server_store.host
    time.sleep(0.1)
    client_store = dist.TCPStore("127.0.0.1", port, 2, False)
    value = client_store.get("first_key")
    client_store.set("seen", "")
    return value


def by_file(rank, path):
    store = dist.FileStore(path, 2)
    store.add("users", 1)
    while store.add("users", 0) < 2:
        time.sleep(0.001)
    total = sum(store.add("n", 1) > 0 for _ in range(50))
    store.wait([f"done/{1 - rank}"]) if rank == 0 else None
    store.set(f"done/{rank}", "")
    return total, store.path


class Stores(unittest.TestCase):
    def examples(self, store):
        store.add("count", 1)
        store.add("count", 6)
        self.assertEqual(store.get("count"), b"7")
        self.assertIs(store.check(["count"]), True)
        store.append("appended", "po")
        store.append("appended", "tato")
        self.assertEqual(store.get("appended"), b"potato")
        store.set("key", "first_value")
        store.compare_set("key", "first_value", "second_value")
        self.assertEqual(store.get("key"), b"second_value")
        self.assertEqual(store.compare_set("key", "other", "third"), b"second_value")
        self.assertEqual(store.compare_set("new", "", "made"), b"made")
        self.assertEqual(store.compare_set("absent", "expected", "value"), b"expected")
        self.assertFalse(store.check(["absent"]))
        store.set("first_key", "value")
        self.assertIs(store.delete_key("first_key"), True)
        self.assertIs(store.delete_key("bad_key"), False)
        store.set("first_key", "po")
        store.set("second_key", "tato")
        self.assertEqual(store.multi_get(["first_key", "second_key"]), [b"po", b"tato"])
        store.multi_set(["first_key", "second_key"], ["a", b"\0\xff"])
        self.assertEqual((store.get("first_key"), store.get("second_key")), (b"a", b"\0\xff"))

    @rows("S11-001", "S11-011", "E-250", "E-251", "E-252", "E-253", "E-254", "E-255", "E-256", "E-257", "E-263")
    def test_the_examples_of_the_documentation_on_every_kind(self):
        with tempfile.TemporaryDirectory() as folder:
            for store in (dist.TCPStore("127.0.0.1", 0, 1, True, timedelta(seconds=30)), dist.HashStore(),
                          dist.FileStore(os.path.join(folder, "store"), 1),
                          dist.PrefixStore("p", dist.PrefixStore("q", dist.HashStore()))):
                with self.subTest(store=store):
                    self.examples(store)

    @rows("S11-015", "S11-016", "E-258", "E-264")
    def test_keys_are_counted(self):
        tcp, memory = dist.TCPStore("127.0.0.1", 0, 1, True, timedelta(seconds=30)), dist.HashStore()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "filestore")
            store1, store2 = dist.FileStore(path, 2), dist.FileStore(path, 2)
            store1.set("first_key", "first_value")
            self.assertEqual(store2.get("first_key"), b"first_value")
            for store, count in ((tcp, 2), (store2, 2), (memory, 1)):
                if store is not store2:
                    store.set("first_key", "first_value")
                self.assertEqual(store.num_keys(), count, store)
            prefixed = dist.PrefixStore("p", memory)
            prefixed.set("first_key", "x")
            self.assertEqual((prefixed.num_keys(), memory.get("p/first_key")), (2, b"x"))

    @rows("S11-017", "S11-018", "S11-019", "S11-020", "S11-025", "E-259", "E-260", "E-261")
    def test_waiting_ends_when_the_time_is_over(self):
        for make in (lambda: dist.TCPStore("127.0.0.1", 0, 1, True, timedelta(milliseconds=200)),
                     lambda: dist.PrefixStore("p", dist.TCPStore("127.0.0.1", 0, 1, True, timedelta(milliseconds=200)))):
            store = make()
            self.assertEqual(store.timeout, timedelta(milliseconds=200))
            self.timed(0.2, lambda: store.wait(["bad_key"]))
            self.timed(0.05, lambda: store.wait(["bad_key"], timedelta(milliseconds=50)))
            store.set_timeout(timedelta(milliseconds=100))
            self.timed(0.1, lambda: store.get("bad_key"))
            self.timed(0.1, lambda: store.multi_get(["bad_key"]))
        self.assertEqual(dist.HashStore().timeout, timedelta(seconds=300))
        began = time.monotonic()
        with self.assertRaises(dist.DistError):
            dist.TCPStore("127.0.0.1", free_port(), timeout=timedelta(milliseconds=300))
        self.assertLess(time.monotonic() - began, 3)

    def timed(self, seconds, wait):
        began = time.monotonic()
        with self.assertRaises(dist.DistStoreError) as caught:
            wait()
        self.assertIn("bad_key", str(caught.exception))
        self.assertEqual(caught.exception.code, "timeout")
        self.assertGreaterEqual(time.monotonic() - began, seconds * 0.9)
        self.assertLess(time.monotonic() - began, seconds + 1)

    @rows("S11-021", "S11-022", "S11-023", "S11-024", "S11-026", "S11-030", "S11-031", "E-262")
    def test_a_server_waits_for_its_users_or_not(self):
        port = free_port()
        self.assertEqual(run_ranks(two_processes, args=(port,), init=False), [(True, "127.0.0.1"), b"first_value"])
        began = time.monotonic()
        store = dist.TCPStore("127.0.0.1", 0, 3, True, wait_for_workers=False)
        self.assertLess(time.monotonic() - began, 2)
        self.assertGreater(store.port, 0)
        with self.assertRaises(dist.DistError) as caught:
            dist.TCPStore("127.0.0.1", 0, 3, True, timedelta(milliseconds=200))
        self.assertIn("1 of 3", str(caught.exception))

    def test_a_standby_goes_on_when_the_master_is_gone(self):
        master = dist.TCPStore("127.0.0.1", 0, is_master=True, with_standby=True)
        client = dist.TCPStore("127.0.0.1", master.port)
        standby = dist.TCPStore("127.0.0.1", master.port, is_standby=True)
        self.assertEqual((master.standby_port, client.standby_port), (0, 0))
        client.set("k", "v")
        del master
        self.assertEqual(client.get("k"), b"v")
        self.assertEqual(client.add("n", 1), 1)
        self.assertEqual(standby.get("k"), b"v")
        self.assertEqual(dist.TCPStore("127.0.0.1", standby.standby_port).get("k"), b"v")
        with self.assertRaisesRegex(ValueError, "is_standby with is_master"):
            dist.TCPStore("127.0.0.1", 1, is_master=True, is_standby=True)

    @rows("S11-027", "S11-028", "S11-029", "S11-032")
    def test_tenants_handed_sockets_and_libuv(self):
        first = dist.TCPStore("127.0.0.1", 0, is_master=True, multi_tenant=True)
        second = dist.TCPStore("127.0.0.1", first.port, is_master=True, multi_tenant=True)
        first.set("k", "v")
        self.assertEqual(second.get("k"), b"v")
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        handed = dist.TCPStore("127.0.0.1", port, is_master=True, master_listen_fd=listener.detach(), use_libuv=False)
        self.assertEqual((handed.port, handed.libuvBackend), (port, True))
        handed.set("k", "w")
        self.assertEqual(dist.TCPStore("127.0.0.1", port).get("k"), b"w")

    @rows("S11-033", "S11-034", "S11-035", "S11-036", "S11-037", "S1-030")
    def test_threads_and_processes_share_a_store(self):
        store = dist.HashStore()
        threads = [threading.Thread(target=lambda: [store.add("n", 1) for _ in range(500)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(store.get("n"), b"2000")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "store")
            self.assertEqual(run_ranks(by_file, args=(path,), init=False), [(50, path)] * 2)
        inner = dist.HashStore()
        inner.set("k", "v")
        self.assertEqual(dist.PrefixStore("p", inner).underlying_store.get("k"), b"v")

    @rows("S11-003", "S11-007", "S17-003", "S17-004")
    def test_what_is_wrong_is_named(self):
        store = dist.HashStore()
        store.set("text", "value")
        for call, part, error in ((lambda: store.add("text", 1), "text", dist.DistStoreError),
                                  (lambda: store.set("k", 3), "Store.set: value is of type int", dist.InvalidArgument),
                                  (lambda: store.set(None, "v"), "key is of type NoneType", dist.InvalidArgument),
                                  (lambda: store.wait("k"), "keys is of type str", dist.InvalidArgument),
                                  (lambda: store.multi_set(["a"], []), "1", dist.InvalidArgument),
                                  (lambda: store.wait(["k"], 3), "timeout is of type int", dist.InvalidArgument),
                                  (lambda: dist.TCPStore("127.0.0.1", 70000), "70000", dist.InvalidArgument),
                                  (lambda: dist.TCPStore("127.0.0.1", 0), "port 0", dist.InvalidArgument),
                                  (lambda: dist.TCPStore("127.0.0.1", 1, "2"), "world_size", dist.InvalidArgument),
                                  (lambda: dist.TCPStore("no such host", 1, timeout=timedelta(seconds=1)), "no such host",
                                   dist.DistNetworkError),
                                  (lambda: dist.FileStore("/nowhere/at/all/store", 1), "/nowhere", dist.DistStoreError),
                                  (lambda: dist.PrefixStore("p", "store"), "store is of type str", dist.InvalidArgument)):
            with self.subTest(part=part):
                with self.assertRaises(error) as caught:
                    call()
                self.assertIn(part, str(caught.exception))
        with self.assertRaises(TypeError):
            store.set("key alone")


if __name__ == "__main__":
    main("python_" + pathlib.Path(__file__).stem)
