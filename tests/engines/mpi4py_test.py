#!/usr/bin/env python3
"""Programs with mpi4py that use tutti beside MPI, under MPICH's mpirun (pip's) and Open MPI's (Debian's): mpi4py's package has
a module for each. Usage: mpi4py_test.py TUTTI
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import page
from command_lines import Watch

ROOT = pathlib.Path(__file__).resolve().parents[2]
PREFIX = pathlib.Path(sys.prefix)
OPEN_MPI = shutil.which("mpirun.openmpi")
MPIRUNS = {"mpich": [PREFIX / "bin/mpirun"], "openmpi": [OPEN_MPI, "--oversubscribe", "--allow-run-as-root"]}
LIBRARY = {"mpich": str(PREFIX / "lib/libmpi.so.12"), "openmpi": "libmpi.so.40"}

# Rank 0 makes the secret in tutti._engines: here one that is known. It must come to the others, by MPI alone.
KNOWN = "0123456789abcdef" * 4
KNOWN_SECRET = f"""
import os, time
import numpy as np
from mpi4py import MPI
import tutti._engines as engines, tutti.distributed as dist, tutti.mpi
engines.secrets.token_hex = lambda count: {KNOWN!r}
tutti.mpi.init()
x = np.ones(1 << 18, np.float32)
dist.all_reduce(x)
assert (x == MPI.COMM_WORLD.size).all()
assert not any({KNOWN!r} in value for value in os.environ.values())
time.sleep(1)
MPI.COMM_WORLD.Barrier()
dist.destroy_process_group()
os.write(1, f"rank {{MPI.COMM_WORLD.rank}} {{MPI.Get_library_version().split()[0]}}\\n".encode())
"""
PARTS = """
import os
from mpi4py import MPI
import numpy as np, tutti.distributed as dist, tutti.mpi
world = MPI.COMM_WORLD
part = world.Split(world.rank % 2, key=-world.rank)  # in the other order
tutti.mpi.init(part, backend=None)
x = np.array([float(world.rank)])
dist.all_reduce(x)
assert x[0] == sum(r for r in range(world.size) if r % 2 == world.rank % 2), x
assert (dist.get_rank(), dist.get_world_size()) == (part.rank, part.size)
dist.destroy_process_group()
tutti.mpi.init(world)  # one may follow another
dist.barrier()
dist.destroy_process_group()
os.write(1, b"good\\n")
"""
BY_MPI = """
import os
from mpi4py import MPI
import numpy as np, tutti.distributed as dist, tutti.mpi
assert dist.is_mpi_available()
tutti.mpi.init(backend="mpi")
assert dist.get_backend() == "mpi"
x = np.arange(1000.0)
dist.all_reduce(x)
assert (x == MPI.COMM_WORLD.size * np.arange(1000.0)).all()
dist.destroy_process_group()
os.write(1, f"moved by {MPI.get_vendor()[0]}\\n".encode())
"""
SUBSETS = """
from mpi4py import MPI
import numpy as np, os, tutti.distributed as dist, tutti.mpi
world = MPI.COMM_WORLD
for members in ([0, 1, 2], [1, 2], [2, 0], [0, 1, 2]):  # each process has made other numbers of groups
    part = world.Split(0 if world.rank in members else MPI.UNDEFINED, members.index(world.rank) if world.rank in members else 0)
    if part == MPI.COMM_NULL:
        continue
    tutti.mpi.init(part)
    x = np.array([1.0])
    dist.all_reduce(x)
    assert x[0] == len(members), (members, x)
    dist.destroy_process_group()
if world.rank == 1:
    dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
try:
    tutti.mpi.init()
except dist.InvalidArgument as error:
    os.write(1, f"taken: {error}\\n".encode())
"""
ERRORS = """
from mpi4py import MPI
import os, tutti.distributed as dist, tutti.mpi
try:
    tutti.mpi.init(MPI.COMM_NULL)
except dist.InvalidArgument as error:
    os.write(1, f"refused: {error}\\n".encode())
if MPI.COMM_WORLD.rank == 0:
    os.environ["MASTER_ADDR"] = "no such host"
try:
    tutti.mpi.init()
except dist.DistError as error:
    os.write(1, f"told: {' '.join(str(error).split())}\\n".encode())
"""
DEATH = """
from mpi4py import MPI
import os, signal, sys, time, tutti.distributed as dist, tutti.mpi
tutti.mpi.init()
dist.barrier()
if dist.get_rank() == 1:
    time.sleep(0.5)  # until the others are in the next barrier
    os.kill(os.getpid(), signal.SIGKILL)
begin = time.monotonic() + 0.5
try:
    dist.barrier()
except dist.PeerLost as error:
    with open(f"{sys.argv[1]}/{dist.get_rank()}", "w") as told:
        told.write(f"told after {time.monotonic() - begin:.2f} s: {error}")
time.sleep(1)
os._exit(0)  # MPI cannot be finalised without rank 1
"""


class Mpi4py(unittest.TestCase):
    @staticmethod
    def environment(mpi):
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("TUTTI_", "MASTER_"))}
        return {**kept, "MPI4PY_LIBMPI": LIBRARY[mpi], "OMP_NUM_THREADS": "1"}

    def start(self, mpi, ranks, program, through=()):
        return subprocess.run([*map(str, MPIRUNS[mpi]), "-n", str(ranks), *through, sys.executable, *program],
                              env=self.environment(mpi), capture_output=True, text=True, timeout=120, check=False)

    def on_both(self):
        if OPEN_MPI is None:
            print("left out: Open MPI: there is no mpirun.openmpi (Debian package openmpi-bin)")
        return [mpi for mpi in MPIRUNS if mpi != "openmpi" or OPEN_MPI is not None]

    def good(self, mpi, ranks, *program):
        done = self.start(mpi, ranks, program)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_the_example(self):
        for mpi in self.on_both():
            for ranks in (1, 2, 4):
                said = self.good(mpi, ranks, ROOT / "examples/mpi4py/heat.py")
                self.assertIn("after 400 steps: 1000.0 in all", said)

    def test_the_program_of_the_page(self):
        for mpi in self.on_both():
            page.run("Programs with mpi4py", through=[*MPIRUNS[mpi], "-n", 3], env=self.environment(mpi))

    def test_the_secret_comes_by_mpi_and_is_on_no_command_line(self):
        for mpi in self.on_both():
            with tempfile.NamedTemporaryFile("w", suffix=".py") as program:
                program.write(KNOWN_SECRET)
                program.flush()
                with Watch(KNOWN) as watch:
                    said = self.good(mpi, 3, program.name)
            self.assertEqual(len(re.findall(r"rank \d (MPICH|Open)", said)), 3, said)
            self.assertEqual(watch.found, {})

    def test_ranks_are_those_of_the_communicator(self):
        for mpi in self.on_both():
            self.assertEqual(self.good(mpi, 4, "-c", PARTS).count("good"), 4)

    def test_groups_of_other_subsets_follow_each_other(self):
        for mpi in self.on_both():
            said = self.good(mpi, 3, "-c", SUBSETS)
            self.assertEqual(said.count("taken: tutti.mpi.init: rank 1 of the communicator (1 in all) has a default group already"),
                             3, said)

    def test_the_backend_mpi_takes_the_mpi_that_mpi4py_has_loaded(self):
        for mpi in self.on_both():
            self.assertEqual(self.good(mpi, 3, "-c", BY_MPI).count("moved by " + {"mpich": "MPICH", "openmpi": "Open MPI"}[mpi]), 3)

    def test_what_is_wrong_is_said_on_all_ranks(self):
        for mpi in self.on_both():
            said = self.good(mpi, 2, "-c", ERRORS)
            self.assertEqual(said.count("refused: tutti.mpi.init: comm="), 2, said)
            self.assertEqual(len(re.findall(r"told: tutti\.mpi\.init: rank 0 could not serve .*no such host", said)), 2, said)

    def test_a_rank_that_dies_is_named_to_the_others_within_a_second(self):
        for mpi in self.on_both():
            # mpirun would end the others before they can speak: it learns of the death late, by a shell.
            with tempfile.TemporaryDirectory() as folder:
                done = self.start(mpi, 3, ["-c", DEATH, folder], ["sh", "-c", '"$@"; sleep 2', "sh"])
                told = {file.name: file.read_text() for file in pathlib.Path(folder).iterdir()}
            self.assertEqual(sorted(told), ["0", "2"], done.stdout + done.stderr)
            for text in told.values():
                self.assertRegex(text, r"told after -?0\.\d\d s: .*rank 1 \(.*is gone")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
