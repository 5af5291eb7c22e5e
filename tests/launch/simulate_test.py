"""tutti simulate: what it prints, what it writes, and what it says to arguments that are wrong."""
import json
import pathlib
import re
import tempfile
import xml.etree.ElementTree as xml

from cli_case import TOUR, CliCase, main


class Simulate(CliCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="simulate-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def simulated(self, *arguments):
        done = self.tutti("simulate", *arguments, env={"TUTTI_TUNE": "off"})
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def refused(self, *arguments):
        done = self.tutti("simulate", *arguments, env={"TUTTI_TUNE": "off"})
        self.assertEqual((done.returncode, done.stdout), (2, ""), arguments)
        return done.stderr

    def played(self, *arguments):
        file = self.folder / "result.json"
        self.simulated(*arguments, "--json", file)
        return json.loads(file.read_text())["plays"]

    def test_a_hundred_thousand_ranks(self):
        said = self.simulated("broadcast", "--ranks", 100000, "--hosts", 12500, "--bytes", "1K", "--network", "ethernet-100")
        self.assertRegex(said, r"(?m)knomial .* whole$")
        said = self.simulated("barrier", "--ranks", 100000, "--hosts", 12500, "--network", "fat-tree")
        self.assertRegex(said, r"hierarchical .* by classes \(256 ranks\)")

    def test_files(self):
        json_file, svg, goal = (self.folder / name for name in ("a.json", "a.svg", "a.goal"))
        self.simulated("all_reduce", "-n", 16, "--hosts", 4, "-b", "64K", "--network", "fat-tree", "--json", json_file, "--svg", svg,
                       "--goal", goal)
        play = json.loads(json_file.read_text())["plays"][0]
        self.assertEqual(len(play["finish_us"]), 16)
        self.assertEqual(max(play["finish_us"]), play["us"])
        self.assertAlmostEqual(sum(play["path_us"].values()), play["us"], delta=0.01 * play["us"])
        self.assertTrue(all(link["bytes"] > 0 for link in play["links"]))
        words = ["".join(text.itertext()) for text in xml.parse(svg).getroot().iter("{http://www.w3.org/2000/svg}text")]
        self.assertIn("all_reduce of 64K between 16 ranks on 4 hosts, fat-tree: hierarchical", words)
        self.assertTrue(goal.read_text().startswith("num_ranks 16\n\nrank 0 {\nl1: "))

    def test_sweep_and_all_algorithms(self):
        plays = self.played("all_reduce", "-n", 8, "--hosts", 8, "-b", "1K:64K", "--algorithm", "all")
        by_size = {}
        for play in plays:
            by_size.setdefault(play["bytes"], []).append(play["algorithm"])
        self.assertEqual(list(by_size), [1024, 4096, 16384, 65536])
        self.assertTrue(all("ring" in names and "recursive_doubling" in names for names in by_size.values()))

    def test_conditions(self):
        usual = self.played("broadcast", "-n", 8, "--hosts", 8, "-b", "4K", "--jitter", "0%")[0]
        late = self.played("broadcast", "-n", 8, "--hosts", 8, "-b", "4K", "--delay", "0=5ms")[0]
        self.assertGreater(late["us"], 5000)
        self.assertLess(late["us"], 5000 + 1.01 * usual["us"])
        said = self.simulated("all_reduce", "-n", 8, "--hosts", 8, "-b", "1M", "--kill", "3@100us")
        self.assertIn("rank 3 dies at 100.00 us; 0 ranks are done before they hear of it", said)
        self.assertRegex(said, r'told "rank 3 died": the first at \S+ us, the last \(rank \d\) at \S+ us')

    def test_network_file(self):
        file = self.folder / "network.json"
        file.write_text(json.dumps({"nic_gbit": 8, "us": 10, "levels": [{"hosts": 2, "gbit": 4, "us": 1}]}))
        slow = self.played("all_reduce", "-n", 8, "--hosts", 4, "-b", "16M", "--network", file)[0]
        quick = self.played("all_reduce", "-n", 8, "--hosts", 4, "-b", "16M", "--network", "ethernet-100")[0]
        self.assertGreater(slow["us"], 2 * quick["us"])
        self.assertRegex(slow["links"][0]["name"], "switch .* of level 0")
        for text, says in (("{", "JSON"), ("{}", '"nic_gbit"'), ('{"nic_gbit": -1}', "from 0"), ('{"nic_gbit": 1, "nic": 2}', 'not "nic"'),
                           ('{"nic_gbit": 1, "levels": 3}', "a list"), ('{"nic_gbit": 1, "host": {"core": 1}}', 'not "core"')):
            file.write_text(text)
            self.assertIn(says, self.refused("barrier", "-n", 2, "--hosts", 2, "--network", file), text)

    def test_infragraph(self):
        end = lambda instance, component: {"instance": instance, "component": component}
        graph = {"devices": [{"name": "server", "components": [{"name": "nic", "count": 1, "choice": "nic"}]},
                             {"name": "box", "components": [{"name": "port", "count": 4, "choice": "port"}]}],
                 "links": [{"name": "wire", "physical": {"bandwidth": {"gigabits_per_second": 8}, "latency": {"us": 1}}}],
                 "instances": [{"name": "host", "device": "server", "count": 4}, {"name": "switch", "device": "box", "count": 1}],
                 "edges": [{"ep1": end("host", "nic"), "ep2": end("switch", "port"), "scheme": "one2one", "link": "wire"}]}
        file = self.folder / "graph.json"
        file.write_text(json.dumps({"infrastructure": graph, "annotations": {"nodes": [{"name": "host"}]}}))
        said = self.simulated("all_reduce", "-n", 8, "-b", "16M", "--network", file)
        self.assertIn("8 ranks on 4 hosts", said)  # all of the file, unless --hosts says how many
        self.assertIn("\nleft out: annotations\n", said)
        # Assumed: 10 us of a message, 4.5 of them the cores'; and two links of 1 us.
        plays = [self.played("broadcast", "-n", 2, "--hosts", 2, "-b", "8", "--network", network)[0]["us"]
                 for network in (file, self.network({"nic_gbit": 8, "us": 7.5}))]
        self.assertAlmostEqual(*plays)
        self.assertIn("at least 8 hosts, not 4", self.refused("barrier", "-n", 8, "--hosts", 8, "--network", file))
        graph["edges"][0]["link"] = "wir"
        file.write_text(json.dumps(graph))
        self.assertIn('edges[0].link to name a link of the infrastructure, not "wir"; did you mean "wire"?',
                      self.refused("barrier", "-n", 4, "--network", file))
        yaml = self.folder / "graph.yaml"
        yaml.write_text("devices:\n- name: server\n")
        self.assertIn("json.dump(yaml.safe_load(sys.stdin)", self.refused("barrier", "-n", 4, "--network", yaml))

    def network(self, description):
        file = self.folder / "described.json"
        file.write_text(json.dumps(description))
        return file

    def test_wrong_arguments(self):
        for arguments, says in ((["--hosts", 3], "--hosts 3: expected a divisor of 8"),
                                (["--hosts", 2, "--ranks-per-host", 4], "expected one of them"),
                                (["--delay", "9=5ms"], 'a rank from 0 to 7, not "9"'),
                                (["--delay", "3=5"], "--delay 5: expected a time with its unit"),
                                (["--slow-link", "0-1=2", "--hosts", 2], "a share above 0 and up to 1"),
                                (["--slow-link", "0=2"], "HOST-HOST=SHARE"),
                                (["--jitter", "x"], "--jitter x: expected 0% to 1000%"),
                                (["--kill", "3"], "RANK@TIME"),
                                (["--network", "fat-tre"], "did you mean"),
                                (["-b", "64K:1K"], "FROM:TO"),
                                (["--algorithm", "rails"], "cannot serve"),
                                (["--root", 8], "--root 8: expected 0 to 7")):
            self.assertIn(says, re.sub(r"\s+", " ", self.refused("all_reduce", "-n", 8, *arguments)), arguments)
        self.assertIn("no collective given", self.refused("-n", 8))

    DDP = {"groups": {"tp": {"size": 2}, "dp": {"stride": 2}},
           "pieces": [{"name": "forward", "us": 1000},
                      {"times": 3, "pieces": [{"name": "backward", "us": 500},
                                              {"call": "all_reduce", "bytes": "64K", "group": "tp"},
                                              {"name": "bucket", "call": "all_reduce", "bytes": 1 << 18, "group": "dp"}]}]}

    def step(self, step, *arguments):
        file, result = self.folder / "step.json", self.folder / "result.json"
        file.write_text(step if isinstance(step, str) else json.dumps(step))
        said = self.simulated("--step", file, *arguments, "--json", result)
        return said, json.loads(result.read_text())

    def test_a_step(self):
        svg = self.folder / "step.svg"
        said, usual = self.step(self.DDP, "-n", 64, "--hosts", 16, "--network", "ethernet-10", "--svg", svg)
        self.assertIn("10 pieces, between 64 ranks on 16 hosts, network: ethernet-10", said)
        self.assertEqual(usual["compute_us"], 2500)
        self.assertAlmostEqual(usual["step_us"], usual["compute_us"] + usual["exposed_us"], delta=0.1)
        self.assertEqual([(cost["name"], cost["count"]) for cost in usual["costs"]],
                         [("forward", 1), ("backward", 3), ("all_reduce", 3), ("bucket", 3)])
        self.assertAlmostEqual(sum(usual["way_us"].values()), usual["step_us"], delta=0.1)
        first = usual["pieces"][3]
        self.assertEqual((first["name"], first["group"], first["begin_us"]), ("bucket", "dp", [1500, 1500]))
        words = ["".join(text.itertext()) for text in xml.parse(svg).getroot().iter("{http://www.w3.org/2000/svg}text")]
        self.assertIn("dp", words)
        said, late = self.step(self.DDP, "-n", 64, "--hosts", 16, "--network", "ethernet-10", "--delay", "5=3ms")
        self.assertEqual(late["costs"][3]["late_rank"], 5)
        self.assertIn(5, [part["rank"] for part in late["way_by_rank"]])
        self.assertIn("rank 5, where it begins, begins at 3.000 ms", said)
        self.assertGreater(late["step_us"], usual["step_us"] + 1000)
        for more in (("--slow-link", "0-1=0.1"), ("--jitter", "50%")):
            self.assertGreater(self.step(self.DDP, "-n", 64, "--hosts", 16, "--network", "ethernet-10", *more)[1]["step_us"],
                               usual["step_us"], more)

    def test_pieces_name_those_of_earlier_passes(self):
        gathers = {"pieces": [{"call": "all_gather", "bytes": "1M", "after": []},
                              {"times": 4, "pieces": [{"call": "all_gather", "bytes": "1M", "after": ["layer"]},
                                                      {"name": "layer", "us": 5000, "after": ["all_gather~1"]}]}]}
        pieces = self.step(gathers, "-n", 8, "--hosts", 8)[1]["pieces"]
        gathers = [piece for piece in pieces if piece["name"] == "all_gather"]
        layers = [piece for piece in pieces if piece["name"] == "layer"]
        self.assertEqual(layers[0]["begin_us"], gathers[0]["end_us"])
        self.assertLess(gathers[1]["begin_us"][0], layers[0]["end_us"][0])  # it runs beside the first layer
        for gather, layer in zip(gathers[2:], layers):
            self.assertEqual(gather["begin_us"], layer["end_us"])

    def test_a_recorded_run(self):
        dumps = self.folder / "dumps"
        job = self.tutti("run", "-n", 4, "--", pathlib.Path(TOUR).parent / "mesh", env={"TUTTI_TRACE_DIR": str(dumps)})
        self.assertEqual(job.returncode, 0, job.stderr)
        result = self.folder / "result.json"
        said = self.simulated("--step", dumps, "-n", 64, "--hosts", 8, "--json", result)
        self.assertIn("a recorded run of 4 ranks, ", said)
        calls = [(piece["call"], piece["group"]) for piece in json.loads(result.read_text())["pieces"] if "call" in piece]
        # tp, two neighbours, stays; dp, which reaches from the first rank to the last, and all grow.
        self.assertEqual([call for call in calls if call[0] != "barrier"],
                         [("all_gather", "2 x 1"), ("all_reduce", "32 x 2"), ("all_reduce", "all")])
        self.assertIn("--ranks that 2 divides", self.refused("--step", dumps, "-n", 7))

    def test_a_record_is_read_as_it_was_timed(self):
        dumps = self.folder / "dumps"
        dumps.mkdir()
        for rank in range(2):
            lines = [{"tutti_dump": 1, "group": "g", "world": "1", "home": "2", "rank": rank, "size": 2, "machine": "m", "host": "h",
                      "pid": 1, "reason": "end", "taken_ns": 9 * 10**9}]
            # The second is made 4 ms (rank 1: 6 ms) after the first is done; the third while the second still runs.
            for number, (begin, end) in enumerate(((0, 1), (5 + 2 * rank, 12), (8 + 2 * rank, 14)), 1):
                lines.append({"number": number, "sequence": number, "what": "all_reduce of float32 × 1000, sum", "fingerprint": "7",
                              "state": "completed", "kind": "collective", "enqueued_ns": 10**9 + begin * 10**6,
                              "ended_ns": 10**9 + end * 10**6})
            lines.append({"number": 4, "sequence": 4, "what": "new_group", "fingerprint": "8", "state": "completed",
                          "kind": "collective", "enqueued_ns": 10**9 + 20 * 10**6, "ended_ns": 10**9 + 21 * 10**6})
            (dumps / f"g.rank-{rank}.dump").write_text("".join(json.dumps(line) + "\n" for line in lines))
        result = self.folder / "result.json"
        said = self.simulated("--step", dumps, "-n", 16, "--hosts", 4, "--json", result)
        self.assertIn("computing as of 2 of 2 records; not played: 1 x new_group", said)
        pieces = json.loads(result.read_text())["pieces"]
        takes = [piece["end_us"][0] - piece["begin_us"][0] for piece in pieces if piece["name"] == "computing"]
        for us, expected in zip(takes, (5000, 3000, 6000), strict=True):
            self.assertAlmostEqual(us, expected, delta=0.01)
        self.assertEqual(pieces[3]["begin_us"], pieces[2]["begin_us"])  # computing goes on beside the second call

    def test_a_graph(self):
        graph = pathlib.Path(__file__).resolve().parent.parent.parent / "docs" / "images" / "graph" / "step.txt"
        result = self.folder / "result.json"
        said = self.simulated("--step", graph, "-n", 32, "--hosts", 8, "--json", result)
        self.assertIn("a graph of 11 nodes, of 2 ranks", said)
        answer = json.loads(result.read_text())
        names = [piece["name"] for piece in answer["pieces"]]
        self.assertIn("forward", names)
        self.assertIn("all_reduce", names)
        self.assertGreater(answer["hidden_us"] + answer["exposed_us"], 0)

    def test_wrong_steps(self):
        file = self.folder / "step.json"
        for text, says in (("{", "JSON"), ("[]", "the file []: expected an object"), ("{}", '"pieces", a list'),
                           ('{"pieces": []}', "at least one piece"),
                           ('{"pieces": [{"us": -1}]}', "pieces[0].us -1: expected a number from 0"),
                           ('{"pieces": [{"name": "x"}]}', 'pieces[0]: expected "us"'),
                           ('{"piece": []}', 'did you mean "pieces"'),
                           ('{"pieces": [{"call": "all_reduc", "bytes": 1}]}', 'did you mean "all_reduce"'),
                           ('{"pieces": [{"call": "all_reduce"}]}', '"bytes", of the whole buffer'),
                           ('{"pieces": [{"call": "all_reduce", "bytes": "1X"}]}', 'pieces[0].bytes "1X": expected a size'),
                           ('{"pieces": [{"call": "all_reduce", "bytes": 1, "group": "tp"}]}', "expected one of all"),
                           ('{"pieces": [{"call": "all_reduce", "bytes": 1, "dtype": "float"}]}', 'pieces[0].dtype "float"'),
                           ('{"pieces": [{"us": 1, "after": ["b"]}]}', 'pieces[0].after "b": expected the name of a piece before'),
                           ('{"groups": {"tp": {"size": 3}}, "pieces": []}', "size times stride, 3, to divide 8"),
                           ('{"groups": {"x": {"size": 4, "stride": 2}}, "pieces": [{"call": "barrier", "group": "x"}]}', "")):
            file.write_text(text)
            if says:
                self.assertIn(says, re.sub(r"\s+", " ", self.refused("--step", file, "-n", 8)), text)
            else:
                self.simulated("--step", file, "-n", 8)
        self.assertIn("a JSON file, a folder of dumps", re.sub(r"\s+", " ", self.refused("--step", self.folder / "none")))
        for more in (("all_reduce",), ("--kill", "3@1ms"), ("--goal", "x"), ("--calls", 2), ("--algorithm", "ring")):
            self.assertIn("expected one of them", re.sub(r"\s+", " ", self.refused("--step", file, "-n", 8, *more)))


if __name__ == "__main__":
    main("cli_simulate_test")
