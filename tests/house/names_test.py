#!/usr/bin/env python3
"""Tests tools/torch-names on copies of this tree with one seeded fault each: every fault must be found, and nothing else.

Usage: names_test.py ROOT COMPILER
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT, COMPILER = pathlib.Path(sys.argv[1]), sys.argv[2]
TABLE, PAGE = "docs/torch-names.tsv", "docs/torch-names.md"
SET_ROW = "S11-004\tStore.set()\ttutti\tStore::set\tstore.hpp\n"


class Names(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.copy = pathlib.Path(folder.name)
        for part in ("include", "docs", "tests/spec"):
            shutil.copytree(ROOT / part, self.copy / part)

    def run_tool(self, *arguments):
        result = subprocess.run([sys.executable, ROOT / "tools/torch-names", "--root", self.copy, *arguments],
                                capture_output=True, text=True, check=False)
        return result.returncode, result.stdout

    def change(self, file, old, new):
        text = (self.copy / file).read_text()
        self.assertEqual(text.count(old), 1, old)
        (self.copy / file).write_text(text.replace(old, new))

    def expect_fault(self, fault):
        self.assertEqual(self.run_tool("check"), (1, fault + "\n"))

    def compiles(self):
        probe = self.copy / "probe.cpp"
        self.assertEqual(self.run_tool("probe", probe)[0], 0)
        return subprocess.run([COMPILER, "-std=c++20", "-fsyntax-only", "-I", self.copy / "include", probe],
                              capture_output=True, check=False).returncode == 0

    def test_an_untouched_copy_has_no_fault(self):
        self.assertEqual(self.run_tool("check")[0], 0)

    def test_a_row_that_is_missing_is_found(self):
        self.change(TABLE, SET_ROW, "")
        self.expect_fault("S11-004: Store.set() is missing")

    def test_a_row_that_is_there_twice_is_found(self):
        self.change(TABLE, SET_ROW, SET_ROW * 2)
        self.expect_fault("S11-004: is there 2 times")

    def test_a_new_row_of_the_inventory_is_found(self):
        with (self.copy / "tests/spec/rows.tsv").open("a") as out:
            out.write("S18-900\t-\tnew_call()\ta function\n")
        self.expect_fault("S18-900: new_call() is missing")

    def test_another_name_than_the_inventory_s_is_found(self):
        self.change(TABLE, "Store.set()\t", "Store.put()\t")
        self.expect_fault("S11-004: is called Store.set(), not Store.put()")

    def test_a_name_that_no_header_declares_is_found(self):
        self.change(TABLE, "\tStore::set\t", "\tStore::frobnicate\t")
        self.expect_fault("S11-004: store.hpp does not declare frobnicate of Store::frobnicate")

    def test_a_name_that_only_a_comment_mentions_is_found(self):
        self.change(TABLE, "\tStore::set\t", "\tStore::torch\t")
        self.expect_fault("S11-004: store.hpp does not declare torch of Store::torch")

    def test_the_wrong_header_is_found(self):
        self.change(TABLE, "\tStore::set\tstore.hpp", "\tStore::set\tstores.hpp")
        self.expect_fault("S11-004: there is no include/tutti/stores.hpp")

    def test_a_name_of_another_class_of_the_same_header_does_not_compile(self):
        self.change(TABLE, "\tStore::set\t", "\tStore::underlying_store\t")
        self.assertFalse(self.compiles())
        self.change(TABLE, "\tStore::underlying_store\t", "\tStore::set\t")
        self.assertTrue(self.compiles())

    def test_a_status_that_there_is_not_and_one_without_a_reason_are_found(self):
        self.change(TABLE, SET_ROW, "S11-004\tStore.set()\tsoon\n")
        self.expect_fault("S11-004: status soon: expected one of tutti, open, none")
        self.change(TABLE, "\tsoon\n", "\tnone\n")
        self.expect_fault("S11-004: none needs a remark, and neither names nor a header")

    def test_an_open_function_that_has_been_built_is_found(self):
        self.change(TABLE, "S18-001\tdestroy_process_group()\ttutti\tdestroy_process_group\tdistributed.hpp\n",
                    "S18-001\tdestroy_process_group()\topen\t\t\tshutting down\n")
        self.expect_fault("S18-001: destroy_process_group is in distributed.hpp now")

    def test_a_stale_page_is_found(self):
        self.change(TABLE, "USE_DISTRIBUTED=OFF", "USE_DISTRIBUTED=0")
        self.expect_fault("docs/torch-names.md: is stale; type: tools/torch-names page")
        self.assertEqual(self.run_tool("page")[0], 0)
        self.assertEqual(self.run_tool("check")[0], 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
