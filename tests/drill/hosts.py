"""Hosts for the drills: network namespaces with links that can be cut or lose packets. Needs root and iproute2."""
import os
import re
import shutil
import signal
import subprocess

LINK_PREFIX, HOST_PREFIX = "dv", "dh"
HOSTS = 3


def sh(*command, check=True, **options):
    return subprocess.run(command, check=check, capture_output=True, text=True, **options)


class Network:
    """Hosts 0 to 2, joined by a bridge of the kernel; and two more, 3 and 4, joined by a program that loses packets."""

    def __init__(self, lossy_bridge, number=0):
        """number: which of the networks of this process."""
        self.tag = (os.getpid() + number * 37) % 10000
        self.net = f"10.214.{self.tag % 250}"
        self.bridge = f"db{self.tag}"
        self.lossy = None
        sh("ip", "link", "add", self.bridge, "type", "bridge")
        sh("ip", "link", "set", self.bridge, "up")
        for host in range(HOSTS + 2):
            self.add(host)
        for host in (HOSTS, HOSTS + 1):
            sh("ip", "netns", "exec", self.name(host), lossy_bridge, "--whole-packets", "eth0")
        self.lossy = subprocess.Popen([lossy_bridge, self.link(HOSTS), self.link(HOSTS + 1)], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True, bufsize=1)
        if self.lossy.stdout.readline().strip() != "ready":
            raise RuntimeError("the lossy bridge does not start")

    def add(self, host):
        name, link = self.name(host), self.link(host)
        sh("ip", "netns", "add", name)
        sh("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
        if host < HOSTS:
            sh("ip", "link", "set", link, "master", self.bridge)
        sh("ip", "link", "set", link, "up")
        sh("ip", "-n", name, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
        sh("ip", "-n", name, "link", "set", "eth0", "up")
        sh("ip", "-n", name, "link", "set", "lo", "up")

    def name(self, host):
        return f"{HOST_PREFIX}{self.tag}-{host}"

    def link(self, host):
        return f"{LINK_PREFIX}{self.tag}-{host}"

    def address(self, host):
        return f"{self.net}.{host + 1}"

    def cut(self, host):
        sh("ip", "link", "set", self.link(host), "down")

    def join(self, host):
        sh("ip", "link", "set", self.link(host), "up")

    def lose(self, share):
        self.lossy.stdin.write(f"loss {share}\n")
        self.lossy.stdout.readline()

    def processes(self, host):
        return [int(pid) for pid in sh("ip", "netns", "pids", self.name(host)).stdout.split()]

    def sockets(self, host):
        """Names of tutti's Unix sockets there."""
        table = sh("ip", "netns", "exec", self.name(host), "cat", "/proc/net/unix").stdout
        return re.findall(r"@tutti\S*", table)

    def close(self):
        if self.lossy is not None:
            self.lossy.kill()
            self.lossy.wait()
        for host in range(HOSTS + 2):
            for pid in sh("ip", "netns", "pids", self.name(host), check=False).stdout.split():
                os.kill(int(pid), signal.SIGKILL)
            sh("ip", "netns", "del", self.name(host), check=False)
            sh("ip", "link", "del", self.link(host), check=False)
        sh("ip", "link", "del", self.bridge, check=False)


class Fault(Exception):
    """What is wrong with a job."""


def missing():
    """Why no hosts can be made here, or None."""
    if os.geteuid() != 0 or not shutil.which("ip", path=os.environ.get("PATH", "") + ":/sbin:/usr/sbin"):
        return "network namespaces need root and the command ip (Debian package iproute2)"
    return None
