#!/usr/bin/env python3
"""Attacks on a job of two hosts whose connections go by TLS: somebody in the middle alters, injects, drops, repeats, gives
back or cuts what they say, and plays a recorded connection again. Every rank that should end does so in time, names the
other and has no wrong data. Usage: tls_attacks_test.py DRILL_RANK [TEST...]

Hosts `near` (rank 0 and the store) and `far` (rank 1) are network namespaces that know nothing of each other: each sees
the other's address in a namespace of its own, `near2` and `far2`, where this program takes the connections to any of the
few ports that both hosts use, and makes them again on the other side. It needs root and iproute2 (status 77 without).
"""
import contextlib
import ctypes
import os
import re
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

RANK_PROGRAM = sys.argv[1] if len(sys.argv) > 1 else ""
LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET = 0x40000000
FIRST_PORT, PORTS = 20000, 48
STORE_PORT = FIRST_PORT - 1
BOUND_S = 25  # until all have ended
TIMEOUT_MS = 8000  # of joining and of each operation


def ip(*words):
    subprocess.run(["ip", *words], check=True)


class Hosts:
    def __init__(self):
        self.tag = f"ta{os.getpid() % 10000}"
        net = f"10.215.{os.getpid() % 250}"
        self.address = {"near": f"{net}.1", "far": f"{net}.2"}
        self.other = {"near": "far", "far": "near"}

    def __enter__(self):
        try:
            for side in ("near", "far"):
                for name, address in ((side, self.address[side]), (side + "2", self.address[self.other[side]])):
                    ip("netns", "add", self.name(name))
                    ip("-n", self.name(name), "link", "set", "lo", "up")
                a, b = self.name(side), self.name(side + "2")
                ip("link", "add", "eth0", "netns", a, "type", "veth", "peer", "name", "eth0", "netns", b)
                for name, address in ((a, self.address[side]), (b, self.address[self.other[side]])):
                    ip("-n", name, "addr", "add", address + "/24", "dev", "eth0")
                    ip("-n", name, "link", "set", "eth0", "up")
                self.on(side, "sysctl", "-qw", f"net.ipv4.ip_local_port_range={FIRST_PORT} {FIRST_PORT + PORTS - 1}").wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in ("near", "far", "near2", "far2"):
            for pid in subprocess.run(["ip", "netns", "pids", self.name(name)], capture_output=True, text=True).stdout.split():
                os.kill(int(pid), signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", self.name(name)], stderr=subprocess.DEVNULL)

    def name(self, which):
        return f"{self.tag}-{which}"

    def on(self, which, *command, **options):
        return subprocess.Popen(["ip", "netns", "exec", self.name(which), *map(str, command)], **options)

    def socket(self, which):
        """A TCP socket of that namespace, whichever this thread is in."""
        with open("/proc/self/ns/net") as own, open(f"/var/run/netns/{self.name(which)}") as there:
            if LIBC.setns(there.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")
            try:
                made = socket.socket()
            finally:
                LIBC.setns(own.fileno(), CLONE_NEWNET)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return made


class Link:
    """One connection, in two halves; `name` is what its TLS says it is for."""

    def __init__(self, asker, answerer):
        self.ends = {"there": (asker, answerer), "back": (answerer, asker)}
        self.name, self.seen, self.past = "", {"there": 0, "back": 0}, {"there": b"", "back": b""}


class Middle(threading.Thread):
    """Forwards all connections; `attack(way, bytes, link)` gives what to send in place of the bytes of one of those whose
    name matches, once, after `after` bytes of it; None: cut the connection."""

    def __init__(self, hosts, match="", way="there", after=0, attack=None):
        super().__init__(daemon=True)
        self.hosts, self.match, self.way, self.after, self.attack = hosts, re.compile(match), way, after, attack
        self.struck, self.stopped, self.links = 0, False, []
        self.selector = selectors.DefaultSelector()
        self.listeners = []
        for side in ("near", "far"):
            for port in range(STORE_PORT, FIRST_PORT + PORTS):
                listener = hosts.socket(side + "2")
                listener.bind((hosts.address[hosts.other[side]], port))
                listener.listen(64)
                listener.setblocking(False)
                self.selector.register(listener, selectors.EVENT_READ, (self.accept, side, port))
                self.listeners.append(listener)
        self.start()

    def run(self):
        while not self.stopped:
            for key, _ in self.selector.select(0.1):
                call, *arguments = key.data
                try:
                    call(key.fileobj, *arguments)
                except OSError:
                    pass

    def stop(self):
        self.stopped = True
        self.join()
        for key in list(self.selector.get_map().values()):
            key.fileobj.close()

    def accept(self, listener, side, port):
        asker, _ = listener.accept()
        answerer = self.hosts.socket(self.hosts.other[side] + "2")
        try:
            answerer.settimeout(5)
            answerer.connect((self.hosts.address[self.hosts.other[side]], port))
        except OSError:
            asker.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            asker.close()
            return
        link = Link(asker, answerer)
        link.where = self.hosts.other[side], port
        self.links.append(link)
        for way, (end, _) in link.ends.items():
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.selector.register(end, selectors.EVENT_READ, (self.forward, link, way))

    def forward(self, end, link, way):
        to = link.ends[way][1]
        data = end.recv(1 << 16)
        if not data:
            self.selector.unregister(end)
            to.shutdown(socket.SHUT_WR)
            return
        if not link.name and (named := re.search(rb"tutti 1 [a-z0-9 ,]+", data)):
            link.name = named.group().decode()
        due = way == self.way and link.name and self.match.search(link.name) and link.seen[way] >= self.after
        link.seen[way] += len(data)
        link.past[way] += data
        if due and self.attack and not self.struck:
            self.struck += 1
            data = self.attack(data, link, way)
        to.settimeout(5)
        if data is None:
            for one in link.ends["there"]:
                self.selector.unregister(one)
                one.close()
        else:
            to.sendall(data)


def altered(at):
    def attack(data, _, __):
        data = bytearray(data)
        data[min(at, len(data) - 1) if at >= 0 else at] ^= 0x10
        return bytes(data)
    return attack


def injected(data, *_):
    return b"\x17\x03\x03\x00\x40" + os.urandom(64) + data


def repeated(data, *_):
    return data + data


def dropped(*_):
    return b""


def given_back(_, link, way):
    """What the receiver itself has said on this connection."""
    return link.past["back" if way == "there" else "there"]


def last_record(stream):
    """Of a stream of TLS records: five bytes, of which the last two are the length, and so many."""
    at = 0
    while (end := at + 5 + int.from_bytes(stream[at + 3:at + 5], "big")) < len(stream):
        at = end
    return stream[at:]


def cut(*_):
    return None


DATA, LIFELINE, STORE = "rank 0 to rank 1", "rank 1 to rank 0", "store"
# The first news of a failure counts for both, whichever end they name. What a rank says last is its error.
NAMES_AN_END = r"^(error|tutti:).*(rank [01]\b|TCPStore\()"


class Attacks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.hosts = Hosts().__enter__()
        cls.work = tempfile.mkdtemp()

    @classmethod
    def tearDownClass(cls):
        cls.hosts.__exit__()
        shutil.rmtree(cls.work)

    def start(self, seconds=60, before=(), tls=("on", "on"), **of_far):
        """`before`: a command that starts rank 1; `tls`: of each rank."""
        environment = dict(os.environ, WORLD_SIZE="2", MASTER_ADDR=self.hosts.address["near"], MASTER_PORT=str(STORE_PORT),
                           TUTTI_JOB_SECRET="a secret of this test", TUTTI_TUNE="off")
        self.began = time.monotonic()
        self.files = [open(os.path.join(self.work, f"rank.{rank}"), "w+") for rank in (0, 1)]
        self.ranks = [self.hosts.on(side, *(before if rank else ()), RANK_PROGRAM, 7, seconds, TIMEOUT_MS, stdout=file, stderr=subprocess.STDOUT,
                                    env=dict(environment, RANK=str(rank), TUTTI_TLS=tls[rank], **(of_far if rank else {})))
                      for rank, (side, file) in enumerate(zip(("near", "far"), self.files))]

    def said(self, rank):
        with open(self.files[rank].name) as file:
            return file.read()

    def finish(self):
        """What each rank has said, when all have ended in time."""
        for rank, process in enumerate(self.ranks):
            try:
                process.wait(max(0.1, BOUND_S - (time.monotonic() - self.began)))
            except subprocess.TimeoutExpired:
                for one in self.ranks:
                    one.kill()
                self.fail(f"rank {rank} has not ended in {BOUND_S} s: {self.said(0)}\n{self.said(1)}")
        for file in self.files:
            file.close()
        texts = [self.said(0), self.said(1)]
        for text in texts:
            self.assertNotRegex(text, "(?m)^wrong")
        return texts

    def expect_errors(self, title, match, attack, way="there", after=0, says="", both=True):
        with self.subTest(title):
            middle = Middle(self.hosts, match, way, after, attack)
            try:
                self.start()
                if not both:  # rank 0 waits for others that have the secret
                    self.ranks[1].wait(BOUND_S)
                    self.ranks[0].kill()
                texts = self.finish()
            finally:
                middle.stop()
            self.assertEqual(middle.struck, 1, f"it was not attacked; {texts}")
            self.expect_named(title, texts, (0, 1) if both else (1,))
            if says:
                self.assertRegex("\n".join(texts), says)

    def expect_named(self, title, texts, ranks=(0, 1)):
        for rank in ranks:
            self.assertNotIn("done", texts[rank])
            self.assertRegex(texts[rank].splitlines()[-1], NAMES_AN_END, f"rank {rank} names nobody: {texts}")
        print(f"ok: {title}: all end with an error that names an end, {time.monotonic() - self.began:.1f} s", flush=True)

    def test_without_an_attack_all_goes_well_and_nothing_travels_as_it_is(self):
        middle = Middle(self.hosts)
        try:
            self.start(0.5)
            texts = self.finish()
        finally:
            middle.stop()
        for text in texts:
            self.assertIn("done", text)
        names = " ".join(link.name for link in middle.links)
        for name in (DATA, LIFELINE, STORE):
            self.assertIn(name, names)
        whole = b"".join(link.past[way] for link in middle.links for way in ("there", "back"))
        self.assertGreater(len(whole), 100_000)
        for word in (b"rendezvous", b"world/", b"group/", b"listen_host"):
            self.assertNotIn(word, whole)

    def test_ranks_of_which_one_alone_encrypts_both_say_so(self):
        for near, far in (("on", "off"), ("off", "on")):
            with self.subTest(near=near, far=far):
                middle = Middle(self.hosts)
                try:
                    self.start(tls=(near, far))
                    texts = self.finish()
                finally:
                    middle.stop()
                for text in texts:
                    self.assertRegex(text.splitlines()[-1], f"^(error|tutti:).*TUTTI_TLS is {near} at the store .* and {far} at its client")
                    self.assertIn(self.hosts.address["far"], text)
                self.assertLess(time.monotonic() - self.began, TIMEOUT_MS / 1000)

    def test_data(self):
        for title, attack in (("altered data", altered(700)), ("altered length", altered(3)), ("injected data", injected),
                              ("repeated data", repeated), ("data given back", given_back)):
            self.expect_errors(title, DATA, attack, after=60_000)
        self.expect_errors("data that is altered on its way back", DATA, altered(-1), way="back", after=60_000,
                           says="changed")
        self.expect_errors("a data connection that is cut", DATA, cut, after=60_000)

    def test_lifelines(self):
        """On which nothing is said while all is well: it is the middle that speaks."""
        for title, way, words in (
                ("an injected word on a lifeline", "there", lambda link: injected(b"")),
                ("a word that is said again on a lifeline", "there", lambda link: last_record(link.past["there"])),
                ("a lifeline that is given back", "back", lambda link: last_record(link.past["there"])),
                ("a lifeline that is cut", "there", None)):
            with self.subTest(title):
                middle = Middle(self.hosts)
                try:
                    self.start()
                    while not all("running" in self.said(rank) or self.ranks[rank].poll() is not None for rank in (0, 1)):
                        time.sleep(0.02)
                    link = next(link for link in middle.links if LIFELINE in link.name)
                    if words:
                        link.ends[way][1].sendall(words(link))
                    else:
                        for end in link.ends["there"]:
                            with contextlib.suppress(OSError):  # the other one's end has been passed on
                                end.shutdown(socket.SHUT_RDWR)
                    texts = self.finish()
                finally:
                    middle.stop()
                self.expect_named(title, texts)

    def test_the_store(self):
        for title, attack in (("an altered request", altered(30)), ("an injected request", injected),
                              ("a connection to the store that is cut", cut)):
            self.expect_errors(title, STORE, attack, after=600)
        self.expect_errors("an altered answer", STORE, altered(10), way="back", after=600)

    def test_handshakes(self):
        self.expect_errors("an altered handshake with the store", STORE, altered(60), both=False)
        self.expect_errors("an altered answer to a handshake", LIFELINE, altered(60), way="back", both=False)
        self.expect_errors("a handshake that is given back", LIFELINE, lambda data, link, way: link.past["there"], way="back",
                           both=False)

    def test_a_connection_that_is_played_again_is_refused_and_named_and_the_job_goes_on(self):
        middle = Middle(self.hosts)
        try:
            self.start(2)
            while "running" not in self.said(0) and self.ranks[0].poll() is None:
                time.sleep(0.05)
            link = next(link for link in middle.links if LIFELINE in link.name)
            again = self.hosts.socket(link.where[0] + "2")
            again.connect((self.hosts.address[link.where[0]], link.where[1]))
            again.sendall(link.past["there"])
            again.settimeout(10)
            answer = b"".join(iter(lambda: again.recv(4096), b""))
            again.close()
            self.assertLess(len(answer), 1000)
            texts = self.finish()
        finally:
            middle.stop()
        self.assertRegex(texts[0], "rank 0: a connection from .* was refused: .*")
        for text in texts:
            self.assertIn("done", text)

    def hear(self, side, port, *words):
        """All that a stranger hears who says these words to that port, one after the other's answer."""
        with self.hosts.socket(side + "2") as stranger:
            stranger.settimeout(10)
            stranger.connect((self.hosts.address[side], port))
            heard = []
            for word in words:
                stranger.sendall(word)
                heard.append(stranger.recv(4096))
            return heard + [stranger.recv(4096)]

    def test_a_stranger_hears_nothing_by_which_it_could_try_out_secrets(self):
        for tls in ("on", "off"):
            with self.subTest(tls=tls):
                middle = Middle(self.hosts)
                try:
                    self.start(2, tls=(tls, tls))
                    while not all("running" in self.said(rank) or self.ranks[rank].poll() is not None for rank in (0, 1)):
                        time.sleep(0.05)
                    doors = {link.where for link in middle.links if link.name or link.past["there"].startswith(b"TUTTIHS")}
                    self.assertGreater(len(doors), 1, "the store's, and a rank's")
                    for side, port in doors:
                        for version in (1, 2):
                            hello = b"TUTTIHS" + bytes([version]) + os.urandom(32)
                            if tls == "on":
                                self.assertEqual(self.hear(side, port, hello), [b"\x15\x03\x03\x00\x02\x02\x28", b""])
                            elif version == 1:
                                self.assertEqual(self.hear(side, port, hello), [b"TUTTIHS\x02", b""])
                            else:
                                number, refusal, end = self.hear(side, port, hello, os.urandom(32))
                                self.assertEqual((number[:8], len(number)), (b"TUTTIHS\x02", 40))
                                self.assertEqual((refusal, end), (b"tutti: that is not this secret.\n", b""))
                    texts = self.finish()
                finally:
                    middle.stop()
                for text in texts:
                    self.assertIn("done", text)

    def test_a_host_without_the_secret_and_one_of_another_user_do_not_get_in_and_hear_why(self):
        another = ("setpriv", "--reuid=12345", "--regid=12345", "--clear-groups")
        for before, secret in (((), "a guess of the secret"), ((), ""), (another, "")):
            middle = Middle(self.hosts)
            try:
                self.start(before=before, TUTTI_JOB_SECRET=secret)
                self.ranks[1].wait(BOUND_S)
                self.ranks[0].kill()
                self.ranks[0].wait()
            finally:
                middle.stop()
            text = self.said(1)
            self.assertNotIn("running", text)
            self.assertRegex(text, "TUTTI_JOB_SECRET")
            self.assertIn(self.hosts.address["near"], text)
            if secret:
                self.assertRegex(self.said(0), "TCPStore server: a process at .* did not prove the job's secret")
            for file in self.files:
                file.close()


if __name__ == "__main__":
    if os.geteuid() != 0 or shutil.which("ip") is None:
        print("left out: tls_attacks_test: network namespaces need root and the command ip (Debian package iproute2)")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], warnings="ignore")
