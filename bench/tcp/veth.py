#!/usr/bin/env python3
"""TCP between two network namespaces joined by a veth pair: tutti, the bare wire, Open MPI and Gloo, in turn.

Usage: veth.py [--tutti build/bin/tutti] [--rounds 3] [--seconds 0.3] [--collective all_reduce] [--sizes 8,16M,64M,256M]
               [--hosts 2] [--ranks-per-host 1] [--named pairwise] [--links 4] [--link-rate 500mbit] [--delay 1] [--loss 0.001]
               [--json FILE]
               [--only tutti,unchecked,encrypted,named,wire,exchange,openmpi,mpich,gloo]

Needs root, iproute2 and a C++ compiler; iperf3, the peers' programs (`make bench` builds them) and libgloo-dev where
present. Contenders take turns, round by round; the table shows medians over the rounds, and the CPU time
of all ranks a byte. Everything is removed at the end, also after a failure.

unchecked tutti without checksums of what it sends; only where it is asked for.
encrypted tutti by TLS (TUTTI_TLS=on); only where it is asked for.
wire      iperf3 --bidir with 1 to 4 connections each way: the best rate of one direction while both are busy. An
          all_reduce of S bytes among two ranks moves S bytes in each direction, so that S / time compares directly.
named     tutti with one algorithm for that collective, --named; only where it is asked for.
mpich     left out where ranks outnumber the cores: its ranks spin, and a call takes tens of milliseconds.
exchange  one byte with blocking calls: half a round trip, and a simultaneous exchange (both send, both receive).

--links   the way between the namespaces is a bundle of links, and each connection stays on one of them, as its ports
          tell: no single connection gets more than --link-rate, of which there may be several, with commas: one for each link.
          With one link --link-rate limits it; "": no limit.
--delay   milliseconds on the way, each way, and --loss, the share of frames that get lost: a program of the tests carries the
          frames then (build/tests/hosts_bridge), which takes much of a CPU from 1 Gbit/s on.
"""
import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))


def bytes_of(text):
    unit = {"K": 10, "M": 20, "G": 30}.get(text[-1].upper())
    return int(text[:-1]) << unit if unit else int(text)


def mbit_of(rate):
    """Mbit/s of a rate as tc takes it."""
    number, unit = rate[:-4], rate[-4:]
    if unit not in ("mbit", "gbit"):
        raise SystemExit(f"veth.py: --link-rate {rate}: expected a number and mbit or gbit, with --delay or --loss")
    return float(number) * (1000 if unit == "gbit" else 1)


class Hosts:
    """Namespaces 10.214.X.1, 10.214.X.2 and so on: two are joined by a pair of devices, more by a bridge, and two with a
    delay or losses by a program that carries the frames. delay: in milliseconds, each way; loss: the share of frames."""

    def __init__(self, count, links=1, rate="", delay=0.0, loss=0.0, carrier=None):
        self.links, self.rate = links, rate
        self.delay, self.loss, self.carrier = delay, loss, carrier
        self.id = os.getpid() % 10000
        self.prefix = f"tb{self.id}-"
        self.names = [f"{self.prefix}{n + 1}" for n in range(count)]
        self.bridge = f"{self.prefix}bridge"
        self.addresses = [f"10.214.{self.id % 250}.{n + 1}" for n in range(count)]

    def __enter__(self):
        try:
            for name in self.names:
                self.ip("netns", "add", name)
            if self.delay or self.loss:
                self.ip("netns", "add", self.bridge)
            elif len(self.names) == 2:
                a, b = self.names
                self.ip("link", "add", "eth0", "netns", a, "type", "veth", "peer", "name", "eth0", "netns", b)
            else:
                self.ip("netns", "add", self.bridge)
                self.ip("-n", self.bridge, "link", "add", "br0", "type", "bridge")
                self.ip("-n", self.bridge, "link", "set", "br0", "up")
            carried = self.delay or self.loss
            for number, name in enumerate(self.names if len(self.names) > 2 or carried else []):
                port = f"port{number}"
                self.ip("link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", port, "netns", self.bridge)
                self.ip("-n", self.bridge, "link", "set", port, *([] if carried else ["master", "br0"]), "up")
            for name, address in zip(self.names, self.addresses):
                self.ip("-n", name, "addr", "add", address + "/24", "dev", "eth0")
                self.ip("-n", name, "link", "set", "eth0", "up")
                self.ip("-n", name, "link", "set", "lo", "up")
                if self.rate and not carried:
                    self.bundle(name)
            for name in self.names:
                self.wait_until_up(name)
            if carried:
                self.carry()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in [*self.names, self.bridge]:
            pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split()
            for pid in pids:
                try:
                    os.kill(int(pid), signal.SIGKILL)
                except ProcessLookupError:
                    pass
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL)

    def carry(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "exec", name, self.carrier, "--whole-packets", "eth0"], check=True)
        bridge = subprocess.Popen(["ip", "netns", "exec", self.bridge, self.carrier, "port0", "port1"], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True)
        rate = mbit_of(self.rate) if self.rate else 0
        for command in ("", f"delay {self.delay}", f"loss {self.loss}", f"rate {rate}"):
            if command:
                print(command, file=bridge.stdin, flush=True)
            if not (said := bridge.stdout.readline()).startswith(command or "ready"):
                raise RuntimeError(f"{self.carrier} says \"{said.strip()}\": expected \"{command or 'ready'}\"")

    @staticmethod
    def ip(*words):
        subprocess.run(["ip", *words], check=True)

    @staticmethod
    def wait_until_up(name):
        """The kernel notes within a second that a link has a carrier; UCX, and so MPICH, takes no other one."""
        for _ in range(100):
            state = subprocess.run(["ip", "-n", name, "-br", "link", "show", "dev", "eth0"], check=True, capture_output=True,
                                   text=True).stdout.split()[1]
            if state == "UP":
                return
            time.sleep(0.05)
        raise RuntimeError(f"the link of namespace {name} is {state} after 5 s: expected UP")

    def bundle(self, name):
        """What leaves a namespace goes over one of the links, by two bits of either port."""
        def tc(*words):
            subprocess.run(["tc", "-n", name, *words], check=True)
        tc("qdisc", "add", "dev", "eth0", "root", "handle", "1:", "htb", "default", "1")
        for link in range(self.links):
            rates = self.rate.split(",")
            tc("class", "add", "dev", "eth0", "parent", "1:", "classid", f"1:{link + 1}", "htb", "rate", rates[link % len(rates)],
               "burst", "64k", "cburst", "64k", "quantum", "60000")
        for source in range(4):
            for target in range(4):
                tc("filter", "add", "dev", "eth0", "parent", "1:", "protocol", "ip", "prio", "1", "u32",
                   "match", "ip", "sport", str(2 * source), "0x0006", "match", "ip", "dport", str(2 * target), "0x0006",
                   "flowid", f"1:{(source ^ target) % self.links + 1}")

    def start(self, host, command, **environment):
        return subprocess.Popen(["ip", "netns", "exec", self.names[host], *command],
                                env={**os.environ, **{k: str(v) for k, v in environment.items()}},
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(processes, limit=120):
    """Outputs, in order; raises with the first failure's words."""
    outputs = []
    try:
        for process in processes:
            out, err = process.communicate(timeout=limit)
            if process.returncode != 0:
                raise RuntimeError(f"{' '.join(process.args[4:])}: status {process.returncode}: {err.strip()[-800:]}")
            outputs.append(out)
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
    return outputs


class Bench:
    def __init__(self, options, hosts, work):
        self.o, self.hosts, self.work = options, hosts, work
        self.port = 29600
        self.cpu_of_run, self.cpu_us = {}, {}  # of the last contender; of all, by (name, collective, size)
        self.ranks = options.ranks_per_host * options.hosts
        self.crowded = os.cpu_count() < self.ranks
        self.pin = "pin" if options.ranks_per_host == 1 and not self.crowded else "free"
        self.sizes = [bytes_of(size) for size in options.sizes.split(",")]
        os.environ["TUTTI_JOB_SECRET"] = os.urandom(16).hex()

    def compile(self, source, compiler, *libraries):
        if shutil.which(compiler) is None:
            return None
        program = os.path.join(self.work, source[:-4])
        done = subprocess.run([compiler, "-std=c++20", "-O2", "-march=native", os.path.join(HERE, source), "-o", program,
                               *libraries], capture_output=True, text=True)
        return program if done.returncode == 0 else None

    def contenders(self):
        of_pairs = ["wire", "exchange"] if self.o.hosts == 2 and self.o.collective == "all_reduce" else []
        known = ["tutti", "openmpi", *([] if self.crowded else ["mpich"]), *of_pairs, "gloo"]
        wanted = self.o.only.split(",") if self.o.only else known
        asked_for = ["unchecked", "encrypted", "named"]
        if unknown := [name for name in wanted if name not in [*known, *asked_for]]:
            raise SystemExit(f"veth.py: --only {unknown[0]}: expected some of {','.join([*known, *asked_for])}; of "
                             f"{self.o.collective} on {self.o.hosts} hosts")
        found = {}
        if "tutti" in wanted:
            found["tutti"] = self.tutti
        if "unchecked" in wanted:
            found["unchecked"] = lambda: self.tutti(TUTTI_TCP_CHECKSUM="off")
        if "encrypted" in wanted:
            found["encrypted"] = lambda: self.tutti(TUTTI_TLS="on")
        if "named" in wanted:
            found[self.o.named] = lambda: self.tutti(TUTTI_ALGORITHM=self.o.named)
        if "wire" in wanted and shutil.which("iperf3") and any(size >= 1 << 20 for size in self.sizes):
            found["wire"] = self.wire
        if "exchange" in wanted:
            self.exchange_program = self.compile("exchange.cpp", "c++")
            found["exchange"] = self.exchange
        for name, start, launcher in (("openmpi", self.openmpi, "mpirun.openmpi"), ("mpich", self.mpich, "mpiexec.mpich")):
            if name in wanted and shutil.which(launcher) and os.path.exists(self.peer(name)):
                found[name] = start
        if "gloo" in wanted and os.path.exists(self.peer("gloo")):
            found["gloo"] = self.gloo
        return found

    def measured(self):
        """Microseconds of each round, by contender and case; contenders take turns."""
        found, contenders = {}, self.contenders()
        for _ in range(self.o.rounds):
            for name, contender in contenders.items():
                self.cpu_of_run = {}
                for key, us in contender().items():
                    found.setdefault(name, {}).setdefault(key, []).append(us)
                for key, us in self.cpu_of_run.items():
                    self.cpu_us.setdefault((name, *key), []).append(us)
        return found

    def peer(self, name):
        return os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(self.o.tutti))), "bench/peers", name)

    def layout(self):
        return [host for host in range(self.o.hosts) for _ in range(self.o.ranks_per_host)]

    def tutti(self, **environment):
        return self.read("tutti", self.own([], environment))

    def regret(self):
        """Of each case the time of the algorithm that is chosen to that of the best, in turns of one run."""
        # Every algorithm, three times: with 20 ms each way that takes minutes.
        with open(self.own(["--regret", "--rounds", "3"], {}, limit=600)) as file:
            return {(row["collective"], row["bytes"]): (1 + row["regret_percent"] / 100, row["chosen"], row["best"])
                    for row in json.load(file)}

    def own(self, more, environment, limit=120):
        layout = self.layout()
        self.port += 1
        report = os.path.join(self.work, "tutti.json")
        command = [self.o.tutti, "bench", self.o.collective, *self.sampling(report), "--worker", "100 5 1", *more]
        if self.pin != "pin":
            command.append("--no-pin")
        finish([self.hosts.start(host, command, RANK=rank, WORLD_SIZE=len(layout), MASTER_ADDR=self.hosts.addresses[0],
                                 MASTER_PORT=self.port, **environment)
                for rank, host in enumerate(layout)], limit)
        return report

    def sampling(self, report):
        return ["--sizes", ",".join(map(str, self.sizes)), "--seconds", str(self.o.seconds), "--json", report]

    def read(self, name, report):
        with open(report) as file:
            rows = json.load(file)
        for row in rows:
            if row["wrong"]:
                raise RuntimeError(f"{name}: {row['wrong']} elements are wrong at {row['bytes']} bytes")
        self.cpu_of_run = {(row["collective"], row["bytes"]): row["cpu_us"] for row in rows}
        return {(row["collective"], row["bytes"]): row["median_us"] for row in rows}

    def wire(self):
        """Microseconds that S bytes take in each direction at iperf3's best rate."""
        best = 0.0
        for control in ([], ["-C", "reno"]):  # the system's congestion control, and one that does not pace
            for connections in (1, 2, 4):
                best = max(best, self.wire_rate(["-P", str(connections), *control]))
        return {("all_reduce", size): size / best * 1e6 for size in self.sizes if size >= 1 << 20}

    def wire_rate(self, options):
        """Bytes a second in one direction, the mean of both."""
        pin = (["-A", "0"], ["-A", "1"]) if self.pin == "pin" else ([], [])
        server = self.hosts.start(0, ["iperf3", "-s", "-1", "-p", "29500", *pin[0]])
        try:
            words = " ".join(["iperf3 -J -p 29500 --bidir -t 2 -O 0.5 -c", self.hosts.addresses[0], *pin[1], *options])
            client = self.hosts.start(1, ["sh", "-c", "sleep 0.2; exec " + words])
            report = json.loads(finish([client])[0])["end"]
        finally:
            finish([server], 10)
        return sum(report[key]["bits_per_second"] for key in ("sum_received", "sum_received_bidir_reverse")) / 2 / 8

    def exchange(self):
        server = self.hosts.start(0, [self.exchange_program, str(self.o.seconds), self.pin, "listen"])
        client = self.hosts.start(1, [self.exchange_program, str(self.o.seconds), self.pin, self.hosts.addresses[0]])
        words = finish([client, server])[0].split()
        return {("half a round trip", 8): float(words[0]), ("exchange", 8): float(words[1])}

    def agent(self, argument):
        """What MPI's launchers start their daemons with instead of logging in: it enters the host's namespace. Host names
        differ, so that ranks of different namespaces do not believe that they share memory. `argument`: where the host is
        named among its own."""
        agent = os.path.join(self.work, "agent.sh")
        with open(agent, "w") as file:
            file.write(f'#!/bin/sh\nhost=${argument}\nshift {argument}\nnumber=${{host##*.}}\n'
                       f'exec ip netns exec {self.hosts.prefix}$number unshare -u sh -c "hostname host$number; $*"\n')
        os.chmod(agent, 0o755)
        return agent

    def mpi(self, name, launcher, **environment):
        report = os.path.join(self.work, f"{name}.json")
        command = [*launcher, self.peer(name), self.o.collective, *self.sampling(report),
                   *(["--pin"] if self.pin == "pin" else [])]
        quoted = " ".join(f"'{word}'" for word in command)
        finish([self.hosts.start(0, ["unshare", "-u", "sh", "-c", f"hostname host1; exec {quoted}"], TMPDIR=self.work,
                                 **environment)])
        return self.read(name, report)

    def openmpi(self):
        n = self.o.ranks_per_host
        command = ["mpirun.openmpi", "--allow-run-as-root", "--host", ",".join(f"{a}:{n}" for a in self.hosts.addresses),
                   "-np", str(self.ranks), "--bind-to", "none", "--mca", "plm_rsh_agent", self.agent(1), "--mca",
                   "plm_rsh_no_tree_spawn", "1", "--mca", "btl", "self,tcp,vader" if n > 1 else "self,tcp", "--mca", "pml",
                   "ob1", "--mca", "btl_tcp_if_include", "eth0", "--mca", "oob_tcp_if_include", "eth0", "--mca",
                   "orte_tmpdir_base", self.work]
        if self.crowded:
            command += ["--mca", "mpi_yield_when_idle", "1"]
        if self.hosts.links > 1:
            command += ["--mca", "btl_tcp_links", str(self.hosts.links)]
        return self.mpi("openmpi", command)

    def mpich(self):
        n = self.o.ranks_per_host
        command = ["mpiexec.mpich", "-launcher", "ssh", "-launcher-exec", self.agent(2), "-iface", "eth0", "-hosts",
                   ",".join(f"{a}:{n}" for a in self.hosts.addresses), "-n", str(self.ranks)]
        return self.mpi("mpich", command, MPIR_CVAR_NOLOCAL=1 if n == 1 else 0, UCX_TLS="tcp,self", UCX_NET_DEVICES="eth0")

    def gloo(self):
        meeting = tempfile.mkdtemp(dir=self.work)
        layout, report = self.layout(), os.path.join(self.work, "gloo.json")
        command = [self.peer("gloo"), self.o.collective, *self.sampling(report), *(["--pin"] if self.pin == "pin" else [])]
        finish([self.hosts.start(host, command, RANK=rank, WORLD_SIZE=len(layout), TUTTI_PEER_MEETING=meeting,
                                 TUTTI_PEER_ADDRESS=self.hosts.addresses[host])
                for rank, host in enumerate(layout)])
        return self.read("gloo", report)


def human(size):
    return f"{size >> 20} MB" if size >= 1 << 20 else f"{size >> 10} KB" if size >= 1 << 10 else f"{size} B"


def carrier_of(tutti):
    return os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(tutti))), "tests/hosts_bridge")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tutti", default=os.path.join(ROOT, "build/bin/tutti"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--sizes", default="8,64K,1M,16M,64M,256M")
    parser.add_argument("--collective", default="all_reduce", help="one, or several with commas")
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--ranks-per-host", type=int, default=1)
    parser.add_argument("--named", default="pairwise", help="the algorithm of the contender \"named\"")
    parser.add_argument("--only", default="")
    parser.add_argument("--links", type=int, choices=(1, 2, 4), default=1, help="bundled links")
    parser.add_argument("--link-rate", default="", help="of each link, as tc takes it; default: 500mbit for bundled ones, else no limit")
    parser.add_argument("--delay", type=float, default=0.0, metavar="MS", help="on the way, each way; with two hosts")
    parser.add_argument("--loss", type=float, default=0.0, help="the share of frames that get lost, with two hosts")
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    if os.geteuid() != 0 or shutil.which("ip") is None:
        print("veth.py: network namespaces need root and the command ip (Debian package iproute2)", file=sys.stderr)
        return 77
    carried = options.delay or options.loss
    if options.hosts < 2 or ((options.links > 1 or carried) and options.hosts != 2) or (options.links > 1 and carried):
        parser.error("--hosts: expected two or more, and two with either --links or --delay and --loss")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    work = tempfile.mkdtemp()
    try:
        rate = options.link_rate or ("500mbit" if options.links > 1 else "")
        with Hosts(options.hosts, options.links, rate, options.delay, options.loss, carrier_of(options.tutti)) as hosts:
            bench = Bench(options, hosts, work)
            measured = bench.measured()
    finally:
        shutil.rmtree(work, ignore_errors=True)
    rows = [{"contender": name, "case": size, "what": what if name == "exchange" else f"{what} {human(size)}", "collective": what,
             "ranks": options.hosts * options.ranks_per_host, "median_us": statistics.median(values), "all_us": values,
             "cpu_us": statistics.median(bench.cpu_us.get((name, what, size), [0]))}
            for name, keys in measured.items() for (what, size), values in keys.items()]
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)
    ours = {(row["collective"], row["case"]): row["median_us"] for row in rows if row["contender"] == "tutti"}
    print(f"{'contender':10} {'what':>22} {'median us':>12} {'GB/s':>7} {'tutti/it':>9} {'cpu ns/B':>9}   rounds")
    for row in rows:
        rate = f"{row['case'] / row['median_us'] / 1000:7.2f}" if row["case"] >= 1 << 20 else " " * 7
        key = row["collective"], row["case"]
        ratio = f"{ours[key] / row['median_us']:9.2f}" if key in ours else " " * 9
        cpu = f"{row['cpu_us'] * 1000 / row['case']:9.2f}" if row["case"] >= 1 << 10 and row["cpu_us"] > 0 else " " * 9
        print(f"{row['contender']:10} {row['what']:>22} {row['median_us']:12.2f} {rate} {ratio} {cpu}   "
              + " ".join(f"{us:.1f}" for us in row["all_us"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
