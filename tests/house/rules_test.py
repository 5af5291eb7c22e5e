#!/usr/bin/env python3
"""Tests rules.py on copies of this tree with one seeded fault each: every fault must be found, and nothing else.

Usage: rules_test.py ROOT ROOMS.json
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT, ROOMS = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])


class Rules(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=ROOMS.parent)
        self.addCleanup(folder.cleanup)
        self.copy = pathlib.Path(folder.name)
        for part in ("src", "include", "bench"):
            shutil.copytree(ROOT / part, self.copy / part)
        self.rooms = json.loads(ROOMS.read_text())

    def run_rule(self, rule):
        rooms_file = self.copy / "rooms.json"
        rooms_file.write_text(json.dumps(self.rooms))
        result = subprocess.run([sys.executable, ROOT / "tests/house/rules.py", self.copy, rooms_file, rule],
                                capture_output=True, text=True, check=False)
        return result.returncode, result.stdout

    def append(self, file, text):
        with (self.copy / file).open("a") as out:
            out.write(text)

    def expect_fault(self, rule, text):
        status, output = self.run_rule(rule)
        faults = [line for line in output.splitlines() if not line.startswith("hint")]
        self.assertEqual((status, len(faults)), (1, 1), output)
        self.assertTrue(faults[0].startswith(text), output)

    def test_an_untouched_copy_keeps_every_rule_that_is_tested_here(self):
        for rule in ("direction", "headers", "length", "paths"):
            self.assertEqual(self.run_rule(rule)[0], 0, rule)

    def test_a_room_that_includes_one_above_it_is_found(self):
        self.append("src/core/env.cpp", '#include "store/wire.hpp"\n')
        self.expect_fault("direction", "src/core/env.cpp:")

    def test_a_room_beside_the_others_keeps_the_direction_too(self):
        self.append("bench/collectives/page.cpp", '#include "cli/checkup.hpp"\n')
        self.expect_fault("direction", "bench/collectives/page.cpp:")

    def test_an_include_in_angle_brackets_with_spaces_is_found(self):
        self.append("src/tensor/copy.cpp", "  #  include <group/group.hpp>\n")
        self.expect_fault("direction", "src/tensor/copy.cpp:")

    def test_a_header_that_uses_an_undeclared_room_below_it_is_found(self):
        self.append("src/transport/links.hpp", '#include "reduce/reduce.hpp"\n')
        self.expect_fault("direction", "src/transport/links.hpp:")

    def test_a_variable_that_only_python_knows_is_found(self):
        (self.copy / "python/tutti").mkdir(parents=True)
        self.append("python/tutti/x.py", 'import os\nos.environ.get("TUTTI_LOG_LEVEL"), os.environ["TUTTI_SECRET_SWITCH"]\n')
        self.expect_fault("variables", "python/tutti/x.py:2: reads TUTTI_SECRET_SWITCH")

    def test_declaring_a_room_that_stands_above_is_found(self):
        self.rooms[0]["depends"].append("store")
        self.expect_fault("direction", "src/core/CMakeLists.txt: declares store")

    def test_a_folder_that_the_build_does_not_know_is_found(self):
        (self.copy / "src/attic").mkdir()
        self.append("src/attic/old.cpp", "int old;\n")
        self.expect_fault("direction", "src/attic: has sources")

    def test_a_public_header_that_shows_a_third_party_type_is_found(self):
        for include in ("<uv.h>", "<spdlog/spdlog.h>", '"core/deadline.hpp"'):
            with self.subTest(include):
                file = self.copy / "include/tutti/version.hpp"
                text = file.read_text()
                self.append("include/tutti/version.hpp", f"#include {include}\n")
                self.expect_fault("headers", "include/tutti/version.hpp:")
                file.write_text(text)

    def test_a_header_for_c_that_uses_another_than_c_s_own_is_found(self):
        for include in ("<sys/types.h>", "<vector>", '"capi/handles.hpp"'):
            with self.subTest(include):
                file = self.copy / "include/tutti/tutti.h"
                text = file.read_text()
                self.append("include/tutti/tutti.h", f"#include {include}\n")
                self.expect_fault("headers", "include/tutti/tutti.h:")
                file.write_text(text)

    def test_a_giant_file_is_found(self):
        (self.copy / "src/core/giant.cpp").write_text("// line\n" * 701)
        self.expect_fault("length", "src/core/giant.cpp: 701 lines")

    def test_a_private_place_is_found(self):
        self.append("src/core/env.cpp", "// see /" + "home/me/notes.txt\n")
        self.expect_fault("paths", "src/core/env.cpp:")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
