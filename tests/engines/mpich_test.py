#!/usr/bin/env python3
"""The backend mpi with MPICH, as `pip install mpich` brings it: the suite of all backends, and the backend's own tests, on
ranks of its mpirun. First with what the build has made of the headers that it found (MPICH's ABI is one, whichever release),
then with what pip's mpicxx makes of the same sources. Usage: mpich_test.py TUTTI
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from ports import free_port  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv[1]).resolve().parents[1]
PLUG_INS = BUILD / "lib/tutti/backends"
PREFIX = pathlib.Path(sys.prefix)
PARTS = ["collectives", "communicators", "connector", "library", "part", "post", "remains", "stream"]
ENVIRONMENT = {**os.environ, "VIRTUAL_ENV": sys.prefix, "PATH": f"{PREFIX}/bin:{os.environ['PATH']}"}
FLAGS = ["-std=c++20", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers", "-fPIC", f"-I{ROOT}/include", f"-L{BUILD}/lib"]


class Mpich(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.work.cleanup)
        cls.own_test = f"{cls.work.name}/mpi_test"
        cls.compile("-o", cls.own_test, f"{ROOT}/tests/backends/mpi_test.cpp", f"-I{ROOT}/tests", "-ltutti-test-support",
                    "-lgtest", "-ltutti", f"-Wl,-rpath,{BUILD}/lib")

    @classmethod
    def compile(cls, *words):
        done = subprocess.run([PREFIX / "bin/mpicxx", *FLAGS, *words], env=ENVIRONMENT, capture_output=True, text=True,
                              timeout=600, check=False)
        if done.returncode != 0:
            raise AssertionError(done.stderr)

    def suite(self, **variables):
        done = subprocess.run([ROOT / "tests/backends/mpi_test.sh", PREFIX / "bin/mpirun",
                               BUILD / "bin/tutti-backend-conformance", self.own_test], env={**ENVIRONMENT, **variables},
                              capture_output=True, text=True, timeout=300, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stdout.count("ok: "), 3, done.stdout)

    def test_what_the_build_has_made(self):
        if not (PLUG_INS / "libtutti-mpi-mpich.so").exists():
            self.skipTest("the build had no headers of MPICH (Debian package libmpich-dev, or TUTTI_MPICH_FOLDER)")
        self.suite()

    def test_what_its_own_compiler_makes(self):
        folder = pathlib.Path(self.work.name) / "backends"
        folder.mkdir()
        shutil.copy(PLUG_INS / "libtutti-backend-mpi.so", folder)
        self.compile("-shared", "-fvisibility=hidden", "-o", f"{folder}/libtutti-mpi-mpich.so", f"-I{ROOT}/backends",
                     *[f"{ROOT}/backends/mpi/{part}.cpp" for part in PARTS], "-ltutti-backend-common", "-ltutti")
        self.suite(TUTTI_BACKEND_PATH=str(folder))

    def test_a_program_of_another_mpi_is_told_whose_mpirun_it_needs(self):
        """To Open MPI each process that MPICH's mpirun starts is a world by itself."""
        program = BUILD / "tests/mpi_test"
        if not program.exists():
            self.skipTest("the build had no Open MPI")
        done = subprocess.run([PREFIX / "bin/mpirun", "-n", "3", program, "--gtest_filter=Mpi.moves*"],
                              env={**ENVIRONMENT, "TUTTI_CONFORMANCE_PORT": str(free_port())}, capture_output=True, text=True, timeout=60,
                              check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stdout, r"rank 2: MPI rank 0 of 1\): .*; this one has Open MPI v.*that MPI's mpirun")

    def test_doctor_says_which_mpi_is_here(self):
        done = subprocess.run([BUILD / "bin/tutti", "doctor"], env={**ENVIRONMENT, "MPI_LOCALNRANKS": "1"}, capture_output=True,
                              text=True, timeout=60, check=False)
        self.assertRegex(done.stdout, r"ok +mpi +MPICH: .*libmpi\.so\.12")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
