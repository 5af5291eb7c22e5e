"""tutti run on a terminal and under signals: questions and answers, Ctrl-C, Ctrl-Z, Ctrl-\\, and those that are passed on."""
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import time

from cli_case import TUTTI, CliCase, main

# Tells of each signal that it gets, and ends by SIGTERM alone.
LISTENER = r"""
import os, signal, sys, time
def told(number, frame):
    os.write(1, f"got {signal.Signals(number).name}\n".encode())
    if number in (signal.SIGINT, signal.SIGTERM):
        time.sleep(0.3)
        sys.exit(0)
for name in sys.argv[1:]:
    signal.signal(getattr(signal, name), told)
os.write(1, b"ready\n")
while True:
    time.sleep(0.05)
"""


def state(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def is_pending(number, pid):
    masks = re.findall(r"^(?:SigPnd|ShdPnd):\s*(\w+)", pathlib.Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return any(int(mask, 16) >> number - 1 & 1 for mask in masks)


def children(pid):
    return [int(p) for p in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def ranks_of(launcher):
    """Its children, but its guard. That one is called like the launcher until it has run for the first time."""
    def names():
        return {p: pathlib.Path(f"/proc/{p}/comm").read_text().strip() for p in children(launcher)}
    assert until(lambda: "tutti-guard" in names().values()), names()
    return [p for p, name in names().items() if name != "tutti-guard"]


def until(condition, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


class OnTerminal:
    """A program that leads the session of a terminal, as a shell's job in the foreground."""

    def __init__(self, *command):
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.execve(command[0], list(map(str, command)), {**os.environ, "NO_COLOR": "1"})
        self.said = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass
        os.close(self.terminal)

    def read(self, seconds):
        if select.select([self.terminal], [], [], seconds)[0]:
            try:
                self.said += os.read(self.terminal, 4096)
            except OSError:  # all have closed it
                time.sleep(0.02)

    def hear(self, pattern, count=1, seconds=20):
        end = time.monotonic() + seconds
        while len(re.findall(pattern, self.said)) < count:
            if time.monotonic() > end:
                raise AssertionError(f"{pattern!r} was not said {count} times: {self.said!r}")
            self.read(0.1)

    def type(self, keys):
        os.write(self.terminal, keys)

    def status(self, seconds=20):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.read(0.05)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid != 0:
                return os.waitstatus_to_exitcode(status)
        raise AssertionError(f"it still runs: {self.said!r}")


class OnATerminal(CliCase):
    def test_rank_0_asks_and_gets_the_answer(self):
        program = "import os\nif os.environ['RANK'] == '0': print('the answer is', input('what is it? ') * 2)\n" \
                  "else: print('nothing for me:', repr(os.read(0, 10)))"
        for options in ([], ["--no-prefix"]):
            with self.subTest(options=options), OnTerminal(TUTTI, "run", "-n", 2, *options, sys.executable, "-c", program) as job:
                job.hear(rb"what is it\? ")
                job.type(b"forty-two\n")
                self.assertEqual(job.status(), 0, job.said)
                self.assertIn(b"the answer is forty-twoforty-two", job.said)
                self.assertIn(b"nothing for me: b''", job.said)
                if not options:
                    self.assertIn(b"[rank 0] what is it? ", job.said)
                    self.assertIn(b"\n[rank 0] the answer", job.said.replace(b"\r", b""))

    def test_rank_0_has_a_terminal_that_ends_with_ctrl_d(self):
        program = "import os, sys\nif os.environ['RANK'] == '0':\n print(os.isatty(0), sys.stdin.readlines(), sys.stdin.read())"
        with OnTerminal(TUTTI, "run", "-n", 2, "sh", "-c", f'echo ready; exec {sys.executable} -c "$1"', "sh", program) as job:
            job.hear(b"ready", 2)
            for keys in (b"one\n", b"two\n", b"\4", b"\4"):
                job.type(keys)
                time.sleep(0.2)
            self.assertEqual(job.status(), 0, job.said)
            self.assertIn(b"True ['one\\n', 'two\\n']", job.said)

    def test_keys_that_end_the_job_reach_every_rank_once(self):
        for key, name, status in ((b"\3", b"SIGINT", 130), (b"\x1c", b"SIGQUIT", None)):
            with self.subTest(name=name), OnTerminal(TUTTI, "run", "-n", 3, sys.executable, "-c", LISTENER, "SIGINT",
                                                     "SIGQUIT", "SIGTERM") as job:
                job.hear(b"ready", 3)
                job.type(key)
                job.hear(b"got " + name, 3)
                if status is not None:
                    self.assertEqual(job.status(), status, job.said)
                else:  # who handles it goes on
                    time.sleep(0.5)
                    self.assertEqual(len(ranks_of(job.pid)), 3)
                    os.kill(job.pid, signal.SIGTERM)
                    self.assertEqual(job.status(), 143, job.said)
                self.assertEqual(job.said.count(b"got " + name), 3, job.said)

    def test_ctrl_backslash_ends_ranks_that_do_not_handle_it(self):
        with OnTerminal(TUTTI, "run", "-n", 2, "--max-restarts", 3, "sh", "-c", "ulimit -c 0; echo ready; exec sleep 50") as job:
            job.hear(b"ready", 2)
            job.type(b"\x1c")
            self.assertEqual(job.status(), 131, job.said)
            self.assertIn(b"stopped by SIGQUIT", job.said)

    def test_ctrl_z_stops_all_and_sigcont_goes_on(self):
        # The ranks start no children: the parent of one that is stopped between vfork and exec is not stopped, but in state D.
        with OnTerminal("/bin/sh", "-c", f"{TUTTI} run -n 2 sh -c 'echo ready; exec sleep 50' & wait; wait") as shell:
            shell.hear(b"ready", 2)  # in the background of a shell without job control: its group is the shell's
            launcher = children(shell.pid)[0]
            ranks = ranks_of(launcher)
            self.assertEqual(len(ranks), 2)
            os.kill(launcher, signal.SIGTSTP)
            self.assertTrue(until(lambda: [state(p) for p in ranks] == ["T", "T"]), [state(p) for p in ranks])
            os.kill(launcher, signal.SIGCONT)
            self.assertTrue(until(lambda: all(state(p) in "SR" for p in [launcher, *ranks])))
            os.kill(launcher, signal.SIGTERM)
            self.assertTrue(until(lambda: not any(os.path.exists(f"/proc/{p}") for p in ranks)))

    def test_ctrl_z_where_no_shell_waits_for_it_says_how_to_go_on(self):
        with OnTerminal(TUTTI, "run", "-n", 2, sys.executable, "-c", LISTENER, "SIGCONT") as job:
            job.hear(b"ready", 2)
            ranks = ranks_of(job.pid)
            job.type(b"\x1a")
            job.hear(rb"the ranks are stopped \(SIGTSTP\): kill -CONT %d continues them" % job.pid)
            self.assertTrue(until(lambda: [state(p) for p in ranks] == ["T", "T"]))
            os.kill(job.pid, signal.SIGCONT)
            job.hear(b"got SIGCONT", 2)
            job.type(b"\x1a")
            self.assertTrue(until(lambda: [state(p) for p in ranks] == ["T", "T"]))
            job.type(b"\3")
            self.assertEqual(job.status(), 130, job.said)

    def test_a_job_of_a_shell_is_stopped_and_continued_and_reads_only_in_the_foreground(self):
        with OnTerminal("/bin/bash", "--norc", "-i") as shell:
            shell.type(b"PS1='$ '; " + f"{TUTTI} run -n 2 sh -c 'echo rea''dy; [ $RANK = 0 ] && read line && echo \"read <$line>\"; "
                       "exec sleep 50'\n".encode())
            shell.hear(b"\\] ready", 2)
            launcher = next(p for p in children(shell.pid) if "tutti" in pathlib.Path(f"/proc/{p}/comm").read_text())
            ranks = ranks_of(launcher)
            shell.type(b"\x1a")
            self.assertTrue(until(lambda: [state(p) for p in [launcher, *ranks]] == ["T"] * 3))
            shell.hear(b"Stopped")
            shell.type(b"bg\n")
            self.assertTrue(until(lambda: all(state(p) in "SR" for p in [launcher, *ranks])))
            shell.type(b"echo for the sh''ell\n")
            shell.hear(b"\rfor the shell")
            time.sleep(0.5)
            self.assertIn(state(launcher), "SR", "it does not read in the background")
            shell.type(b"fg\n")
            time.sleep(0.5)
            shell.type(b"for rank 0\n")
            shell.hear(b"read <for rank 0>")
            shell.type(b"\3")
            self.assertTrue(until(lambda: not os.path.exists(f"/proc/{launcher}")))

    def test_a_rank_that_uses_the_terminal_itself_is_named(self):
        with OnTerminal(TUTTI, "run", "-n", 2, "sh", "-c", "[ $RANK = 1 ] && head -n 1 < /dev/tty; exec sleep 50") as job:
            job.hear(rb"rank 1 \(pid \d+\) was stopped by SIGTTIN: it uses /dev/tty")
            job.type(b"\3")
            self.assertEqual(job.status(), 130)


def heard(job, said, text, count, seconds=60):
    """What the job has said by the time it has said this text so often."""
    end = time.monotonic() + seconds
    while said.count(text) < count:
        more = b""
        if select.select([job.stdout], [], [], max(0, end - time.monotonic()))[0]:
            more = os.read(job.stdout.fileno(), 65536)
        if not more:
            status = job.poll()
            job.kill()  # or the test would wait for its end
            raise AssertionError(f"expected {text} {count} times within {seconds} s, got {said}, exit status {status}")
        said += more
    return said


class PassedOn(CliCase):
    def test_signals_for_the_ranks(self):
        names = ("SIGUSR1", "SIGUSR2", "SIGQUIT", "SIGTSTP", "SIGCONT", "SIGWINCH")
        # In a group of its own, whose parent is outside of it: the kernel stops nobody in a group that is orphaned, as this
        # test's may be.
        with subprocess.Popen([TUTTI, "run", "-n", "2", sys.executable, "-c", LISTENER, *names], stdout=subprocess.PIPE,
                              process_group=0) as job:
            said = heard(job, b"", b"ready", 2)
            for name in names:
                job.send_signal(getattr(signal, name))
                if name == "SIGTSTP":  # the launcher itself stops
                    stopped = until(lambda: state(job.pid) == "T")
                    if not stopped:
                        job.kill()
                    self.assertTrue(stopped)
                    # The kernel takes SIGTSTP back from a rank that has had no core to handle it when SIGCONT comes.
                    self.assertTrue(until(lambda: not any(is_pending(signal.SIGTSTP, pid) for pid in children(job.pid))))
                    job.send_signal(signal.SIGCONT)
                said = heard(job, said, f"got {name}\n".encode(), 2)
            job.send_signal(signal.SIGTERM)
            self.assertEqual(job.wait(timeout=20), 143)
            for name in names[:4]:
                self.assertEqual(said.count(f"got {name}\n".encode()), 2)

    def test_a_signal_to_all_processes_of_the_job_reaches_each_rank_once(self):
        """As Slurm sends one to a step, or systemctl kill to a unit: to the ranks as well, here after the launcher."""
        with subprocess.Popen([TUTTI, "run", "-n", "2", sys.executable, "-c", LISTENER, "SIGUSR1", "SIGUSR2", "SIGTERM"],
                              stdout=subprocess.PIPE, process_group=0) as job:
            said = heard(job, b"", b"ready", 2)
            for number in (signal.SIGUSR1, signal.SIGUSR1, signal.SIGUSR2):
                before = said.count(b"got " + number.name.encode())
                for pid in [job.pid, *children(job.pid)]:
                    os.kill(pid, number)
                said = heard(job, said, b"got " + number.name.encode(), before + 2)
                time.sleep(0.3)
            job.send_signal(signal.SIGUSR2)  # and to the launcher alone
            said = heard(job, said, b"got SIGUSR2", 4)
            job.send_signal(signal.SIGTERM)
            said += job.stdout.read()
            self.assertEqual(job.wait(timeout=20), 143)
        self.assertEqual((said.count(b"got SIGUSR1"), said.count(b"got SIGUSR2")), (4, 4), said)

    def test_who_does_not_handle_it_ends_by_it(self):
        with subprocess.Popen([TUTTI, "run", "-n", "2", "sh", "-c", "echo ready; exec sleep 50"], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) as job:
            for _ in range(2):
                job.stdout.readline()
            job.send_signal(signal.SIGUSR1)
            _, errors = job.communicate(timeout=20)
        self.assertEqual(job.returncode, 128 + signal.SIGUSR1)
        self.assertIn("SIGUSR1", errors)

    def test_over_ssh_too(self):
        """A stand-in for ssh that starts the command here."""
        with tempfile.TemporaryDirectory() as folder:
            ssh = pathlib.Path(folder) / "ssh"
            ssh.write_text('#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n')
            ssh.chmod(0o755)
            hosts = pathlib.Path(folder) / "hosts"
            hosts.write_text("127.0.0.1 slots=2\n")
            env = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
            with subprocess.Popen([TUTTI, "run", "--hostfile", hosts, "--master-port", str(20000 + os.getpid() % 9000),
                                   sys.executable, "-c", LISTENER, "SIGUSR1", "SIGTERM"], stdout=subprocess.PIPE, env=env) as job:
                said = heard(job, b"", b"ready", 2)
                job.send_signal(signal.SIGUSR1)
                said = heard(job, said, b"got SIGUSR1", 2)
                job.send_signal(signal.SIGINT)
                said += job.stdout.read()
                self.assertEqual(job.wait(timeout=20), 130, said)
            self.assertEqual(said.count(b"got SIGTERM"), 2, said)


class PendingConnections(CliCase):
    """Children that an entry script started before it became the launcher by exec."""

    def run_with_helper(self, arguments, helper="sleep 300", signals=()):
        """Whether the helper still lives afterwards, and how the launcher ended."""
        script = f'{helper} >/dev/null 2>&1 </dev/null & echo $!; exec "$@"'
        with subprocess.Popen(["bash", "-c", script, "bash", TUTTI, *map(str, arguments)], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as job:
            pid = int(job.stdout.readline())
            for number in signals:
                self.assertIn(b"ready", job.stdout.readline())
                job.send_signal(number)
            out, errors = job.communicate(timeout=30)
            lives = os.path.exists(f"/proc/{pid}") and state(pid) != "Z"
            if lives:
                os.kill(pid, signal.SIGKILL)
        return lives, job.returncode, out + errors

    def test_a_helper_outlives_the_job_and_its_restarts(self):
        for arguments, status in ((["run", "-n", 2, "true"], 0), (["run", "-n", 2, "--max-restarts", 2, "sh", "-c", "exit 3"], 3),
                                  (["run", "/no/such"], 127)):
            lives, returned, said = self.run_with_helper(arguments)
            self.assertEqual((lives, returned), (True, status), said)

    def test_a_helper_s_own_orphans_are_not_ours_either(self):
        with tempfile.TemporaryDirectory() as folder:
            helper = f"(sleep 0.5; sleep 300 & echo $! > {folder}/pid; exit)"
            _, returned, said = self.run_with_helper(["run", "-n", 2, "sleep", "1.5"], helper)
            self.assertEqual(returned, 0, said)
            pid = int((pathlib.Path(folder) / "pid").read_text())
            self.assertNotEqual(state(pid), "Z")
            os.kill(pid, signal.SIGKILL)

    def test_a_shell_s_process_substitution_gets_all(self):
        """bash starts it in the process that then becomes the launcher."""
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["bash", "-c", f"exec {TUTTI} run -n 2 seq 1 20000 > >(sleep 0.5; cat > {folder}/all; touch {folder}/end)"],
                           check=True, timeout=60)
            self.assertTrue(until(lambda: os.path.exists(f"{folder}/end")))
            self.assertEqual((pathlib.Path(folder) / "all").read_text().count("\n"), 40_000)

    def test_what_ranks_leave_behind_ends_though_its_environment_is_another(self):
        with tempfile.TemporaryDirectory() as folder:
            self.run_with_helper(["run", "sh", "-c", f"env -i setsid sleep 300 & echo $! > {folder}/pid; sleep 0.3"])
            pid = (pathlib.Path(folder) / "pid").read_text().strip()
            self.assertTrue(until(lambda: not os.path.exists(f"/proc/{pid}") or state(pid) == "Z"))

    def test_signals_come_through_once(self):
        lives, returned, said = self.run_with_helper(["run", sys.executable, "-c", LISTENER, "SIGINT"],
                                                     signals=(signal.SIGINT,))
        self.assertEqual((lives, returned), (True, 130), said)
        self.assertEqual(said.count(b"got SIGINT"), 1, said)

    def test_a_launcher_that_is_killed_takes_its_job_along_and_not_the_helper(self):
        with tempfile.TemporaryDirectory() as folder:
            lives, returned, said = self.run_with_helper(
                ["run", "sh", "-c", f"echo $$ > {folder}/pid; echo ready; exec sleep 50"], signals=(signal.SIGKILL,))
            self.assertEqual((lives, returned), (True, -9), said)
            pid = (pathlib.Path(folder) / "pid").read_text().strip()
            self.assertTrue(until(lambda: not os.path.exists(f"/proc/{pid}") or state(pid) == "Z"))


if __name__ == "__main__":
    main("cli_signals_test")
