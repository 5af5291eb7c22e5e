"""tutti simulate: what it prints, what it writes, and what it says to arguments that are wrong."""
import json
import pathlib
import re
import tempfile
import xml.etree.ElementTree as xml

from cli_case import CliCase, main


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
        self.assertRegex(said, r"(?m)hierarchical .* whole$")
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


if __name__ == "__main__":
    main("cli_simulate_test")
