#!/usr/bin/env python3
"""NCCL's interface from Python by ctypes, as inference engines drive it: a table of functions with their types, opened
from the file that a variable names. Four processes, no GPU, and nothing of tutti but its library in NCCL's place.

    NCCL_SO_PATH=build/lib/libtutti-nccl.so.2 python3 examples/nccl/pynccl.py
"""
import array
import ctypes
import multiprocessing
import os
import sys

RANKS = 4
FLOAT, SUM = 7, 0

Result = ctypes.c_int
Comm = ctypes.c_void_p
Buffer = ctypes.c_void_p
Stream = ctypes.c_void_p
Size = ctypes.c_size_t


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


class Nccl:
    """The functions that are used, each with its types; a call that fails is an exception with the library's sentence."""

    FUNCTIONS = {
        "ncclGetVersion": [ctypes.POINTER(ctypes.c_int)],
        "ncclGetUniqueId": [ctypes.POINTER(UniqueId)],
        "ncclCommInitRank": [ctypes.POINTER(Comm), ctypes.c_int, UniqueId, ctypes.c_int],
        "ncclAllReduce": [Buffer, Buffer, Size, ctypes.c_int, ctypes.c_int, Comm, Stream],
        "ncclReduce": [Buffer, Buffer, Size, ctypes.c_int, ctypes.c_int, ctypes.c_int, Comm, Stream],
        "ncclAllGather": [Buffer, Buffer, Size, ctypes.c_int, Comm, Stream],
        "ncclReduceScatter": [Buffer, Buffer, Size, ctypes.c_int, ctypes.c_int, Comm, Stream],
        "ncclBroadcast": [Buffer, Buffer, Size, ctypes.c_int, ctypes.c_int, Comm, Stream],
        "ncclSend": [Buffer, Size, ctypes.c_int, ctypes.c_int, Comm, Stream],
        "ncclRecv": [Buffer, Size, ctypes.c_int, ctypes.c_int, Comm, Stream],
        "ncclGroupStart": [],
        "ncclGroupEnd": [],
        "ncclCommWindowRegister": [Comm, Buffer, Size, ctypes.POINTER(ctypes.c_void_p), ctypes.c_int],
        "ncclCommWindowDeregister": [Comm, ctypes.c_void_p],
        "ncclCommDestroy": [Comm],
    }

    def __init__(self, path):
        library = ctypes.CDLL(path)
        library.ncclGetErrorString.restype = library.ncclGetLastError.restype = ctypes.c_char_p
        library.ncclGetLastError.argtypes = [Comm]
        for name, types in self.FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = Result, types
            setattr(self, name, self._checked(library, name, function))

    @staticmethod
    def _checked(library, name, function):
        def call(*arguments):
            result = function(*arguments)
            if result != 0:
                text = library.ncclGetErrorString(result).decode()
                raise RuntimeError(f"{name}: {text}: {library.ncclGetLastError(None).decode()}")
        return call


class Communicator:
    """One rank, with buffers of the array module: whatever has an address will do."""

    def __init__(self, nccl, id, size, rank):
        self.nccl, self.size, self.rank, self.comm = nccl, size, rank, Comm()
        nccl.ncclCommInitRank(ctypes.byref(self.comm), size, id, rank)

    @staticmethod
    def place(buffer):
        return buffer.buffer_info()[0]

    def all_reduce(self, buffer):
        out = array.array("f", bytes(4 * len(buffer)))
        self.nccl.ncclAllReduce(self.place(buffer), self.place(out), len(buffer), FLOAT, SUM, self.comm, None)
        return out

    def all_gather(self, buffer):
        out = array.array("f", bytes(4 * len(buffer) * self.size))
        self.nccl.ncclAllGather(self.place(buffer), self.place(out), len(buffer), FLOAT, self.comm, None)
        return out

    def reduce_scatter(self, buffer):
        out = array.array("f", bytes(4 * (len(buffer) // self.size)))
        self.nccl.ncclReduceScatter(self.place(buffer), self.place(out), len(out), FLOAT, SUM, self.comm, None)
        return out

    def broadcast(self, buffer, root):
        self.nccl.ncclBroadcast(self.place(buffer), self.place(buffer), len(buffer), FLOAT, root, self.comm, None)

    def shift(self, buffer):
        """What the rank before has; one group, as both directions at once need."""
        out = array.array("f", bytes(4 * len(buffer)))
        self.nccl.ncclGroupStart()
        self.nccl.ncclSend(self.place(buffer), len(buffer), FLOAT, (self.rank + 1) % self.size, self.comm, None)
        self.nccl.ncclRecv(self.place(out), len(out), FLOAT, (self.rank - 1) % self.size, self.comm, None)
        self.nccl.ncclGroupEnd()
        return out

    def close(self):
        self.nccl.ncclCommDestroy(self.comm)


def run(path, rank, id_queue):
    nccl = Nccl(path)
    id = UniqueId()
    if rank == 0:
        nccl.ncclGetUniqueId(ctypes.byref(id))
        for _ in range(RANKS - 1):
            id_queue.put(bytes(id.internal))
    else:
        ctypes.memmove(ctypes.byref(id), id_queue.get(timeout=60), 128)
    comm = Communicator(nccl, id, RANKS, rank)

    ones = array.array("f", [1.0] * 1000)
    assert list(comm.all_reduce(ones)) == [4.0] * 1000
    assert list(comm.all_gather(array.array("f", [rank, -rank]))) == [0, 0, 1, -1, 2, -2, 3, -3]
    assert list(comm.reduce_scatter(array.array("f", range(8)))) == [4.0 * 2 * rank, 4.0 * (2 * rank + 1)]
    weights = array.array("f", [rank] * 10)
    comm.broadcast(weights, root=2)
    assert list(weights) == [2.0] * 10
    assert list(comm.shift(array.array("f", [rank]))) == [float((rank - 1) % RANKS)]

    window = ctypes.c_void_p()
    nccl.ncclCommWindowRegister(comm.comm, comm.place(ones), 4 * len(ones), ctypes.byref(window), 1)
    nccl.ncclCommWindowDeregister(comm.comm, window)
    try:
        nccl.ncclBroadcast(comm.place(ones), comm.place(ones), 1, FLOAT, RANKS, comm.comm, None)
    except RuntimeError as error:
        assert "root is 4: expected 0 to 3" in str(error), error
    else:
        raise AssertionError("a root that is none was accepted")
    comm.close()


def main():
    path = os.environ.get("NCCL_SO_PATH", "libtutti-nccl.so.2")
    version = ctypes.c_int()
    Nccl(path).ncclGetVersion(ctypes.byref(version))
    context = multiprocessing.get_context("spawn")
    id_queue = context.Queue()
    processes = [context.Process(target=run, args=(path, rank, id_queue)) for rank in range(RANKS)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(90)
    if any(process.exitcode != 0 for process in processes):
        for process in processes:
            process.kill()
        sys.exit("a rank failed")
    print(f"{RANKS} processes on NCCL's interface {version.value // 10000}.{version.value // 100 % 100}: all was right")


if __name__ == "__main__":
    main()
