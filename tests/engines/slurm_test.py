#!/usr/bin/env python3
"""A real Slurm: Debian's packages, unpacked below FOLDER, in network namespaces that the test makes: four nodes and the host
with slurmctld, where users log in. As on Debian, each host's own name is 127.0.1.1 to itself. Usage: slurm_test.py TUTTI FOLDER
"""
import os
import pathlib
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

import page
from command_lines import Watch

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from daemons import start_daemon  # noqa: E402

TUTTI, ROOT = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
TOUR = TUTTI.parents[1] / "examples/tour"
PROGRAM = TUTTI.parents[1] / "tests/member_program"
LIBRARIES = next(ROOT.glob("usr/lib/*/slurm-wlm")).parent
ID = os.getpid() % 10000
NODES = ("nodea", "nodeb", "nodec", "noded")
HOSTS = (*NODES, "login")
ADDRESS = {host: f"10.214.{ID % 250}.{number}" for number, host in enumerate(HOSTS, 1)}
SPACE = {host: f"ts{ID}-{host}" for host in HOSTS}
BRIDGE = f"tsb{ID}"
CONFIGURATION = """ClusterName=test
SlurmctldHost=login({addresses[login]})
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
PluginDir={libraries}/slurm-wlm
SelectType=select/cons_tres
SlurmdParameters=config_overrides
SchedulerParameters=bf_interval=1,sched_interval=1
{nodes}
PartitionName=three Nodes=nodea,nodeb,nodec Default=YES State=UP
PartitionName=all Nodes=ALL State=UP
"""
LISTENER = """
import os, signal, sys, time
def told(number, frame):
    os.write(1, f"rank {os.environ.get('RANK', os.environ['SLURM_PROCID'])} got {signal.Signals(number).name}\\n".encode())
    time.sleep(2)  # were it sent twice, this would show it
    sys.exit(0)
signal.signal(signal.SIGUSR1, told)
print("ready", flush=True)
time.sleep(100)
"""


def ip(*words):
    subprocess.run(["ip", *words], check=True)


class UnderSlurm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.folder.chmod(0o755)  # munged refuses a folder where others could put a socket in its place
        (cls.folder / "munge.key").write_bytes(secrets.token_bytes(32))
        (cls.folder / "munge.key").chmod(0o400)
        cls.make_hosts()
        cls.configuration = cls.folder / "slurm.conf"
        cls.configuration.write_text(CONFIGURATION.format(
            folder=cls.folder, addresses=ADDRESS, libraries=LIBRARIES,
            nodes="\n".join(f"NodeName={node} NodeAddr={ADDRESS[node]} CPUs=8 State=UNKNOWN" for node in NODES)))
        keep = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "TUTTI_", "PMI", "MASTER_"))}
        cls.environment = {**keep, "PATH": f"{ROOT}/usr/bin:{ROOT}/usr/sbin:{os.environ['PATH']}", "HOME": str(cls.folder),
                           "LD_LIBRARY_PATH": f"{LIBRARIES}:{LIBRARIES}/slurm-wlm", "SLURM_CONF": str(cls.configuration)}
        cls.daemon("login", "munged", "--foreground", f"--key-file={cls.folder}/munge.key",
                   f"--socket={cls.folder}/munge.socket", f"--pid-file={cls.folder}/munged.pid",
                   f"--log-file={cls.folder}/munged.log", f"--seed-file={cls.folder}/seed")
        cls.until(lambda: (cls.folder / "munge.socket").exists(), "munged does not start")
        cls.daemon("login", "slurmctld-wlm", "-D", "-f", cls.configuration)
        for node in NODES:
            (cls.folder / node).mkdir()
            cls.slurmd(node)
        cls.until(cls.is_idle, "this Slurm does not get ready")

    @classmethod
    def slurmd(cls, node):
        cls.daemon(node, "slurmd-wlm", "-D", "-N", node, "-f", cls.configuration, "-d", ROOT / "usr/sbin/slurmstepd-wlm")

    @classmethod
    def is_idle(cls):
        return cls.output("sinfo", "-h", "-p", "all", "-o", "%D %t").stdout == f"{len(NODES)} idle\n"

    @classmethod
    def make_hosts(cls):
        def remove():
            for host in HOSTS:
                cls.kill(host)
                subprocess.run(["ip", "netns", "del", SPACE[host]], stderr=subprocess.DEVNULL, check=False)
            subprocess.run(["ip", "link", "del", BRIDGE], stderr=subprocess.DEVNULL, check=False)
        cls.addClassCleanup(remove)
        ip("link", "add", BRIDGE, "type", "bridge")
        ip("link", "set", BRIDGE, "up")
        for number, host in enumerate(HOSTS):
            space = SPACE[host]
            ip("netns", "add", space)
            ip("link", "add", f"tsv{ID}-{number}", "type", "veth", "peer", "name", "eth0", "netns", space)
            ip("link", "set", f"tsv{ID}-{number}", "master", BRIDGE, "up")
            ip("-n", space, "addr", "add", f"{ADDRESS[host]}/24", "dev", "eth0")
            ip("-n", space, "link", "set", "eth0", "up")
            ip("-n", space, "link", "set", "lo", "up")
            others = "".join(f"{ADDRESS[other]} {other}\n" for other in HOSTS if other != host)
            (cls.folder / f"hosts.{host}").write_text(f"127.0.0.1 localhost\n127.0.1.1 {host}\n{others}")

    @classmethod
    def kill(cls, host):
        """All processes there."""
        pids = subprocess.run(["ip", "netns", "pids", SPACE[host]], capture_output=True, text=True, check=False)
        subprocess.run(["kill", "-9", *pids.stdout.split()], stderr=subprocess.DEVNULL, check=False)

    @classmethod
    def on(cls, host, *words):
        # Not by `ip netns exec`, which hides /sys/fs/cgroup.
        return ["nsenter", f"--net=/run/netns/{SPACE[host]}", "unshare", "--uts", "--mount", "sh", "-c",
                'hostname "$1" && mount --bind "$2" /etc/hosts && shift 2 && exec "$@"', "sh", host,
                cls.folder / f"hosts.{host}", *map(str, words)]

    @classmethod
    def daemon(cls, host, name, *arguments):
        start_daemon(cls, cls.on(host, name, *arguments), cls.folder / f"{name}.{host}.said", cls.environment)

    @classmethod
    def until(cls, condition, sentence, seconds=60):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                logs = "".join(f"{log.name}:\n{log.read_text()[-2000:]}\n" for log in cls.folder.glob("*.said"))
                raise AssertionError(f"{sentence}:\n{logs}")
            time.sleep(0.2)

    @classmethod
    def output(cls, *command, **more):
        """A command of a user."""
        return subprocess.run(cls.on("login", *command), env={**cls.environment, **more}, capture_output=True, text=True,
                              timeout=120, check=False)

    def good(self, *command, **more):
        done = self.output(*command, **more)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_srun_on_several_hosts_whose_own_names_are_127_0_1_1(self):
        secret = secrets.token_hex(32)
        with Watch(secret) as watch:
            said = self.good("srun", "-N", 3, "-n", 6, TOUR, TUTTI_JOB_SECRET=secret)
        self.assertIn("every result is as expected", said)
        self.assertEqual(watch.found, {}, "the secret is on a command line")

    def test_without_a_secret_every_host_says_what_it_needs(self):
        done = self.output("srun", "-N", 2, "-n", 2, "timeout", 15, TOUR)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("TUTTI_JOB_SECRET", done.stdout + done.stderr)

    def test_a_heterogeneous_step_is_one_job(self):
        secret = secrets.token_hex(32)
        said = self.good("salloc", "-n", 1, ":", "-N", 2, "-n", 4, "sh", "-c",
                         f"srun --het-group=0,1 {TOUR} && srun --het-group=0,1 --label {TUTTI} doctor --env && "
                         f"srun {TOUR} : {TOUR}", TUTTI_JOB_SECRET=secret)
        self.assertEqual(said.count("every result is as expected"), 2, said)
        self.assertEqual(sorted(re.findall(r"(?m)^\d: rank +(\d) +SLURM_PROCID", said)), list("01234"), said)
        self.assertEqual(len(re.findall(r"world size +5 +SLURM_STEP_NUM_TASKS", said)), 5, said)
        self.assertEqual(len(re.findall(r"master address +nodea +first host of SLURM_STEP_NODELIST", said)), 5, said)

    def test_components_that_run_apart_do_not_meet(self):
        said = self.good("salloc", "-n", 2, ":", "-n", 3, "sh", "-c",
                         f"srun --het-group=0 {TOUR} & srun --het-group=1 {TOUR} & wait")
        self.assertEqual(said.count("every result is as expected"), 2, said)

    def test_tutti_run_on_each_node_of_a_step_is_one_job(self):
        secret = secrets.token_hex(32)
        with Watch(secret) as watch:
            said = self.good("srun", "-N", 3, "--ntasks-per-node=1", TUTTI, "run", "-n", 2, TOUR, TUTTI_JOB_SECRET=secret)
        self.assertRegex(said, r"tutti run: node 2 of 3, node 0 is nodea, port 2\d{4} \(SLURM_STEP_NUM_NODES, SLURM_NODEID")
        self.assertEqual(said.count("every result is as expected"), 1, said)
        self.assertEqual(watch.found, {}, "the secret is on a command line")

    def put_train(self, *command):
        train = self.folder / "train"
        train.write_text(f"#!/bin/sh\nexec {' '.join(map(str, command))}\n")
        train.chmod(0o755)

    def test_the_script_of_the_page(self):
        """With the tour for the reader's program."""
        self.put_train(TOUR)
        (self.folder / "job.sh").write_text(page.program("Slurm", language=""))
        self.good("sh", "-c", f"cd {self.folder} && sbatch --wait --output=page.out job.sh",
                  PATH=f"{TUTTI.parent}:{self.environment['PATH']}")
        said = (self.folder / "page.out").read_text()
        self.assertEqual(said.count("every result is as expected"), 2, said)
        self.assertIn("tutti run: node 1 of 2, node 0 is nodea", said)

    def test_tasks_of_a_job_array_beside_each_other_do_not_meet(self):
        script = self.folder / "array.sh"
        script.write_text(f"#!/bin/sh\n#SBATCH --ntasks=2 --nodelist=nodeb --output={self.folder}/array-%a.out\n"
                          f"srun {TUTTI} doctor --env\nsrun {TOUR}\n")
        submitted = time.monotonic()
        self.good("sbatch", "--wait", "--array=0-3", script)
        self.assertLess(time.monotonic() - submitted, 100)
        said = [(self.folder / f"array-{task}.out").read_text() for task in range(4)]
        ports = {re.search(r"master port +(\d+) +made from SLURM_JOB_ID, SLURM_STEP_ID", text).group(1) for text in said}
        self.assertEqual(len(ports), 4, said)
        for text in said:
            self.assertIn("every result is as expected", text)

    def test_the_signal_before_the_time_limit_reaches_ranks_once_and_the_job_ends_well(self):
        """Both have a minute; Slurm signals 50 s before its end, or up to that much earlier."""
        jobs = {name: subprocess.Popen(self.on("login", "srun", "-N", 2, "--ntasks-per-node=1", "--time=1", "--signal=USR1@50",
                                               *program, sys.executable, "-c", LISTENER),
                                       env={**self.environment, "TUTTI_JOB_SECRET": "x" * 40}, stdout=subprocess.PIPE,
                                       stderr=subprocess.STDOUT, text=True)
                for name, program in {"ranks of srun": (), "tutti run": (TUTTI, "run", "-n", "2", "--no-prefix")}.items()}
        for name, job in jobs.items():
            with self.subTest(name=name):
                said, _ = job.communicate(timeout=100)
                ranks = 2 if name == "ranks of srun" else 4
                self.assertEqual(job.returncode, 0, said)
                self.assertEqual(sorted(re.findall(r"rank (\d) got SIGUSR1", said)), list("0123")[:ranks], said)

    # Nodes that fail. The training of member_program has the same weight after each step with any number of ranks.

    def start(self, name, *command, **more):
        """A command of a user, in a folder that has the program ./train; what it says is in the file NAME.out there."""
        with open(self.folder / f"{name}.out", "w", encoding="utf-8") as output:
            job = subprocess.Popen(self.on("login", *command), cwd=self.folder, stdout=output, stderr=subprocess.STDOUT, env={
                **self.environment, "PATH": f"{TUTTI.parent}:{self.environment['PATH']}", "STOP_FILE": str(self.folder / "stop"),
                "TUTTI_JOB_SECRET": "x" * 40, "SLURM_PARTITION": "all", "TUTTI_LIFELINE_TIMEOUT_MS": "3000", **more})
        self.addCleanup(job.kill)
        return job

    def begin(self, *options, nodes="2:3", srun=("--no-kill", "--kill-on-bad-exit=0")):
        """A training on the three first nodes, a rank on each, as a user of a login node starts it."""
        job = self.start("step", "srun", *srun, "--nodelist=nodea,nodeb,nodec", "--ntasks=3", "--ntasks-per-node=1",
                         "tutti", "run", "--nnodes", nodes, *options, "./train")
        self.until_said("step", "trains as rank 2 of 3")
        return job

    def join(self, place):
        return self.start("other", "srun", "--nodes=1", "--nodelist=noded", "tutti", "run", "--join", place, "./train")

    def setUp(self):
        (self.folder / "stop").unlink(missing_ok=True)
        self.addCleanup((self.folder / "stop").touch)
        self.put_train(PROGRAM, 100000, "train")

    def said(self, name):
        return (self.folder / f"{name}.out").read_text()

    def until_said(self, name, pattern, seconds=20):
        end = time.monotonic() + seconds
        while not (found := re.search(pattern, self.said(name))):
            self.assertLess(time.monotonic(), end, f"{name} does not say: {pattern}\n{self.said(name)}")
            time.sleep(0.1)
        return found

    def lose(self, node, power=True):
        """All its processes are killed; without power nobody is told. Slurm would know after SlurmdTimeout, five minutes."""
        self.addCleanup(self.repair, node)
        if not power:
            ip("link", "set", f"tsv{ID}-{HOSTS.index(node)}", "down")
            time.sleep(0.3)  # so that no connection is ended
        self.kill(node)

    def repair(self, node):
        ip("link", "set", f"tsv{ID}-{HOSTS.index(node)}", "up")
        self.slurmd(node)
        self.tell_slurm(node)
        self.output("scontrol", "update", f"NodeName={node}", "State=RESUME")
        self.until(self.is_idle, f"{node} does not come back")

    def tell_slurm(self, node):
        self.good("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=failed")

    def ends_well(self, **jobs):
        (self.folder / "stop").touch()
        for name, job in jobs.items():
            self.assertEqual(job.wait(20), 0, self.said(name))
        said = "".join(map(self.said, jobs))
        results = set(re.findall(r"trained (\d+) steps to (\d+) as", said))
        self.assertEqual(len(results), 1, said)
        steps, weight = results.pop()
        self.assertIn(f"trained {steps} steps to {weight} as", self.good(TUTTI, "run", "-n", "2", PROGRAM, steps, "train"))
        return said

    def test_the_step_of_the_page_goes_on_without_a_node_and_with_the_one_that_replaces_it(self):
        (self.folder / "secret").write_text(secrets.token_hex(32))
        (self.folder / "job.sh").write_text(page.program("Slurm", number=1, language=""))
        with Watch((self.folder / "secret").read_text()) as watch:
            job = self.start("sbatch", "sbatch", "--wait", "--nodelist=nodea,nodeb,nodec", "--output=job.out", "job.sh", TUTTI_JOB_SECRET="")
            self.until(lambda: (self.folder / "job.out").exists(), "the job does not begin")
            self.until_said("job", "trains as rank 5 of 6")
            self.lose("nodec")
            self.until_said("job", "trains as rank 3 of 4")
            self.until_said("job", r"node 2: its launcher \(nodec, .* was lost: .*; the job goes on with 2 of 3 nodes")
            self.tell_slurm("nodec")
            self.until_said("job", "srun: error: Node failure on nodec")
            other = self.start("other", "sh", "-c", page.program("Slurm", number=2, language=""), TUTTI_JOB_SECRET="")
            self.until_said("other", "trains as rank 5 of 6")
            self.until_said("job", "(?s)trains as rank 3 of 4.*trains as rank 3 of 6")
        self.assertEqual(watch.found, {}, "the secret is on a command line")
        self.ends_well(sbatch=job, other=other, job=job)

    def test_a_node_without_power_is_lost_as_well_and_srun_ends_when_slurm_knows_it(self):
        job = self.begin()
        self.lose("nodec", power=False)
        self.until_said("step", "trains as rank 1 of 2")
        self.until_said("step", r"node 2: its launcher \(nodec, .* was lost: nothing was heard of it for .*; the job goes on with 2 of 3 nodes")
        (self.folder / "stop").touch()
        self.until_said("step", "trained .* as rank 1 of 2")
        with self.assertRaises(subprocess.TimeoutExpired):
            job.wait(4)
        self.tell_slurm("nodec")
        self.ends_well(step=job)

    def test_a_node_in_reserve_takes_the_place_of_one_that_fails(self):
        job = self.begin("--last-call=1", "--master-port=24000", nodes="2:4")
        other = self.join("nodea:24000")
        self.until_said("other", r"\[spare 3.0\] pid")
        self.lose("nodec")
        self.until_said("other", "trains as rank 2 of 3")
        self.tell_slurm("nodec")
        self.ends_well(step=job, other=other)

    def test_a_step_whose_first_node_fails_ends_and_says_why(self):
        job = self.begin()
        self.lose("nodea")
        self.until_said("step", r"(?s)(tutti run: node 0 failed: its launcher, which serves the job's store at nodea port \d+, was lost: "
                                r"[^\n]*; with --standby a job goes on without its node 0\n.*){2}")
        self.tell_slurm("nodea")
        self.assertEqual(job.wait(20), 1, self.said("step"))

    def test_with_a_standby_a_step_goes_on_without_its_first_node(self):
        job = self.begin("--standby")
        self.lose("nodea")
        place = self.until_said("step", r"this node, 1, serves it now, at ([\d.]+:\d+), where launchers that come may --join")[1]
        self.until_said("step", "trains as rank 1 of 2")
        self.tell_slurm("nodea")
        other = self.join(place)
        self.until_said("other", "trains as rank 2 of 3", seconds=30)
        self.ends_well(step=job, other=other)

    def test_without_no_kill_slurm_ends_the_step(self):
        job = self.begin(srun=("--kill-on-bad-exit=0",))
        self.lose("nodec")
        self.until_said("step", "trains as rank 1 of 2")
        self.tell_slurm("nodec")
        self.assertEqual(job.wait(20), 143, self.said("step"))
        self.assertIn("DUE TO NODE FAILURE", self.said("step"))


if __name__ == "__main__":
    if os.geteuid() != 0 or shutil.which("ip") is None:
        print("left out: slurm_test: network namespaces need root and the command ip (Debian package iproute2)")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
