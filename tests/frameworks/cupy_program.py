"""cupy's NcclCommunicator on libtutti-nccl: its calls on two ranks, and on addresses of NumPy's arrays. cupy is imported and
asked without a GPU or CUDA."""

import cupy
import numpy as np
import small
from cupy.cuda import nccl

KNOWN = ("arrays of cupy's own need a GPU (`cudaErrorInsufficientDriver` without one, `cudaErrorCallRequiresNewerDriver` on the driver of "
         "`tests/nccl/fake_cuda`), so the program gives addresses of NumPy's; `cupyx.distributed` takes arrays of cupy's alone")
RANKS = 2


def rank_of(rank: int, unique_id: tuple) -> None:
    comm = nccl.NcclCommunicator(RANKS, unique_id, rank)
    assert (comm.size(), comm.rank_id()) == (RANKS, rank)
    for dtype, number in ((np.float32, nccl.NCCL_FLOAT32), (np.float64, nccl.NCCL_FLOAT64), (np.int32, nccl.NCCL_INT32),
                          (np.float16, nccl.NCCL_FLOAT16)):
        x, y = np.full(1000, rank + 1, dtype), np.empty(1000, dtype)
        comm.allReduce(x.ctypes.data, y.ctypes.data, x.size, number, nccl.NCCL_SUM, 0)
        assert (y == 3).all(), dtype
    x, y, all_of = np.full(4, rank + 1.0), np.zeros(4), np.zeros(4 * RANKS)
    comm.reduce(x.ctypes.data, y.ctypes.data, 4, nccl.NCCL_FLOAT64, nccl.NCCL_MAX, 1, 0)
    assert (y == (2 if rank == 1 else 0)).all()
    comm.broadcast(x.ctypes.data, y.ctypes.data, 4, nccl.NCCL_FLOAT64, 0, 0)
    assert (y == 1).all()
    comm.allGather(x.ctypes.data, all_of.ctypes.data, 4, nccl.NCCL_FLOAT64, 0)
    assert (all_of == [1] * 4 + [2] * 4).all()
    comm.reduceScatter(all_of.ctypes.data, y.ctypes.data, 4, nccl.NCCL_FLOAT64, nccl.NCCL_SUM, 0)
    assert (y == 2 * (rank + 1)).all()
    nccl.groupStart()
    comm.send(x.ctypes.data, 4, nccl.NCCL_FLOAT64, 1 - rank, 0)
    comm.recv(y.ctypes.data, 4, nccl.NCCL_FLOAT64, 1 - rank, 0)
    nccl.groupEnd()
    assert (y == 2 - rank).all()
    with small.refused(nccl.NcclError, "NCCL_ERROR_INVALID_ARGUMENT"):
        comm.broadcast(x.ctypes.data, y.ctypes.data, 4, nccl.NCCL_FLOAT64, RANKS, 0)
    with small.refused(cupy.cuda.runtime.CUDARuntimeError, "cudaErrorInsufficientDriver"):
        cupy.zeros(3)
    comm.destroy()
    if rank == 0:
        print(small.passed(cupy.__version__, "allReduce of 4 types, reduce, broadcast, allGather, reduceScatter, send and recv in a "
                           f"group; NCCL {nccl.get_version()} by its name"), flush=True)


if __name__ == "__main__":
    small.on_processes(rank_of, RANKS, nccl.get_unique_id())
