"""tutti bench and tutti explain: fields, checks, refusals."""
import json
import pathlib
import tempfile

from cli_case import CliCase, main

FIELDS = {"collective", "bytes", "dtype", "op", "ranks", "transport", "implementation", "median_us", "p10_us", "p90_us",
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
                self.assertIn("cache line", table)
                self.assertIn("busbw", table)

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
            if algorithm == "hierarchical":
                continue  # tests/hosts
            transport = "shm" if algorithm in ("shared", "shared_both", "one_shot", "two_shot") else "tcp"
            with self.subTest(collective=collective, algorithm=algorithm):
                _, found = self.measure(collective, "-n", 5, "-b", 40, "-e", "400K", "-f", 100, "--transport", transport,
                                        "--iters", 2, "--no-limits", env={"TUTTI_ALGORITHM": f"{collective}={algorithm}"})
                self.assertEqual({row["wrong"] for row in found}, {0})

    def test_bus_bandwidth_is_nccl_tests_s(self):
        _, found = self.measure("all_reduce,all_gather", "-n", 4, "-b", "1M", "-e", "1M")
        for row, factor in zip(found, (1.5, 0.75)):
            self.assertAlmostEqual(row["busbw_gbps"], row["bytes"] / row["median_us"] / 1000 * factor, 6)

    def test_peers_are_measured_in_turn_and_missing_ones_are_named(self):
        """With every peer that is built here (make bench builds them); one that is not is left out, and told."""
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "rows.json"
            done = self.tutti("bench", "all", "-n", 2, "-b", 64, "-e", 64, "--against", "openmpi,mpich,gloo,torch",
                              "--rounds", 1, "--seconds", "0.01", "--no-limits", "--json", file)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            rows = json.loads(file.read_text())
        found = {row["implementation"] for row in rows}
        self.assertIn("tutti", found)
        for row in rows:
            self.assertEqual((row["wrong"], row["ranks"]), (0, 2), row)
        for peer in ("openmpi", "mpich", "gloo", "torch"):
            told = f"{peer} is left out" in done.stderr
            self.assertNotEqual(told, any(name.startswith(peer) for name in found), done.stderr)

    def test_bad_arguments_are_refused_in_a_sentence(self):
        for arguments, words in ((["all_reduc"], "all_reduce"), (["all_reduce", "-b", "8X"], "8X"),
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
    def test_every_collective_is_explained(self):
        for collective in ("all_reduce", "broadcast", "reduce", "all_gather", "gather", "scatter", "reduce_scatter",
                           "all_to_all", "barrier"):
            for layout in (["--ranks", 4], ["--ranks", 16, "--hosts", 2], ["--ranks", 5, "--transport", "tcp"]):
                for size in ("8", "1M"):
                    done = self.tutti("explain", collective, *layout, "--bytes", size)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    for words in ("why:", "rank 0:", "estimated time:"):
                        self.assertIn(words, done.stdout)

    def test_bad_arguments_are_refused_in_a_sentence(self):
        for arguments, words in ((["all_reduce", "--ranks", 2, "--hosts", 3], "--hosts 3"),
                                 (["all_reduce", "--rank", 7], "--rank 7"), (["all_reduce", "--bytes", "many"], "many"),
                                 (["reduce_all"], "reduce_all"), (["all_reduce", "--algorithm", "magic"], "magic")):
            with self.subTest(arguments=arguments):
                done = self.tutti("explain", *arguments)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(words, done.stderr)


if __name__ == "__main__":
    main("cli_bench_test")
