"""What tutti changes on its host: nothing but what it says, in the log and in tutti doctor."""
import json
import os
import pathlib
import re
import shutil
import subprocess

from cli_case import CliCase, TOUR, TUTTI, main

ROOT = os.geteuid() == 0
# Asynchronous operations that no rank can finish where it starts them; on some machines they are messages that the kernel copies.
OWN = {"TUTTI_HUGE_PAGES": "own"}
ASYNCHRONOUS = ("run", "-n", 2, "--", pathlib.Path(TUTTI).resolve().parents[1] / "bench/progress_bench", "--rounds", 5, "--mib", 8,
                "--wait", 20)
FOUR = ("TUTTI_PROGRESS_NICE", "TUTTI_SPREAD", "TUTTI_HUGE_PAGES", "TUTTI_TCP_CONGESTION")


class HostSettings(CliCase):
    def log(self, *command, before=(), **settings):
        """The lines of the log at level info, of a job by `tutti run` or `tutti bench`, that name one of the four."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("TUTTI_")}
        done = subprocess.run([*before, TUTTI, *map(str, command)], capture_output=True, text=True, timeout=100, check=False,
                              env={**environment, "TUTTI_LOG_LEVEL": "info", **settings})
        self.assertEqual(done.returncode, 0, done.stderr)
        return [line for line in done.stderr.splitlines() if any(name in line for name in FOUR)]

    def bench(self, collective, size, *options, **more):
        return self.log("bench", collective, "-n", 2, "--sizes", size, "--seconds", "0.02", "--no-limits", *options, **more)

    def test_the_log_says_once_a_rank_when_the_progress_thread_gets_another_niceness(self):
        self.assertEqual(self.log(*ASYNCHRONOUS, **OWN), [])
        lines = self.log(*ASYNCHRONOUS, **OWN, TUTTI_PROGRESS_NICE="3")
        self.assertEqual(len(lines), 2, lines)
        for line in lines:
            self.assertRegex(line, r"I\d.* niceness -?\d+, as TUTTI_PROGRESS_NICE=3 asks")

    def test_each_line_of_the_log_is_an_object_where_that_is_asked_for(self):
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("TUTTI_", "RANK", "WORLD_SIZE"))}
        for text in ("json", "JSON", "xml"):
            done = subprocess.run([TOUR], capture_output=True, text=True, timeout=60, check=False,
                                  env={**environment, "TUTTI_LOG_LEVEL": "info", "TUTTI_LOG_FORMAT": text, "TUTTI_NO_SUCH": 'a"b'})
            self.assertEqual(done.returncode, 0, done.stderr)
            if text == "xml":
                self.assertRegex(done.stderr, r"(?m)^W.*TUTTI_LOG_FORMAT=xml: expected text or json$")
                continue
            objects = [json.loads(line) for line in done.stderr.splitlines()]
            warning = next(each for each in objects if "TUTTI_NO_SUCH" in each["message"])
            self.assertEqual(warning["level"], "warning")
            self.assertRegex(warning["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}[+-]\d\d:\d\d$")
            self.assertEqual(warning["file"][-4:], ".cpp")
            self.assertLessEqual({"pid", "thread", "line"}, warning.keys())

    def test_the_log_warns_of_a_niceness_that_cannot_be_had(self):
        before = ["setpriv", "--bounding-set", "-sys_nice"] if ROOT else []
        if ROOT and not shutil.which("setpriv"):
            self.skipTest("no setpriv")
        lines = self.log(*ASYNCHRONOUS, before=["sh", "-c", 'ulimit -e 0; exec "$@"', "sh", *before],
                         **OWN, TUTTI_PROGRESS_NICE="-5")
        self.assertEqual(len(lines), 2, lines)
        for line in lines:
            self.assertRegex(line, r"W\d.*TUTTI_PROGRESS_NICE=-5: the thread of asynchronous operations keeps niceness")

    def test_the_log_says_that_buffers_of_callers_get_huge_pages_unless_they_are_left_alone(self):
        setting = pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled")
        if not setting.exists() or "[never]" in setting.read_text():
            self.skipTest("no huge pages here")
        self.assertEqual(self.bench("sendrecv", "512K", TUTTI_HUGE_PAGES="own"), [])
        lines = self.bench("sendrecv", "512K")
        self.assertLessEqual(len(lines), 2)
        if not lines:
            self.skipTest("no copies between processes here")
        self.assertRegex(lines[0], r"used often get huge pages in place \(TUTTI_HUGE_PAGES=own")

    def test_the_log_says_which_congestion_control_replaces_the_systems(self):
        """In a network namespace whose system's is BBR."""
        script = "ip link set lo up && echo bbr > /proc/sys/net/ipv4/tcp_congestion_control && exec \"$@\""
        before = ["unshare", "-n", "sh", "-c", script, "sh"]
        tried = subprocess.run([*before, "true"], capture_output=True, text=True, check=False)
        if tried.returncode != 0:
            self.skipTest("no network namespace with BBR: " + tried.stderr.strip())
        lines = self.bench("all_reduce", "8", "--transport", "tcp", before=before)
        self.assertEqual(len(lines), 2, "one of each rank")
        for line in lines:
            self.assertRegex(line, "use the congestion control reno instead of bbr, .*TUTTI_TCP_CONGESTION=system")
        self.assertEqual(self.bench("all_reduce", "8", "--transport", "tcp", before=before, TUTTI_TCP_CONGESTION="system"), [])

    def test_doctor_lists_all_four(self):
        done = self.tutti("doctor")
        said = re.sub(r"\n {25}", " ", done.stdout)
        for finding in (r"niceness +left alone \(TUTTI_PROGRESS_NICE", r"callers' cores +threads that wait may be moved .*\(TUTTI_SPREAD=0",
                        r"huge pages +(for tutti's tensors, and for callers' buffers .*\(TUTTI_HUGE_PAGES=own|this system has none)",
                        r"tcp congestion +\w+, the system's"):
            self.assertRegex(said, f"(?m)^ok +{finding}")
        done = self.tutti("doctor", env={"TUTTI_PROGRESS_NICE": "-5", "TUTTI_SPREAD": "0", "TUTTI_HUGE_PAGES": "own",
                                         "TUTTI_TCP_CONGESTION": "reno"})
        said = re.sub(r"\n {25}", " ", done.stdout)
        for finding in (r"niceness +-5 for the thread of asynchronous operations", r"callers' cores +left alone",
                        r"huge pages +(for tutti's tensors alone|this system has none)",
                        r"tcp congestion +reno for tutti's connections"):
            self.assertRegex(said, f"(?m)^ok +{finding}")


if __name__ == "__main__":
    main("cli_host_settings_test")
