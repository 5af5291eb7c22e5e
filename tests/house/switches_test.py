"""What the build can be told: to leave the library out, and on which systems it stops."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(sys.argv[1])
sys.path.append(str(SOURCE / "tests/support"))
from rows import main, rows  # noqa: E402

PROGRAM = """#include <tutti/available.hpp>
#if __has_include(<tutti/tutti.hpp>)
#error "the whole library is here"
#endif
int main() { return tutti::is_available() ? 1 : 42; }
"""
PROJECT = """cmake_minimum_required(VERSION 3.25)
project(asks LANGUAGES CXX)
find_package(tutti 0.1 REQUIRED)
add_executable(asks main.cpp)
target_link_libraries(asks PRIVATE tutti::tutti)
"""


class Switches(unittest.TestCase):
    def setUp(self):
        self.work = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="switches-")))

    def cmake(self, *arguments):
        done = subprocess.run(["cmake", *map(str, arguments)], capture_output=True, text=True, check=False, timeout=100)
        return done.returncode, done.stdout + done.stderr

    @rows("S1-003", "S1-004")
    def test_without_the_library_a_program_can_ask(self):
        for steps in (["-S", SOURCE, "-B", self.work / "build", "-G", "Ninja", "-DUSE_DISTRIBUTED=OFF"],
                      ["--install", self.work / "build", "--prefix", self.work / "prefix"]):
            status, output = self.cmake(*steps)
            self.assertEqual(status, 0, output)
        headers = sorted(file.name for file in (self.work / "prefix/include/tutti").iterdir())
        self.assertEqual(headers, ["available.hpp", "export.hpp"])
        program = self.work / "program"
        program.mkdir()
        (program / "main.cpp").write_text(PROGRAM)
        (program / "CMakeLists.txt").write_text(PROJECT)
        for steps in (["-S", program, "-B", program / "build", "-G", "Ninja",
                       f"-DCMAKE_PREFIX_PATH={self.work / 'prefix'}"], ["--build", program / "build"]):
            status, output = self.cmake(*steps)
            self.assertEqual(status, 0, output)
        self.assertEqual(subprocess.run([program / "build/asks"], check=False).returncode, 42)

    @rows("S2-014")
    def test_on_another_system_it_says_so(self):
        for system in ("Windows", "Darwin"):
            status, output = self.cmake("-S", SOURCE, "-B", self.work / system, "-G", "Ninja",
                                        f"-DCMAKE_SYSTEM_NAME={system}", "-DCMAKE_C_COMPILER_WORKS=1",
                                        "-DCMAKE_CXX_COMPILER_WORKS=1")
            self.assertNotEqual(status, 0)
            self.assertIn(f"tutti runs on Linux; this is {system}.", output)


main("house_switches")
