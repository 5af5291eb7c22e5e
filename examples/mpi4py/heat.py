"""tutti beside MPI in one job: heat spreads along a rod whose parts the ranks have. MPI exchanges the ends of neighbouring
parts on a Cartesian communicator, as such programs do; tutti sums up in the background what is reported.

    mpirun -n 4 python examples/mpi4py/heat.py
"""
import numpy as np
from mpi4py import MPI

import tutti.distributed as dist
import tutti.mpi

LENGTH, STEPS, REPORT = 1 << 12, 400, 100


def main():
    line = MPI.COMM_WORLD.Create_cart([MPI.COMM_WORLD.size], periods=[True])
    tutti.mpi.init(line)  # tutti's ranks are those of this communicator
    assert (dist.get_rank(), dist.get_world_size()) == (line.rank, line.size)

    heat = np.zeros(LENGTH + 2)
    if line.rank == 0:
        heat[1] = 1000.0
    left, right = line.Shift(0, 1)
    reports = []
    for step in range(1, STEPS + 1):
        line.Sendrecv(heat[1:2], dest=left, recvbuf=heat[-1:], source=right)
        line.Sendrecv(heat[-2:-1], dest=right, recvbuf=heat[:1], source=left)
        heat[1:-1] += 0.25 * (heat[:-2] - 2 * heat[1:-1] + heat[2:])
        if step % REPORT == 0:
            sums = np.array([heat[1:-1].sum(), (heat[1:-1] ** 2).sum()])
            reports.append((step, sums, dist.all_reduce(sums, async_op=True)))  # the next steps go on meanwhile
    for step, sums, work in reports:
        work.wait()
        if line.rank == 0:
            print(f"after {step} steps: {sums[0]:.1f} in all, the unevenness is {sums[1]:.1f}")
        assert abs(sums[0] - 1000.0) < 1e-6, "heat was lost"
    # Either library's answer is the other's.
    peak = np.array([heat[1:-1].max()])
    by_mpi = line.allreduce(peak[0], op=MPI.MAX)
    dist.all_reduce(peak, op=dist.ReduceOp.MAX)
    assert peak[0] == by_mpi
    dist.destroy_process_group()
    line.Barrier()


main()
