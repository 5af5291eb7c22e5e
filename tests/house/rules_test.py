#!/usr/bin/env python3
"""Tests rules.py on copies of this tree with one seeded fault each: every fault must be found, and nothing else.

Usage: rules_test.py ROOT ROOMS.json
"""
import contextlib
import io
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import rules
from classes import classes

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
        faults = [line for line in output.splitlines() if not line.startswith(("hint", "    "))]
        self.assertEqual((status, len(faults)), (1, 1), output)
        self.assertTrue(output[output.index(faults[0]):].startswith(text), output)

    def test_an_untouched_copy_keeps_every_rule_that_is_tested_here(self):
        for rule in ("circles", "classes", "direction", "headers", "length", "paths"):
            self.assertEqual(self.run_rule(rule)[0], 0, rule)

    def test_a_room_that_includes_one_above_it_is_found(self):
        self.append("src/core/env.cpp", '#include "store/wire.hpp"\n')
        self.expect_fault("direction", "src/core/env.cpp:")

    def test_a_room_beside_the_others_keeps_the_direction_too(self):
        self.append("bench/collectives/page.cpp", '#include "cli/checkup.hpp"\n')
        self.expect_fault("direction", "bench/collectives/page.cpp:")

    def test_a_circle_of_three_modules_is_found(self):
        self.rooms = [room for room in self.rooms if room["name"] == "reduce"]
        self.append("src/reduce/few.hpp", '#include "reduce/kernels.hpp"\n')
        self.append("src/reduce/kernels-inl.hpp", '#include "reduce/few.hpp"\n')
        self.append("src/reduce/few_test.cpp", '#include "reduce/reduce.hpp"\n')
        self.assertEqual(self.run_rule("circles")[0], 0, "two modules may need each other, and tests do not count")
        self.append("src/reduce/few.hpp", '#include "reduce/reduce.hpp"\n')
        self.expect_fault("circles", "src/reduce: a circle of 3 modules; the limit is 2\n"
                                     "    reduce/few includes reduce/kernels, reduce/reduce\n"
                                     "    reduce/kernels includes reduce/few\n"
                                     "    reduce/reduce includes reduce/few, reduce/kernels\n")

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


class Classes(unittest.TestCase):
    """The hints of the rule classes, on a tree of one file. It finds no faults."""

    def hints(self, text):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for part in ("src/core", "include", "backends", "python"):
                (root / part).mkdir(parents=True)
            (root / "src/core/hall.hpp").write_text(text)
            with contextlib.redirect_stdout(io.StringIO()) as output:
                self.assertEqual(list(rules.RULES["classes"](root, [])), [])
            return output.getvalue().splitlines()

    def test_a_class_of_many_functions_is_listed(self):
        functions = "".join(f"    int f{i}() const;\n" for i in range(39))
        self.assertEqual(self.hints("class Room {\n public:\n    Room();\n    ~Room();\n" + functions + "};\n"), [])
        self.assertEqual(self.hints("\nclass Hall {\n    Hall();\n" + functions + "    void g();\n};\n"),
                         ["hint: src/core/hall.hpp:2: Hall has 41 functions; is there a second noun in it?"])

    def test_a_class_of_many_fields_is_listed(self):
        fields = "".join(f"    int a{i} = {i}, b{i}{{}};\n" for i in range(13))
        self.assertEqual(self.hints("struct Data {\n" + fields + "};\n"), [], "26 fields of plain data are few enough")
        self.assertEqual(self.hints("class Hall {\n    void f();\n" + fields + "};\n"),
                         ["hint: src/core/hall.hpp:1: Hall has 26 fields; is there a second noun in it?"])

    def test_plain_data_of_many_fields_is_listed(self):
        self.assertEqual(self.hints("struct Data {\n" + "    int a, b, c;\n" * 10 + "    int d;\n};\n"),
                         ["hint: src/core/hall.hpp:1: Data has 31 fields; is there a second noun in it?"])


class Counts(unittest.TestCase):
    """What classes.py makes of the C++ that the house writes."""

    def counts(self, text):
        return [(c.name, c.functions, c.fields, c.plain) for c in classes(text)]

    def test_every_form_of_a_function_counts_once(self):
        self.assertEqual(self.counts("""
class Door : public Base<int> {
 public:
    explicit Door(int a) : a_(a), b_{a} { open(); }
    Door(const Door&) = delete;
    Door& operator=(const Door&) = delete;
    ~Door() override;
    static Door make(std::function<void(int)> f = {}) noexcept { return {1}; }
    template <class T>
    requires std::integral<T>
    [[nodiscard]] T get(T x) const;
    bool operator<(const Door& other) const { return a_ < other.a_; }
    explicit operator bool() const noexcept(noexcept(f())) { return true; }
    void operator()() const;
    auto trailing() -> std::pair<int, int> { return {a_, 2}; }
    virtual void pure() = 0;
    void later() TUTTI_REQUIRES(mutex_);
    friend bool operator==(const Door&, const Door&);
    friend class Window;

 private:
    int a_ = 0;
    std::vector<int> b_;
};
"""), [("Door", 10, 2, False)])

    def test_every_name_of_a_declaration_is_a_field(self):
        self.assertEqual(self.counts("""
struct alignas(64) Data {  // int in_a_comment, another;
    std::map<int, std::string> by_name, by_place{{1, "a;b"}};
    std::uint64_t first = f(1, 2), second{0}, third[3] = {1, 2, 3};
    void (*call)(int, int) = nullptr;
    std::function<void(int, int)> hook = [](int a, int b) { return; };
    unsigned small : 3, tiny : 2;
    int guarded TUTTI_GUARDED_BY(mutex) = 0;
    static constexpr int constant = 1, other = 2;
    using Alias = int;
    enum class Kind { a, b } kind = Kind::a;
    struct Inner { int x, y; } inner;
    union { int here; float there; };
    bool operator==(const Data&) const = default;
};
"""), [("Data", 1, 14, True), ("Inner", 0, 2, True)])

    def test_texts_and_directives_are_no_members(self):
        self.assertEqual(self.counts("""
#define MEMBERS \\
    int x; \\
    int y;
class Page {
    const char* text_ = R"(class Fake { int a; };)";
    char quote_ = '"', brace_ = '{';
#ifdef X
    int only_ = 1'000'000;
#endif
};
""".replace("\\\\", "\\")), [("Page", 0, 4, True)])

    def test_classes_in_functions_and_defined_outside_of_their_class_count(self):
        self.assertEqual(self.counts("""
class Page::Inside final : Base {
    void f() { struct Local { int a; void g(); }; }
};
enum class Kind { a, b };
template <class T> void f(class Other* o, struct stat s);
"""), [("Page::Inside", 1, 0, False), ("Local", 1, 1, False)])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
