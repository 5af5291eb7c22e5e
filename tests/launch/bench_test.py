"""tutti bench and tutti explain: fields, checks, refusals."""
import csv
import io
import json
import os
import pathlib
import re
import sys
import tempfile

from cli_case import CliCase, TUTTI, main

FIELDS = {"collective", "bytes", "dtype", "op", "ranks", "transport", "implementation", "median_us", "mean_us",
          "p10_us", "p90_us", "cpu_us", "cpu_ns_per_byte", "bound_us", "traffic_bound_us", "line_ns", "line_before_ns", "line_after_ns",
          "busbw_gbps", "wrong"}


class Bench(CliCase):
    def measure(self, *arguments, env=None):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "rows.json"
            done = self.tutti("bench", *arguments, "--seconds", "0.01", "--json", file, env=env)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            return done.stdout, json.loads(file.read_text())

    def test_rows_have_the_promised_fields_and_right_results(self):
        for transport in ("shm", "tcp", "inproc"):
            with self.subTest(transport=transport):
                table, found = self.measure("all", "-n", 3, "-b", 48, "-e", "64K", "-f", 40, "--transport", transport)
                self.assertGreaterEqual(len(found), 19)
                for row in found:
                    self.assertEqual(set(row), FIELDS)
                    self.assertEqual((row["wrong"], row["ranks"], row["transport"], row["implementation"]),
                                     (0, 3, transport, "tutti"))
                    self.assertLessEqual(row["p10_us"], row["median_us"])
                    self.assertLessEqual(row["median_us"], row["p90_us"])
                    self.assertGreater(row["median_us"], 0)
                    self.assertGreater(row["cpu_us"], 0)
                    self.assertEqual(row["cpu_ns_per_byte"] is None, row["bytes"] == 0)
                    self.assertGreater(row["line_ns"], 0)
                self.assertIn("cache line", table)
                self.assertIn("busbw", table)

    def test_options_have_nccl_tests_names_too(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "rows.csv"
            done = self.tutti("bench", "all_reduce", "-np", 2, "-b", "8", "-e", "8", "-w", 1, "-i", 5, "-o", "max", "-d", "int64", "-c", 0,
                              "--no-limits", "--csv", file)
            self.assertEqual(done.returncode, 0, done.stderr)
            (row,) = csv.DictReader(io.StringIO(file.read_text()))
        self.assertEqual((row["collective"], row["bytes"], row["op"], row["dtype"], row["ranks"], row["wrong"]),
                         ("all_reduce", "8", "max", "int64", "2", ""))

    def test_a_list_of_sizes(self):
        _, found = self.measure("all_reduce,barrier", "-n", 2, "--sizes", "64K,8,4K")
        self.assertEqual([(row["collective"], row["bytes"]) for row in found],
                         [("all_reduce", 65536), ("all_reduce", 8), ("all_reduce", 4096), ("barrier", 0)])
        enough = len(os.sched_getaffinity(0)) >= 2
        for row in found:  # between two ranks with a CPU each
            self.assertEqual((row["line_before_ns"] > 0, row["line_after_ns"] > 0), (enough, enough))

    def test_symmetric_memory_gives_right_results(self):
        for transport in ("shm", "tcp", "inproc"):
            with self.subTest(transport=transport):
                _, found = self.measure("all", "-n", 3, "-b", 48, "-e", "1M", "-f", 150, "--transport", transport,
                                        "--symmetric", "--iters", 3, "--no-limits")
                self.assertGreaterEqual(len(found), 19)
                self.assertEqual({row["wrong"] for row in found}, {0})

    def test_every_type_and_operator(self):
        _, found = self.measure("all_reduce", "-b", 1000, "-e", 1000, "--dtype",
                                "bool,uint8,int16,int64,float16,bfloat16,float32,float64,complex64,float8_e4m3fn")
        self.assertEqual([row["wrong"] for row in found], [0] * 10)
        for op in ("sum", "avg", "prod", "min", "max", "band", "bor", "bxor", "premul_sum"):
            dtype = "int32" if op.startswith("b") else "float32"
            _, found = self.measure("all_reduce,reduce_scatter", "-b", "4K", "-e", "4K", "--op", op, "--dtype", dtype)
            self.assertEqual([(row["op"], row["wrong"]) for row in found], [(op, 0)] * 2)

    def test_every_algorithm_gives_right_results_when_it_is_asked_for(self):
        table = self.tutti("explain", "--table").stdout.splitlines()[1:]
        names = [line.split()[:2] for line in table if line]
        self.assertGreater(len(names), 25)
        for collective, algorithm in names:
            if algorithm in ("hierarchical", "rails"):
                continue  # tests/hosts
            inside = ("slots", "shared", "single_copy", "one_shot", "two_shot", "in_place")
            transport = "shm" if algorithm in inside else "tcp"
            # An algorithm that needs symmetric memory is chosen there; by name it would be refused until a group has some.
            extra = {"env": {"TUTTI_ALGORITHM": f"{collective}={algorithm}"}}
            flags = []
            if algorithm == "in_place":
                extra, flags = {}, ["--symmetric"]
            with self.subTest(collective=collective, algorithm=algorithm):
                largest = "4000" if algorithm == "slots" else "400K"
                _, found = self.measure(collective, "-n", 5, "-b", 40, "-e", largest, "-f", 100,
                                        "--transport", transport, "--iters", 2, "--no-limits",
                                        *flags, **extra)
                self.assertEqual({row["wrong"] for row in found}, {0})
        refused = self.tutti("bench", "all_reduce", "-n", 3, "--sizes", "1K", "--no-limits", "--transport", "tcp",
                             env={"TUTTI_ALGORITHM": "all_reduce=two_shot"})
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn('algorithm "two_shot" cannot serve this all_reduce', refused.stderr)
        refused = self.tutti("bench", "all_reduce", "-n", 2, "--sizes", "8,64K", "--no-limits",
                             env={"TUTTI_ALGORITHM": "slots"})
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn('algorithm "slots" cannot serve this all_reduce: expected one of one_shot, two_shot', refused.stderr)

    def test_plans_stand_beside_the_plain_calls(self):
        table, found = self.measure("all", "-n", 3, "-b", 48, "-e", "64K", "-f", 40, "--plan")
        self.assertEqual({row["wrong"] for row in found}, {0})
        self.assertEqual([row["implementation"] for row in found], ["tutti", "tutti-plan"] * (len(found) // 2))
        for plain, planned in zip(found[::2], found[1::2]):
            self.assertEqual((plain["collective"], plain["bytes"]), (planned["collective"], planned["bytes"]))
        self.assertIn("time/tutti", table)
    def test_regret_compares_every_algorithm_with_the_choice(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "regret.json"
            done = self.tutti("bench", "all_reduce,gather,sendrecv,barrier", "-n", 3, "-b", 64, "-e", "4K", "-f", 64,
                              "--transport", "tcp", "--regret", "--rounds", 2, "--seconds", "0.005", "--json", file)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            found = json.loads(file.read_text())
        self.assertEqual([row["collective"] for row in found], ["all_reduce"] * 2 + ["gather"] * 2 + ["barrier"])
        for row in found:
            times = row["times_us"]
            self.assertIn(row["chosen"], times)
            self.assertEqual(times[row["best"]], min(times.values()))
            self.assertAlmostEqual(row["regret_percent"], 100 * (times[row["chosen"]] / times[row["best"]] - 1), 3)
            self.assertGreaterEqual(len(times), 1 if row["collective"] == "barrier" else 2)
        self.assertIn("the worst", done.stdout)
        refused = self.tutti("bench", "all_reduce", "--regret", "--against", "gloo")
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("--against", refused.stderr)

    def test_slots_are_compared_like_any_other_algorithm_and_rules_come_before_them(self):
        def regret(**env):
            with tempfile.TemporaryDirectory() as folder:
                file = pathlib.Path(folder) / "regret.json"
                done = self.tutti("bench", "all_reduce,barrier,all_to_all", "-n", 2, "--sizes", "64,256K", "--regret",
                                  "--rounds", 1, "--seconds", "0.005", "--json", file, env=env)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                return {(row["collective"], row["bytes"]): row for row in json.loads(file.read_text())}

        found = regret()
        for key in (("all_reduce", 64), ("all_to_all", 64), ("barrier", 0)):
            self.assertEqual(found[key]["chosen"], "slots")
            self.assertIn("slots", found[key]["times_us"])
        self.assertNotIn("slots", found["all_reduce", 256 << 10]["times_us"])
        ruled = regret(TUTTI_TUNE="all_reduce:1K=one_shot")
        self.assertEqual(ruled["all_reduce", 64]["chosen"], "one_shot")
        self.assertEqual(ruled["barrier", 0]["chosen"], "slots")

    def test_ranks_with_different_settings_agree(self):
        """Rank 0's count. The others name algorithms of their own, measure, or turn the tuner off."""
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "rows.json"
            script = ('case $RANK in 0) export TUTTI_TUNE=all_reduce=ring;; 1) export TUTTI_TUNE=off;; '
                      '2) export TUTTI_ALGORITHM=direct;; *) export TUTTI_TUNE=all_reduce=direct,/no/such/file;; esac; '
                      f'TUTTI_TRANSPORT=tcp exec {TUTTI} bench all_reduce,reduce_scatter,all_gather -n 4 -b 64 -e 4M -f 64 '
                      f'--transport tcp --iters 2 --no-pin --worker "0 0 0" --json {file}')
            done = self.shell(4, script, env={"XDG_CACHE_HOME": folder})
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertEqual({row["wrong"] for row in json.loads(file.read_text())}, {0})

    def test_the_cache_is_made_once_and_does_not_matter_when_it_cannot_be(self):
        arguments = ("explain", "all_reduce", "-n", 4, "-b", "1M", "--transport", "tcp")

        def numbers(text):
            """What was measured, and what there was no time for: the next starts do that."""
            source, values = re.search(r"numbers \(measured on this host(.*?)\): (.*?) predicted:",
                                       re.sub(r"\s+", " ", text)).groups()
            missing = re.search(r"not measured but assumed: (.*)", source)
            missing = set(missing[1].split(", ")) if missing else set()
            words = values.split()
            return {name: value for name, value in zip(words[::2], words[1::2]) if name not in missing}, missing

        with tempfile.TemporaryDirectory() as folder:
            first = self.tutti(*arguments, env={"XDG_CACHE_HOME": folder})
            self.assertEqual(first.returncode, 0, first.stderr)
            known, missing = numbers(first.stdout)
            self.assertIn("cores", known)
            for _ in range(5):  # of which at most three measure
                before, missing_before = known, missing
                known, missing = numbers(self.tutti(*arguments, env={"XDG_CACHE_HOME": folder}).stdout)
                self.assertLessEqual(before.items(), known.items())
                self.assertLessEqual(missing, missing_before)
            self.assertEqual((known, missing), (before, missing_before))
            files = list((pathlib.Path(folder) / "tutti").iterdir())
            self.assertEqual(len(files), 1)
            self.assertEqual(files[0].stat().st_mode & 0o777, 0o600)
            files[0].write_bytes(b"\x00garbage")
            self.assertEqual(self.tutti(*arguments, env={"XDG_CACHE_HOME": folder}).returncode, 0)
        for place in ("/proc/nowhere", "relative", "/dev/null"):
            done = self.tutti(*arguments, env={"XDG_CACHE_HOME": place, "HOME": "/dev/null"})
            self.assertEqual((done.returncode, done.stderr), (0, ""))
        off = self.tutti(*arguments, env={"TUTTI_TUNE": "off"})
        self.assertIn("the table's limits choose", off.stdout)

    def test_printed_choices_can_be_fed_back(self):
        layout = ("-n", 4, "--transport", "tcp")
        with tempfile.TemporaryDirectory() as folder:
            table = pathlib.Path(folder) / "table"
            printed = self.tutti("explain", "--choices", *layout).stdout
            table.write_text(printed.replace("all_gather      ", "# all_gather    ") + "all_gather ring any any\n")
            again = self.tutti("explain", "--choices", *layout, env={"TUTTI_TUNE": f"off,{table}"})
            self.assertEqual(again.returncode, 0, again.stderr)
            kept = [line.split()[:4] for line in printed.splitlines() if not line.startswith("all_gather")]
            self.assertEqual([line.split()[:4] for line in again.stdout.splitlines() if not line.startswith("all_gather")],
                             kept)
            self.assertIn(["all_gather", "ring", "any", "4"], [line.split()[:4] for line in again.stdout.splitlines()])
        refused = self.tutti("explain", "all_reduce", env={"TUTTI_TUNE": "all_reduce=rign"})
        self.assertNotEqual(refused.returncode, 0)
        for words in ("TUTTI_TUNE", "rign", "recursive_doubling"):
            self.assertIn(words, refused.stderr)

    def test_a_report_needs_nothing_and_is_never_lost(self):
        """Without Python the page has no plots and says so; without limits it names none."""
        with tempfile.TemporaryDirectory() as folder:
            place = pathlib.Path(folder) / "a report"
            done = self.tutti("bench", "all_reduce,barrier", "-n", 2, "--sizes", "8,64", "--seconds", "0.02", "--no-limits",
                              "--report", place, env={"PATH": "/nonexistent"})
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("the report will have no plots", done.stderr)
            self.assertEqual(sorted(file.name for file in place.iterdir()), ["about.json", "index.html", "rows.json"])
            rows, page = json.loads((place / "rows.json").read_text()), (place / "index.html").read_text()
            self.assertEqual([row["bytes"] for row in rows], [8, 64, 0])
            self.assertEqual({row["bound_us"] for row in rows}, {None})
            self.assertIn("This page has no plots", page)
            self.assertIn("tutti bench all_reduce,barrier -n 2", page)
            about = json.loads((place / "about.json").read_text())
            for fact in (about["host"], about["cpu"], about["date"], about["versions"]["tutti"]):
                self.assertIn(fact, page)
            self.assertEqual(page.count("<tr"), 2 + 3)
            for word in ("limit", "<img"):
                self.assertNotIn(word, page.replace("--no-limits", ""))
            self.assertNotIn("bound", done.stdout)
            refused = self.tutti("bench", "all_reduce", "--report", "/proc/nowhere")
            self.assertEqual((refused.returncode, refused.stdout), (2, ""), "before anything is measured")

    def test_plots_are_drawn_where_matplotlib_is(self):
        with tempfile.TemporaryDirectory() as folder:
            done = self.tutti("bench", "all_reduce", "-n", 2, "--sizes", "8,1K,64K", "--seconds", "0.02", "--report", folder,
                              "--plot-python", sys.executable, timeout=100)
            self.assertEqual(done.returncode, 0, done.stderr)
            if "has no matplotlib" in done.stderr:
                self.skipTest("this Python has no matplotlib")
            picture = (pathlib.Path(folder) / "all_reduce.svg").read_text()
            self.assertIn("<svg", picture)
            self.assertNotIn("<script", picture)
            self.assertIn("tutti", picture)
            self.assertIn('src="all_reduce.svg"', (pathlib.Path(folder) / "index.html").read_text())

    def test_no_limit_explains_more_than_all_of_a_time(self):
        for transport in ("shm", "tcp"):
            table, found = self.measure("all_reduce,barrier", "-n", 2, "--sizes", "8,64K,1M", "--transport", transport)
            for row in found:
                if row["bound_us"] is not None:
                    self.assertLessEqual(row["bound_us"], row["median_us"])
            for percent in re.findall(r" (\d+)%", table):
                self.assertLessEqual(int(percent), 100)

    def test_bus_bandwidth_is_nccl_tests_s(self):
        _, found = self.measure("all_reduce,all_gather", "-n", 4, "-b", "1M", "-e", "1M")
        for row, factor in zip(found, (1.5, 0.75)):
            self.assertAlmostEqual(row["busbw_gbps"], row["bytes"] / row["median_us"] / 1000 * factor, 6)

    def test_peers_are_measured_in_turn_and_missing_ones_are_named_on_the_page_too(self):
        """With every peer that is built here (make bench builds them); one that is not is left out, and told."""
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "rows.json"
            done = self.tutti("bench", "all", "-n", 2, "-b", 64, "-e", 64, "--against", "openmpi,mpich,gloo,torch",
                              "--rounds", 1, "--seconds", "0.01", "--no-limits", "--json", file, "--report", folder)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            rows, page = json.loads(file.read_text()), (pathlib.Path(folder) / "index.html").read_text()
        found = {row["implementation"] for row in rows}
        self.assertIn("tutti", found)
        for row in rows:
            self.assertEqual((row["wrong"], row["ranks"]), (0, 2), row)
        for peer in ("openmpi", "mpich", "gloo", "torch"):
            told = f"{peer} is left out" in done.stderr
            if told:
                why = re.search(rf"{peer} is left out: (.*)", done.stderr)
                print(f"left out: cli_bench_test, the peer {peer}: {why.group(1)}", flush=True)
                self.assertIn(f"{peer}: {why.group(1)}", page[page.index("<dt>not measured<dd>"):])
            self.assertNotEqual(told, any(name.startswith(peer) for name in found), done.stderr)

    def test_bad_arguments_are_refused_in_a_sentence(self):
        for arguments, words in ((["all_reduc"], "all_reduce"), (["all_reduce", "-b", "8X"], "8X"),
                                 (["all_reduce", "--sizes", "8,4Q"], "4Q"), (["all_reduce", "--sizes", "8,0"], "8,0"),
                                 (["all_reduce", "--dtype", "float"], "float32"), (["all_reduce", "--op", "plus"], "sum"),
                                 (["all_reduce", "-b", "1M", "-e", "8"], "b <= e"), (["all_reduce", "-f", "1"], "factor"),
                                 (["all_reduce", "--transport", "rdma"], "rdma"), (["all_reduce", "-n", "0"], "0"),
                                 ([""], "expected all"), (["all_reduce", "--dtype", ""], "--dtype"),
                                 (["all_reduce", "-f", "nan"], "-f nan"), (["all_reduce", "--against", "nccl"], "mpich"),
                                 (["all_reduce", "--against", "gloo", "--transport", "inproc"], "shm or tcp"),
                                 (["all_reduce", "-e", "8", "--json", "/no/such/folder/x"], "/no/such/folder/x")):
            with self.subTest(arguments=arguments):
                done = self.tutti("bench", *arguments)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(words, done.stderr)


class Explain(CliCase):
    def test_short_calls_of_one_host_are_said_to_run_in_slots(self):
        """What is said here is what `tutti bench --regret` finds chosen."""
        for collective, size, short in (("all_reduce", 8, True), ("all_reduce", "32K", True), ("all_reduce", "64K", False),
                                        ("scatter", "32K", True), ("scatter", "128K", False), ("barrier", 8, True),
                                        ("all_to_all", 64, True), ("all_to_all", "1M", False)):
            with self.subTest(collective=collective, size=size):
                said = self.tutti("explain", collective, "-n", 2, "-b", size).stdout.splitlines()[0]
                self.assertEqual(said.endswith(": slots"), short, said)
        for arguments in (["--algorithm", "one_shot"], ["--transport", "tcp"], ["--hosts", 2]):
            with self.subTest(arguments=arguments):
                said = self.tutti("explain", "all_reduce", "-n", 2, "-b", 8, *arguments).stdout.splitlines()[0]
                self.assertNotIn("slots", said)
        choices = self.tutti("explain", "--choices", "-n", 2).stdout
        for collective, largest in (("all_reduce", "32768"), ("scatter", "16384"), ("barrier", "any")):
            self.assertRegex(choices, rf"(?m)^{collective} +slots +{largest} ")
        self.assertNotIn("slots", self.tutti("explain", "--choices", "-n", 2, "--transport", "tcp").stdout)
        self.assertRegex(self.tutti("explain", "--table").stdout, r"(?m)^all_to_all +slots ")

    def test_slots_are_named_and_excluded_like_any_other_algorithm(self):
        for env, chosen in (({}, "slots"), ({"TUTTI_ALGORITHM": "^slots"}, "one_shot"),
                            ({"TUTTI_ALGORITHM": "all_reduce=^slots"}, "one_shot"),
                            ({"TUTTI_ALGORITHM": "barrier=^slots"}, "slots"), ({"TUTTI_ALGORITHM": "slots"}, "slots"),
                            ({"TUTTI_TUNE": "off"}, "slots"), ({"TUTTI_TUNE": "all_reduce=one_shot"}, "one_shot")):
            with self.subTest(env=env):
                said = self.tutti("explain", "all_reduce", "-n", 2, "-b", 8, env=env).stdout.splitlines()[0]
                self.assertTrue(said.endswith(f": {chosen}"), said)

    def test_explain_says_when_quantising_pays(self):
        def explained(*arguments):
            done = self.tutti("explain", "quantized_all_reduce", "-n", 2, "-b", "64M", "--dtype", "float16", *arguments)
            return " ".join(done.stdout.split())  # lines are as long as a terminal is wide

        here = explained()
        self.assertIn("all_reduce is quicker", here)
        self.assertIn("memory is quicker than that", here)
        slow = explained("--hosts", 2, "--network", 0.125)
        self.assertIn("0.508 of all_reduce's bytes", slow)
        self.assertIn("use it", slow)
        self.assertIn("0.754 of", explained("--hosts", 2, "--network", 0.125, "--one-leg"))
        self.assertIn("0.258 of", explained("--hosts", 2, "--network", 0.125, "--type", "int4"))
        self.assertIn("all_reduce is quicker", explained("--hosts", 2, "--network", 1000))
        for arguments, word in ((("--block", 33), "--block 33"), (("--type", "int5"), "int5"),
                                (("--dtype", "int32"), "int32")):
            refused = self.tutti("explain", "quantized_all_reduce", *arguments)
            self.assertNotEqual(refused.returncode, 0)
            self.assertIn(word, refused.stderr)

    def test_every_collective_is_explained(self):
        for collective in ("all_reduce", "broadcast", "reduce", "all_gather", "gather", "scatter", "reduce_scatter",
                           "all_to_all", "barrier"):
            for layout in (["--ranks", 4], ["--ranks", 16, "--hosts", 2], ["--ranks", 5, "--transport", "tcp"]):
                for size in ("8", "1M"):
                    done = self.tutti("explain", collective, *layout, "--bytes", size)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    for words in ("why:", "rank 0:", "predicted:"):
                        self.assertIn(words, done.stdout)

    def test_bad_arguments_are_refused_in_a_sentence(self):
        for arguments, words in ((["all_reduce", "--ranks", 2, "--hosts", 3], "--hosts 3"),
                                 (["--choices", "--ranks", 2, "--hosts", 3], "--hosts 3"),
                                 (["all_reduce", "--rank", 7], "--rank 7"), (["all_reduce", "--bytes", "many"], "many"),
                                 (["reduce_all"], "reduce_all"), (["all_reduce", "--algorithm", "magic"], "magic")):
            with self.subTest(arguments=arguments):
                done = self.tutti("explain", *arguments)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(words, done.stderr)


if __name__ == "__main__":
    main("cli_bench_test")
