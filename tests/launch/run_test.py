"""tutti run, with real processes: variables, output, failures, and that nothing survives."""
import collections
import concurrent.futures
import os
import pathlib
import pty
import re
import resource
import signal
import subprocess
import tempfile
import time

from cli_case import TOUR, TUTTI, CliCase, main, rows


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition, seconds=10):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


class Variables(CliCase):
    @rows("S14-005", "S14-006", "S14-012", "S14-017", "A-41")
    def test_every_rank_gets_its_variables_and_the_arguments(self):
        done = self.tutti("run", "--nproc-per-node", 3, "--no-prefix", "sh", "-c",
                          'echo "$RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $MASTER_ADDR '
                          '$TORCHELASTIC_USE_AGENT_STORE $MASTER_PORT $TORCHELASTIC_RUN_ID $1 $2"', "sh", "-x", "--n")
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = sorted(done.stdout.splitlines())
        for rank, line in enumerate(lines):
            fields = line.split()
            self.assertEqual(fields[:7], [str(rank), str(rank), "3", "3", "0", "127.0.0.1", "False"])
            self.assertEqual(fields[9:], ["-x", "--n"])
        self.assertEqual(len({tuple(line.split()[7:9]) for line in lines}), 1, "one port and one run id")

    @rows("S14-014")
    def test_flags_may_have_underscores(self):
        self.assertEqual(self.tutti("run", "--nproc_per_node=2", "true").returncode, 0)
        self.assertEqual(self.tutti("run", "--no_prefix", "true").returncode, 0)

    @rows("S14-016", "S1-039")
    def test_a_program_joins_with_env_under_the_launcher(self):
        done = self.tutti("run", "-n", 4, TOUR)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("every result is as expected", done.stdout)

    @rows("S16-029")
    def test_the_tour_logs_titles_once_and_a_line_for_each_rank(self):
        lines = self.tutti("run", "-n", 4, "--no-prefix", TOUR).stdout.splitlines()
        for title in ("all_reduce", "reduce_scatter", "allgather", "broadcast"):
            self.assertEqual(lines.count(f"INFO:root:{title}:"), 1)
        for rank in range(4):
            for line in (f"all_reduce, rank: {rank}, before allreduce tensor: tensor({rank}), "
                         "after allreduce tensor: tensor(6)",
                         f"reduce_scatter, rank: {rank}, input_list: [{', '.join([f'tensor({rank})'] * 4)}], "
                         "tensor: tensor([6])",
                         f"allgather, rank: {rank}, input_tensor: tensor({rank}), output tensor_list: "
                         "[tensor([0]), tensor([1]), tensor([2]), tensor([3])]",
                         f"broadcast, rank: {rank}, before broadcast tensor: "
                         + ("tensor(4) after broadcast tensor: tensor(4)" if rank == 0
                            else "tensor([0]) after broadcast tensor: tensor([4])")):
                self.assertEqual(lines.count(f"INFO:root:{line}"), 1, line)

    @rows("S14-011")
    def test_help_lists_the_flags(self):
        done = self.tutti("run", "--help")
        self.assertEqual(done.returncode, 0)
        for flag in ("--nproc-per-node", "--transport", "--timeout", "--grace", "--color", "--no-prefix"):
            self.assertIn(flag, done.stdout)

    def test_unknown_words_get_the_nearest_known_one(self):
        self.assertIn('did you mean "run"', self.tutti("rnu").stderr)
        self.assertIn("did you mean --timeout", self.tutti("run", "--timeot", "3", "true").stderr)
        self.assertIn("--nproc-per-node", self.tutti("run", "--nprok", "3", "true").stderr)
        for wrong in (("run",), ("run", "-n", "0", "true"), ("run", "-n", "x", "true")):
            done = self.tutti(*wrong)
            self.assertNotEqual(done.returncode, 0)
            self.assertRegex(done.stderr, r"^tutti( run)?: .{10}")


class Output(CliCase):
    def test_lines_carry_the_rank_and_are_never_torn(self):
        script = 'i=0; while [ $i -lt 10000 ]; do echo "line $RANK $i abcdefghijklmnopqrstuvwxyz"; i=$((i+1)); done'
        done = self.shell(8, script)
        count = collections.Counter()
        for line in done.stdout.splitlines():
            match = re.fullmatch(r"\[rank (\d)\] line (\d) (\d+) abcdefghijklmnopqrstuvwxyz", line)
            self.assertTrue(match, line)
            self.assertEqual(match[1], match[2])
            self.assertEqual(int(match[3]), count[match[1]], "in order")
            count[match[1]] += 1
        self.assertEqual(dict(count), {str(r): 10000 for r in range(8)})

    def test_colour_only_when_asked_for_or_on_a_terminal(self):
        self.assertNotIn("\033[", self.shell(2, "echo x").stdout)
        self.assertIn("\033[", self.shell(2, "echo x", "--color=always").stdout)

    def on_terminal(self, environment):
        main_end, side = pty.openpty()
        with subprocess.Popen([TUTTI, "run", "echo", "x"], stdin=subprocess.DEVNULL, stdout=side, stderr=side,
                              env=environment) as job:
            os.close(side)
            self.assertEqual(job.wait(timeout=20), 0)
            said = os.read(main_end, 1000)
        os.close(main_end)
        return said

    def test_a_terminal_gets_colour_unless_no_color_is_set(self):
        plain = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
        self.assertIn(b"\033[", self.on_terminal(plain))
        self.assertIn(b"\033[", self.on_terminal({**plain, "NO_COLOR": ""}), "empty: not set")
        self.assertNotIn(b"\033[", self.on_terminal({**plain, "NO_COLOR": "1"}))

    def test_an_end_of_line_that_comes_in_two_parts_is_one(self):
        done = subprocess.run([TUTTI, "run", "sh", "-c", "printf 'b\\r'; sleep 0.3; printf '\\nc\\n'"],
                              capture_output=True, check=True)
        self.assertEqual(done.stdout, b"[rank 0] b\r\n[rank 0] c\n")

    def test_a_slow_reader_loses_nothing(self):
        with subprocess.Popen([TUTTI, "run", "-n", "4", "seq", "1", "20000"], stdout=subprocess.PIPE) as job:
            lines = 0
            for turn in range(10_000):
                part = os.read(job.stdout.fileno(), 1 << 16)
                lines += part.count(b"\n")
                time.sleep(1.2 if turn == 10 else 0.02)
                if not part:
                    break
            self.assertEqual(job.wait(timeout=20), 0)
        self.assertEqual(lines, 80_000)

    def test_a_reader_that_stands_still_holds_neither_the_time_limit_nor_ctrl_c_up(self):
        for options, how, status in ((["--timeout", "0.5"], lambda job: None, 124),
                                     ([], lambda job: job.send_signal(signal.SIGINT), 130)):
            with self.subTest(options=options):
                reader, writer = os.pipe()
                with subprocess.Popen([TUTTI, "run", "-n", "2", "--grace", "0.3", *options, "yes"], stdout=writer,
                                      stderr=subprocess.PIPE) as job:
                    os.close(writer)
                    time.sleep(0.5)
                    how(job)
                    try:
                        self.assertEqual(job.wait(timeout=10), status)
                    finally:
                        os.close(reader)

    def test_closed_standard_streams(self):
        done = subprocess.run(f"{TUTTI} run -n 2 sh -c 'echo x >&2; cat' <&- >&-", shell=True, capture_output=True,
                              text=True, timeout=20, check=False)
        self.assertEqual((done.returncode, sorted(done.stderr.splitlines())), (0, ["[rank 0] x", "[rank 1] x"]))

    def test_two_jobs_at_once(self):
        with concurrent.futures.ThreadPoolExecutor() as pool:
            jobs = [pool.submit(self.tutti, "run", "-n", 2, TOUR) for _ in range(2)]
            for job in jobs:
                self.assertEqual(job.result().returncode, 0, job.result().stderr)

    def test_a_last_line_without_end_is_passed_on(self):
        self.assertEqual(self.shell(1, "printf abc; printf def >&2").stdout, "[rank 0] abc\n")

    def test_progress_bars_stay_one_line(self):
        done = subprocess.run([TUTTI, "run", "sh", "-c", "printf 'a\\rb\\r\\nc\\n'"], capture_output=True, check=True)
        self.assertEqual(done.stdout, b"[rank 0] a\r[rank 0] b\n[rank 0] c\n")

    def unchanged(self, script, *options):
        done = subprocess.run([TUTTI, "run", "--no-prefix", *options, "sh", "-c", script], capture_output=True, timeout=60,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def test_without_prefix_every_byte_is_as_it_was(self):
        for text in (r"no end", r"a\0b\0\n\0", r"10%%\r20%%\r\r\n\n\r\n", r"\377\376\n\200", r"\n\n\n", ""):
            with self.subTest(text=text):
                expected = subprocess.run(["sh", "-c", f"printf '{text}'"], capture_output=True, check=True).stdout
                done = self.unchanged(f"printf '{text}'; printf '{text}' >&2")
                self.assertEqual((done.stdout, done.stderr), (expected, expected))
        megabytes = "head -c 3000000 /dev/urandom | tee $FILE"
        with tempfile.TemporaryDirectory() as folder:
            done = self.unchanged(megabytes.replace("$FILE", f"{folder}/bytes"))
            self.assertEqual(done.stdout, (pathlib.Path(folder) / "bytes").read_bytes(), "random bytes")

    def test_without_prefix_lines_of_several_ranks_stay_whole_and_in_order(self):
        script = 'i=0; while [ $i -lt 3000 ]; do printf "line $RANK "; printf "%s\n" $i; i=$((i+1)); done'
        count = collections.Counter()
        for line in self.unchanged(script, "-n", "4").stdout.decode().splitlines():
            match = re.fullmatch(r"line (\d) (\d+)", line)
            self.assertTrue(match, line)
            self.assertEqual(int(match[2]), count[match[1]])
            count[match[1]] += 1
        self.assertEqual(set(count.values()), {3000})

    def test_without_prefix_the_beginning_of_a_line_is_not_held_back(self):
        with subprocess.Popen([TUTTI, "run", "--no-prefix", "sh", "-c", "printf question; read answer; echo $answer"],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE) as job:
            self.assertEqual(os.read(job.stdout.fileno(), 100), b"question")
            out, _ = job.communicate(b"answer\n", timeout=20)
        self.assertEqual(out, b"answer\n")

    def test_the_last_lines_are_told_without_prefix_too(self):
        done = self.shell(1, "printf 'one\r\ntwo\nlast'; exit 3", "--no-prefix")
        self.assertIn("    one\n    two\n    last\n", done.stderr)

    def test_standard_input_goes_to_rank_0(self):
        done = self.shell(2, "cat", input="from outside\n")
        self.assertEqual(done.stdout, "[rank 0] from outside\n")

    def test_a_reader_that_leaves_ends_the_job(self):
        start = time.monotonic()
        job = subprocess.run(f"{TUTTI} run -n 2 yes | head -n 1", shell=True, capture_output=True, timeout=30, check=False)
        self.assertRegex(job.stdout.decode(), r"^\[rank \d\] y\n$")
        self.assertLess(time.monotonic() - start, 10)


    def test_a_long_line_arrives_whole(self):
        for size in (260_000, 3_000_000):
            with self.subTest(size=size):
                script = f"head -c {size} /dev/zero | tr '\\0' $RANK; echo; echo short $RANK"
                lines = self.shell(3, script).stdout.splitlines()
                self.assertEqual(sorted(map(len, lines)), [16] * 3 + [size + 9] * 3)
                self.assertEqual(sorted(line for line in lines if len(line) > 16),
                                 [f"[rank {r}] " + str(r) * size for r in range(3)])

    def test_a_long_line_whose_writer_waits_for_another_holds_nobody_up_for_long(self):
        with tempfile.TemporaryDirectory() as folder:
            script = f'if [ $RANK = 0 ]; then head -c 2000000 /dev/zero | tr "\\0" x; until [ -e {folder}/done ]; do sleep 0.05; ' \
                     f'done; echo end; else sleep 0.5; seq 1 100000; touch {folder}/done; fi'
            done = self.shell(2, script)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("tutti run: a line of rank 0 has more than 1 MiB and has not ended in 5 s", done.stderr)
        lines = done.stdout.splitlines()
        self.assertEqual([line for line in lines if line.startswith("[rank 1] ")], [f"[rank 1] {i}" for i in range(1, 100_001)])
        self.assertEqual("".join(line[9:] for line in lines if line.startswith("[rank 0] ")), "x" * 2_000_000 + "end")

    def test_an_output_that_is_full_is_named(self):
        def run(redirection, *command):
            return subprocess.run(f"{' '.join(map(str, (TUTTI, *command)))} {redirection}", shell=True, capture_output=True,
                                  text=True, timeout=60, check=False)

        start = time.monotonic()
        full = "No space left on device\n"
        for script in ("'echo x; sleep 50'", "'echo x'"):
            done = run(">/dev/full", "run", "-n", 2, "sh", "-c", script)
            self.assertEqual((done.returncode, done.stderr), (1, f"tutti run: standard output cannot be written: {full}"))
        done = run("2>/dev/full", "run", "-n", 2, "sh", "-c", "'echo x >&2; sleep 50'")
        self.assertEqual((done.returncode, done.stdout), (1, f"tutti run: standard error cannot be written: {full}"))
        self.assertEqual(run(">/dev/full 2>&1", "run", "-n", 2, "sh", "-c", "'echo x; sleep 50'").returncode, 1)
        self.assertLess(time.monotonic() - start, 30)
        for command in (("version",), ("--help",), ("run", "--help"), ("doctor",), ("explain", "all_reduce", "-n", "4"),
                        ("doctor", "--variables"), ("completion", "bash"), ("bench", "all_reduce", "-n", 2, "-b", "1K", "-e", "1K")):
            with self.subTest(command=command):
                done = run(">/dev/full", *command)
                self.assertNotEqual(done.returncode, 0)
                self.assertRegex(done.stderr, f"tutti.*: standard output cannot be written: {full}")

    def test_a_log_file_that_is_full_is_named_and_the_job_goes_on(self):
        with tempfile.TemporaryDirectory() as folder:
            done = self.tutti("run", "-n", 1, "--log-dir", folder, "--run-id", "x", "sh", "-c", "seq 1 20000",
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000)))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(len(done.stdout.splitlines()), 20000)
            self.assertIn(f"tutti run: {folder}/x/attempt_0/0/stdout.log ends here, incomplete: File too large", done.stderr)


class Failures(CliCase):
    def test_the_first_to_fail_is_reported_with_its_cause_and_last_lines(self):
        done = self.shell(3, 'if [ $RANK = 1 ]; then echo "disk full" >&2; exit 3; fi; sleep 30')
        self.assertEqual(done.returncode, 3)
        self.assertRegex(done.stderr, r"rank 1 \(pid \d+\) was the first to fail, after .*: exited with status 3")
        self.assertIn("    disk full", done.stderr)

    def test_a_signal_is_told_in_words(self):
        done = self.shell(2, "[ $RANK = 1 ] && kill -9 $$; sleep 30")
        self.assertEqual(done.returncode, 128 + 9)
        self.assertIn("killed by signal 9 (SIGKILL)", done.stderr)

    def test_who_died_is_named_and_not_who_complained(self):
        with tempfile.TemporaryDirectory() as folder:
            script = f'echo $$ > {folder}/$RANK; exec {TUTTI} bench all_reduce -b 1M -e 1M --iters 500000 --worker "1 1 1"'
            with subprocess.Popen([TUTTI, "run", "-n", "3", "--", "sh", "-c", script], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True) as job:
                self.assertTrue(wait_until(lambda: len(os.listdir(folder)) == 3))
                time.sleep(1.5)
                os.kill(int((pathlib.Path(folder) / "2").read_text()), signal.SIGKILL)
                _, errors = job.communicate(timeout=20)
        self.assertEqual(job.returncode, 128 + 9, errors)
        self.assertRegex(errors, r"tutti run: rank 2 .*was the first to fail.*SIGKILL")
        self.assertRegex(errors, r"\[rank 0\].*rank 2", "the others name it too")

    def when_rank_1_has_been_noticed(self, then):
        """Rank 1 exits with status 1; rank 2 does `then` when the launcher has taken notice of that."""
        with tempfile.TemporaryDirectory() as folder:
            return self.shell(3, f'case $RANK in 1) echo $$ > {folder}/new; mv {folder}/new {folder}/1; sleep 0.3; exit 1;; '
                                 f'2) until [ -e {folder}/1 ]; do sleep 0.01; done; '
                                 f'until grep -q " Z " /proc/$(cat {folder}/1)/stat; do :; done; sleep 0.05; {then};; esac; sleep 30')

    def test_who_was_killed_is_named_though_another_was_seen_to_exit_before(self):
        done = self.when_rank_1_has_been_noticed("kill -9 $$")
        self.assertEqual(done.returncode, 128 + 9, done.stderr)
        self.assertRegex(done.stderr, r"rank 2 .*was the first to fail.*SIGKILL")
        self.assertRegex(done.stderr, r"the others: .*rank 1 exited with status 1")

    def test_who_aborts_or_is_killed_long_after_an_exit_was_not_the_first(self):
        for then in ("kill -ABRT $$", "sleep 0.5; kill -9 $$"):
            done = self.when_rank_1_has_been_noticed(then)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertRegex(done.stderr, r"rank 1 .*was the first to fail.*status 1")

    def test_a_program_that_cannot_be_started(self):
        done = self.tutti("run", "-n", 2, "/no/such/program")
        self.assertEqual(done.returncode, 127)
        self.assertIn("could not be started: No such file or directory", done.stderr)
        done = self.tutti("run", "no-such-program")
        self.assertEqual(done.returncode, 127)

    def test_a_program_that_is_there_and_cannot_be_executed(self):
        with tempfile.TemporaryDirectory() as folder:
            def file(name, text, mode=0o755):
                path = pathlib.Path(folder) / name
                path.write_bytes(text)
                path.chmod(mode)
                return path

            for program, reason in ((file("plain", b"", 0o644), "Permission denied"), (folder, "it is a directory"),
                                    (file("orphan", b"#!/no/such/interpreter -x\n"), "its interpreter /no/such/interpreter is not"),
                                    (file("windows", b"#!/bin/sh\r\necho x\r\n"), "its interpreter /bin/sh is not here: its lines end as on Windows"),
                                    (file("alien", b"\x7fELF\0\0\0\0 of another machine"), "Exec format error")):
                with self.subTest(program=program):
                    done = self.tutti("run", "-n", 2, "--max-restarts", 2, program)
                    self.assertEqual(done.returncode, 126, done.stderr)
                    self.assertRegex(done.stderr, f"rank 0 .*could not be started: {reason}")
            # As shells have it, and the first in PATH that can be executed.
            script = file("script", b"echo plain $1\n")
            self.assertEqual(self.tutti("run", script, "x").stdout, "[rank 0] plain x\n")
            path = f"{folder}/a:{folder}/b:{os.environ['PATH']}"
            for name, mode in (("a", 0o644), ("b", 0o755)):
                (pathlib.Path(folder) / name).mkdir()
                file(f"{name}/tool", b"#!/bin/sh\necho tool\n", mode)
            self.assertEqual(self.tutti("run", "tool", env={"PATH": path}).stdout, "[rank 0] tool\n")
            (pathlib.Path(folder) / "b" / "tool").unlink()
            self.assertEqual(self.tutti("run", "tool", env={"PATH": path}).returncode, 126)

    def test_a_time_limit_ends_the_job(self):
        done = self.shell(2, "sleep 30", "--timeout", "0.5")
        self.assertEqual(done.returncode, 124)
        self.assertIn("--timeout", done.stderr)

    def test_who_ignores_sigterm_is_killed_after_the_grace(self):
        start = time.monotonic()
        self.shell(2, "trap '' TERM; sleep 30 & wait; sleep 30", "--timeout", "0.5", "--grace", "0.5")
        self.assertLess(time.monotonic() - start, 10)


class NothingSurvives(CliCase):
    def pids_of_job(self, folder, how):
        script = f'echo $$ >> {folder}/pids; (sleep 100) & echo $! >> {folder}/pids; setsid sleep 100 & ' \
                 f'echo $! >> {folder}/pids; wait'
        with subprocess.Popen([TUTTI, "run", "-n", "2", "--", "sh", "-c", script], stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True) as job:
            file = pathlib.Path(folder) / "pids"
            self.assertTrue(wait_until(lambda: file.exists() and len(file.read_text().split()) == 6))
            how(job)
            job.communicate(timeout=20)
        return [int(pid) for pid in file.read_text().split()], job

    def test_ctrl_c(self):
        with tempfile.TemporaryDirectory() as folder:
            pids, job = self.pids_of_job(folder, lambda job: job.send_signal(signal.SIGINT))
        self.assertEqual(job.returncode, 128 + signal.SIGINT)
        self.assertTrue(wait_until(lambda: not any(map(alive, pids))), pids)

    def test_sigterm(self):
        with tempfile.TemporaryDirectory() as folder:
            pids, job = self.pids_of_job(folder, lambda job: job.send_signal(signal.SIGTERM))
        self.assertEqual(job.returncode, 128 + signal.SIGTERM)
        self.assertTrue(wait_until(lambda: not any(map(alive, pids))), pids)

    def test_ctrl_c_twice_does_not_wait_for_the_grace(self):
        script = "trap '' INT TERM; echo ready; while :; do sleep 1; done"
        with subprocess.Popen([TUTTI, "run", "-n", "2", "--grace", "60", "--", "sh", "-c", script], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as job:
            for _ in range(2):
                self.assertIn("ready", job.stdout.readline())
            job.send_signal(signal.SIGINT)
            with self.assertRaises(subprocess.TimeoutExpired):
                job.wait(timeout=0.5)
            job.send_signal(signal.SIGINT)
            self.assertEqual(job.wait(timeout=20), 128 + signal.SIGINT)

    def test_signals_that_were_ignored_stay_ignored(self):
        with subprocess.Popen(["nohup", TUTTI, "run", "-n", "2", "sh", "-c", "echo ready; sleep 1"], text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as job:
            self.assertIn("ready", job.stdout.readline())
            job.send_signal(signal.SIGHUP)
            self.assertEqual(job.wait(timeout=20), 0)

    def test_a_parent_that_ignores_its_children_does_not_hide_ours(self):
        done = self.tutti("run", "-n", 2, "sh", "-c", "exit 3", timeout=20,
                          preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        self.assertEqual(done.returncode, 3)

    def test_a_launcher_that_is_killed_takes_its_job_along(self):
        with tempfile.TemporaryDirectory() as folder:
            pids, _ = self.pids_of_job(folder, lambda job: job.kill())
        # Those that made a session of their own, too.
        self.assertTrue(wait_until(lambda: not any(map(alive, pids))), [pid for pid in pids if alive(pid)])

    def test_what_a_rank_leaves_behind_ends_with_the_job(self):
        with tempfile.TemporaryDirectory() as folder:
            start = time.monotonic()
            done = self.shell(2, f"sleep 100 & echo $! >> {folder}/pids; setsid sleep 100 & echo $! >> {folder}/pids")
            pids = [int(pid) for pid in (pathlib.Path(folder) / "pids").read_text().split()]
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertLess(time.monotonic() - start, 10)
        self.assertEqual(len(pids), 4)
        self.assertTrue(wait_until(lambda: not any(map(alive, pids))), pids)


if __name__ == "__main__":
    main("cli_run_test")
