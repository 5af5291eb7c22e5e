"""The pages of a job's processes: what each rank waits for, counters for Prometheus; who may see them, and who cannot."""
import contextlib
import hmac
import functools
import http.client
import http.server
import json
import math
import os
import pathlib
import pickle
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

from cli_case import TOUR, TUTTI, CliCase, main

SECRET = "open sesame, and close again"
# What travels does not tell the secret.
TOKEN = hmac.new(SECRET.encode(), b"tutti derive 1:pages", "sha256").hexdigest()
NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"'

BROWSER = next(filter(None, map(shutil.which, ["chromium-headless-shell", "chromium", "google-chrome"])), None)


def browser(*words):
    """One without a window."""
    return subprocess.Popen([BROWSER, "--headless", "--no-sandbox", "--disable-gpu", *words], stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, text=True, start_new_session=True)


class CountingPages(http.server.SimpleHTTPRequestHandler):
    loads = threading.Semaphore(0)

    def do_GET(self):
        if self.path == "/status.html":
            self.loads.release()
        super().do_GET()

    def log_message(self, *_):
        pass


def free_ports(count):
    """The first of so many in a row that nobody has now."""
    for first in range(21000, 32000, count):
        taken = []
        try:
            for port in range(first, first + count):
                taken.append(socket.socket())
                taken[-1].bind(("127.0.0.1", port))
            return first
        except OSError:
            continue
        finally:
            for each in taken:
                each.close()
    raise AssertionError("no free ports")


def series(text):
    """{name: {labels: value}} of Prometheus' text format 0.0.4; AssertionError for what that does not allow."""
    assert text.endswith("\n")
    found, types, helped = {}, {}, set()
    current = None
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name = re.fullmatch(rf"# HELP ({NAME}) \S.*", line).group(1)
            assert name not in helped, f"{name} twice"
            helped.add(name)
        elif line.startswith("# TYPE "):
            current, kind = re.fullmatch(rf"# TYPE ({NAME}) (counter|gauge|histogram)", line).groups()
            assert current in helped and current not in types, line
            types[current] = kind
            assert kind != "counter" or current.endswith("_total"), line
        else:
            name, labels, value = re.fullmatch(rf"({NAME})(?:\{{((?:{LABEL},?)*)\}})? (\S+)", line).group(1, 2, 5)
            suffixes = ("_bucket", "_sum", "_count") if types[current] == "histogram" else ("",)
            assert name in {current + suffix for suffix in suffixes}, f"{line} below {current}"
            key = tuple(re.findall(LABEL, labels or ""))
            assert len({label for label, _ in key}) == len(key), line
            assert key not in found.setdefault(name, {}), f"{line}: twice"
            found[name][key] = float(value)
    for name in (name for name, kind in types.items() if kind == "histogram"):
        buckets = {}
        for key, value in found.get(f"{name}_bucket", {}).items():
            bound = dict(key)["le"]
            rest = tuple(label for label in key if label[0] != "le")
            buckets.setdefault(rest, []).append((math.inf if bound == "+Inf" else float(bound), value))
        for rest, values in buckets.items():
            assert values == sorted(values) and [v for _, v in values] == sorted(v for _, v in values), (rest, values)
            assert values[-1] == (math.inf, found[f"{name}_count"][rest]), rest
            assert rest in found[f"{name}_sum"]
    return found


def value_of(found, name, **labels):
    values = [value for key, value in found.get(name, {}).items() if labels.items() <= dict(key).items()]
    assert len(values) == 1, (name, labels, found.get(name))
    return values[0]


class Status(CliCase):
    def setUp(self):
        self.port = free_ports(5)

    def start(self, ranks=4, program=TOUR, **environment):
        names = {k: v for k, v in os.environ.items() if not k.startswith(("TUTTI_", "RANK", "WORLD_SIZE"))}
        names |= {"TUTTI_STATUS_PORT": str(self.port), "TUTTI_JOB_SECRET": SECRET} | environment
        job = subprocess.Popen([TUTTI, "run", "-n", str(ranks), "--timeout", "100", "--", str(program)],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=names)
        self.addCleanup(self.end, job)
        return job

    def end(self, job):
        if job.poll() is None:
            job.terminate()
            self.go_on(job)
        job.communicate(timeout=60)

    @staticmethod
    def go_on(job):
        """Wakes the rank that a fault has stopped."""
        for pid in pathlib.Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split():
            with contextlib.suppress(OSError):
                if pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T":
                    os.kill(int(pid), signal.SIGCONT)

    def ask(self, path, rank=0, method="GET", token=TOKEN, timeout=20):
        """(status, headers, body); None where nobody listens."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port + rank, timeout=timeout)
        try:
            connection.request(method, path, headers={"Authorization": f"Bearer {token}"} if token else {})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode()
        except ConnectionError:
            return None
        finally:
            connection.close()

    def status_when(self, wanted, rank=0):
        """What /status.json says, once `wanted(it)`."""
        end, status = time.monotonic() + 60, None
        while time.monotonic() < end:
            answer = self.ask("/status.json", rank)
            if answer is not None:
                self.assertEqual(answer[0], 200, answer)
                status = json.loads(answer[2])
                if wanted(status):
                    return status
            time.sleep(0.05)
        raise AssertionError(f"in a minute it has only said {status}")

    def waits_of_world(self, status):
        return {wait["rank"]: wait for group in status["groups"] if group["size"] == 4 for wait in group["waits"]}

    def all_wait_for_2(self, status):
        """In the all_reduce in which it is stopped, not in what came before."""
        waits = self.waits_of_world(status)
        return len(waits) == 3 and all(2 in wait["for"] and "all_reduce of " in wait["in"] for wait in waits.values())

    def test_who_hangs_still_says_for_whom(self):
        job = self.start(TUTTI_FAULTS="rank=2 op=all_reduce@2 stop=90s", TUTTI_TIMEOUT_MS="90000")
        status = self.status_when(self.all_wait_for_2)
        self.assertEqual(status["silent"], [2])  # it is stopped
        by_another = self.waits_of_world(self.status_when(self.all_wait_for_2, 3))
        for wait in [*self.waits_of_world(status).values(), *by_another.values()]:
            self.assertIn("all_reduce of ", wait["in"])
            self.assertGreater(wait["sequence"], 0)
            self.assertGreater(wait["seconds"], 0)
        text = self.ask("/status")[2]
        self.assertIn("no answer within 2 s from rank 2: stopped, or cut off\n", text)
        self.assertRegex(text, r"rank 1 waits for rank 2 for \d+\.\d+ s in #\d+ all_reduce of ")
        self.assertRegex(text, r"called at \S")

        kind, page = self.ask("/status.html")[1:]
        self.assertEqual(kind["Content-Type"], "text/html; charset=utf-8")
        self.assertIn("<meta http-equiv=refresh content=2>", page)
        self.assertIn("no answer within 2 s from rank 2", page)
        for word in ("<script", "http://", "https://"):
            self.assertNotIn(word, page)
        self.assertRegex(page, r'title="rank 1 waits for rank 2 in #\d+ all_reduce of [^"]*">\d+\.\d<')
        self.assertIn("sent lately", page)  # the tour sends messages before

        kind, text = self.ask("/metrics", 1)[1:]
        self.assertEqual(kind["Content-Type"], "text/plain; version=0.0.4; charset=utf-8")
        found = series(text)
        world = next(dict(key)["group"] for key, value in found["tutti_live_peers"].items() if value == 3)
        of_world = {"group": world, "rank": "1"}
        self.assertEqual(value_of(found, "tutti_outstanding_operations", **of_world), 1)
        self.assertGreater(value_of(found, "tutti_oldest_outstanding_seconds", **of_world), 0)
        reduced = of_world | {"operation": "all_reduce"}
        self.assertGreaterEqual(value_of(found, "tutti_operation_calls_total", **reduced), 2)
        self.assertGreater(value_of(found, "tutti_operation_bytes_total", **reduced), 0)
        self.assertGreaterEqual(value_of(found, "tutti_operation_duration_seconds_count", **reduced), 1)
        calls = sum(value for key, value in found["tutti_operation_calls_total"].items() if of_world.items() <= dict(key).items())
        self.assertEqual(calls, value_of(found, "tutti_operations_issued_total", **of_world))
        try:
            from prometheus_client.parser import text_string_to_metric_families
        except ImportError:
            pass
        else:
            self.assertGreater(len(list(text_string_to_metric_families(text))), 5)
        self.go_on(job)
        out, error = job.communicate(timeout=90)
        self.assertEqual(job.returncode, 0, out + error)
        self.assertIsNone(self.ask("/status"))

    def test_a_job_that_hangs_leaves_files_for_torchfrtrace_on_SIGUSR2(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        folder = pathlib.Path(temporary.name)
        self.start(TUTTI_FAULTS="rank=2 op=all_reduce@2 stop=90s", TUTTI_TRACE_DIR=str(folder), TUTTI_TRACE_FORMAT="torch")
        status = self.status_when(self.all_wait_for_2)
        for pid in {rank["pid"] for group in status["groups"] for rank in group["ranks"]}:
            os.kill(pid, signal.SIGUSR2)
        end = time.monotonic() + 30
        while len(list(folder.glob("flight_*_rank_[013]"))) < 3 and time.monotonic() < end:
            time.sleep(0.05)
        for rank in (0, 1, 3):
            trace = pickle.loads(next(folder.glob(f"flight_*_rank_{rank}")).read_bytes())
            last = trace["entries"][-1]
            self.assertEqual((last["profiling_name"], last["state"], last["retired"]), ("gloo:all_reduce", "started", False))

    def test_who_may_look_and_at_what(self):
        self.start(TUTTI_FAULTS="rank=1 op=all_reduce@1 stop=30s")
        self.status_when(lambda status: self.waits_of_world(status))
        for path, token in (("/status", None), ("/metrics", TOKEN + "x"), ("/nothing", TOKEN.upper()),
                            ("/status", SECRET), (f"/status?token={TOKEN}", None)):
            code, headers, body = self.ask(path, token=token)
            self.assertEqual((code, headers["WWW-Authenticate"]), (401, 'Bearer realm="tutti"'))
            self.assertNotIn("rank", body)
        self.assertIn("/metrics", self.ask("/")[2])
        self.assertEqual(self.ask("/nothing")[0], 404)
        code, headers, _ = self.ask("/status", method="DELETE")
        self.assertEqual((code, headers["Allow"]), (405, "GET, HEAD"))
        with socket.socket() as other:  # no address but loopback's
            other.bind(("127.0.0.2", self.port))

    def test_tutti_status_writes_a_page_until_the_job_ends(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        file = pathlib.Path(folder.name) / "status.html"
        known = {"TUTTI_STATUS_PORT": str(self.port), "TUTTI_JOB_SECRET": SECRET}
        job = self.start(TUTTI_FAULTS="rank=2 op=all_reduce@2 stop=90s", TUTTI_TIMEOUT_MS="90000")
        self.status_when(self.all_wait_for_2)
        with subprocess.Popen([TUTTI, "status", "--html", file], env={**os.environ, **known}, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as watch:
            self.addCleanup(watch.kill)
            self.assertIn("status.html shows the job", watch.stdout.readline())
            self.assertIn("rank 1 waits for rank 2", file.read_text())
            self.look_at(file)
            written = file.stat().st_mtime_ns
            end = time.monotonic() + 30
            while file.stat().st_mtime_ns == written and time.monotonic() < end:
                time.sleep(0.1)
            self.assertGreater(file.stat().st_mtime_ns, written)
            self.go_on(job)
            job.communicate(timeout=90)
            _, error = watch.communicate(timeout=60)
            self.assertEqual(watch.returncode, 0, error)
        self.assertIn("nobody listens", self.tutti("status", "--html", file, env=known).stderr)
        self.assertIn("--html: expected it with status alone", self.tutti("status", "stack", "--html", file, env=known).stderr)

    def look_at(self, file):
        """A browser shows the page as it is meant, and loads it again by itself."""
        if BROWSER is None:
            print("left out: cli_status_test, its page in a browser: there is none (Debian package chromium-headless-shell)")
            return
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(CountingPages, directory=file.parent)) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            # Its clock runs ahead whenever it has nothing to do, so it does not take the seconds between two loads.
            with browser("--virtual-time-budget=60000", "--dump-dom", f"http://127.0.0.1:{server.server_port}/status.html") as one:
                for _ in range(3):
                    self.assertTrue(CountingPages.loads.acquire(timeout=60), "the page is not loaded again")
                os.killpg(one.pid, signal.SIGKILL)
            server.shutdown()
        with browser("--dump-dom", file.as_uri()) as one:
            shown = one.communicate(timeout=60)[0]
        self.assertRegex(shown, r'<td style="background:rgb\(196 56 58 / \d+%\)" title="rank 1 waits for rank 2 in [^"]*">\d+\.\d</td>')
        self.assertEqual(shown.count("<caption>"), 2)  # which the parser closes, as every cell
        self.assertEqual(shown.count("<tr>"), 2 * 5)
        picture = file.with_suffix(".png")
        with browser("--hide-scrollbars", "--window-size=900,760", f"--screenshot={picture}", file.as_uri()) as one:
            one.communicate(timeout=60)
        self.assertEqual(picture.read_bytes()[:8], b"\x89PNG\r\n\x1a\n")
        self.assertGreater(picture.stat().st_size, 20_000, "the picture is empty")
        if keep := os.environ.get("STATUS_PICTURE"):
            shutil.copy(picture, keep)

    def test_tutti_status_takes_the_secret_from_the_environment(self):
        self.start(TUTTI_FAULTS="rank=1 op=all_reduce@1 stop=30s")
        self.status_when(lambda status: self.waits_of_world(status))
        known = {"TUTTI_JOB_SECRET": SECRET}
        said = self.tutti("status", env=known | {"TUTTI_STATUS_PORT": str(self.port)})
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertIn("rank 0 waits for rank 1", said.stdout)
        said = self.tutti("status", "metrics", "--rank", 2, "--port", self.port, env=known)
        self.assertIn('rank="2",operation="all_reduce"', said.stdout, said.stderr)
        self.assertEqual(self.tutti("status", "token", env=known).stdout, TOKEN + "\n")
        for arguments, environment, complaint in (
                ([], known, "no port: expected --port"),
                (["--port", self.port], {}, "no secret: expected the job's TUTTI_JOB_SECRET"),
                (["--port", self.port], {"TUTTI_JOB_SECRET": "x" * 16}, f"no page status from 127.0.0.1:{self.port}: 401 Unauth"),
                (["--port", self.port + 4], known, f"nobody listens at 127.0.0.1:{self.port + 4}"),
                (["pictures"], known, "pictures")):
            said = self.tutti("status", *arguments, env=environment)
            self.assertNotEqual(said.returncode, 0)
            self.assertIn(complaint, said.stderr)

    def test_many_may_look_at_once(self):
        self.start(TUTTI_FAULTS="rank=1 op=all_reduce@1 stop=30s")
        self.status_when(lambda status: self.waits_of_world(status))
        idle = [socket.create_connection(("127.0.0.1", self.port)) for _ in range(4)]
        codes = []
        clients = [threading.Thread(target=lambda: codes.append(self.ask("/status.json")[0])) for _ in range(12)]
        began = time.monotonic()
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        self.assertEqual(codes, [200] * 12)
        self.assertLess(time.monotonic() - began, 20)
        for each in idle:
            each.close()

    def test_nobody_tells_the_token_to_whatever_has_the_port_of_a_rank(self):
        with socket.socket() as thief:
            thief.bind(("127.0.0.1", self.port + 2))
            thief.listen()
            thief.settimeout(0.2)
            self.start(TUTTI_FAULTS="rank=1 op=all_reduce@1 stop=30s")
            status = self.status_when(lambda status: self.waits_of_world(status))
            self.assertIn(2, status["elsewhere"])
            said = self.tutti("status", "--rank", 2, "--port", self.port, env={"TUTTI_JOB_SECRET": SECRET})
            self.assertIn(f"nobody listens at 127.0.0.1:{self.port + 2}", said.stderr)
            with self.assertRaises(TimeoutError):
                thief.accept()

    @unittest.skipUnless(os.geteuid() == 0, "needs root for a process of another user")
    def test_a_process_of_another_user_does_not_get_the_token(self):
        ready, told = os.pipe()
        child = os.fork()
        if child == 0:
            os.setuid(12345)
            thief = socket.socket(socket.AF_UNIX)
            thief.bind(f"\0tutti-pages-{self.port}")
            thief.listen()
            os.write(told, b"x")
            asker, _ = thief.accept()
            os._exit(1 if asker.recv(1) else 0)
        os.read(ready, 1)
        said = self.tutti("status", "--port", self.port, env={"TUTTI_JOB_SECRET": SECRET})
        self.assertIn(f"is of a process of user 12345, and this is user {os.geteuid()}", said.stderr)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        os.close(ready)
        os.close(told)

    def test_what_cannot_be_is_said_and_keeps_no_job_from_running(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", self.port))
            taken.listen()
            job = self.start()
            error = job.communicate(timeout=60)[1]
        self.assertEqual(job.returncode, 0, error)
        self.assertRegex(error, rf"rank 0 has no pages: cannot listen on 127\.0\.0\.1:{self.port}: .*in use")
        done = self.tutti("run", "-n", 2, "--", TOUR, env={"TUTTI_STATUS_PORT": "http"})
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("environment variable TUTTI_STATUS_PORT=http: expected an integer from 1 to 65535", done.stderr)

    def test_without_a_secret_there_are_no_pages(self):
        with tempfile.TemporaryDirectory() as folder:
            environment = {k: v for k, v in os.environ.items() if not k.startswith("TUTTI_")}
            done = subprocess.run([TOUR], capture_output=True, text=True, timeout=60, check=False, cwd=folder,
                                  env=environment | {"TUTTI_STATUS_PORT": str(self.port), "RANK": "0", "WORLD_SIZE": "1",
                                                     "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.port + 1)})
        self.assertIn("TUTTI_STATUS_PORT is set, and the job has no secret: no pages; set TUTTI_JOB_SECRET", done.stderr)

    def test_without_the_variable_nobody_listens(self):
        job = self.start(TUTTI_STATUS_PORT="", TUTTI_FAULTS="rank=1 op=all_reduce@1 stop=5s")
        for _ in range(20):
            self.assertIsNone(self.ask("/status"))
            time.sleep(0.05)
        ranks = [int(pid) for pid in pathlib.Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()]
        names = {task.read_text().strip() for rank in ranks for task in pathlib.Path(f"/proc/{rank}/task").glob("*/comm")}
        self.assertNotIn("tutti-pages", names)


if __name__ == "__main__":
    main("cli_status_test")
