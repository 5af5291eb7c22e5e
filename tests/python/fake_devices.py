"""Libraries with tensors on devices, in name: their memory is the host's, so that tests can look at it; and a backend that
carries such tensors. What a library was asked for is in its `calls`."""
import contextlib
import ctypes
import sys
import types

import numpy as np

import tutti.distributed as dist

CUDA, ROCM, NPU, XPU = 2, 10, 12, 14  # DLPack's numbers


def capsule(array, kind, index):
    """NumPy's capsule, which says that it is of another device."""
    made = array.__dlpack__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address = pointer(made, b"dltensor")
    (ctypes.c_int32 * 2).from_address(address + ctypes.sizeof(ctypes.c_void_p))[:] = [kind, index]
    return made


class DeviceTensor:
    """Of a library that nobody knows."""

    kind = CUDA

    def __init__(self, values, index=0, dtype=np.float32):
        self.array, self.index = np.array(values, dtype), index

    def __dlpack_device__(self):
        return self.kind, self.index

    def __dlpack__(self, stream=None):
        self.__class__.asked = stream
        return capsule(self.array, self.kind, self.index)

    def tolist(self):
        return self.array.tolist()


class Stream:
    def __init__(self, calls, handle):
        self.calls, self.cuda_stream = calls, handle
        self.npu_stream = self.sycl_queue = self.ptr = handle

    def record_event(self):
        self.calls.append(("record", self.cuda_stream))
        return f"event of {self.cuda_stream}"

    def wait_event(self, event):
        self.calls.append(("wait", self.cuda_stream, event))


class Streams:
    """torch.cuda and its like: a current stream on each device."""

    def __init__(self, devices=2):
        self.calls, self.made = [], 0
        self.current = [Stream(self.calls, 100 + i) for i in range(devices)]
        self.chosen = 0

    def is_initialized(self):
        return True

    def current_device(self):
        return self.chosen

    def current_stream(self, index):
        return self.current[index]

    def Stream(self, index):
        self.made += 1
        return Stream(self.calls, 900 + index)

    @contextlib.contextmanager
    def device(self, index):
        before, self.chosen = self.chosen, index
        yield
        self.chosen = before

    @contextlib.contextmanager
    def stream(self, stream):
        index = stream.cuda_stream - 900
        before, self.current[index] = self.current[index], stream
        yield
        self.current[index] = before


def torch(hip=None):
    """A module that is called torch, with tensors on "cuda", "npu" and "xpu"."""
    module = types.ModuleType("torch")
    module.version = types.SimpleNamespace(hip=hip)
    module.cuda, module.npu, module.xpu = Streams(), Streams(), Streams()

    class Tensor(DeviceTensor):
        requires_grad = is_cpu = False

        def __init__(self, values, device="cuda", index=0, dtype=np.float32):
            super().__init__(values, index, dtype)
            self.device = types.SimpleNamespace(type=device, index=index)
            self.kind = {"cuda": ROCM if hip else CUDA, "npu": NPU, "xpu": XPU}[device]

        def __dlpack__(self, stream="none given"):
            if self.device.type == "cuda" and module.cuda.current_device() != self.index:
                raise BufferError("Can't export tensors on a different CUDA device index")
            return super().__dlpack__(stream)

    Tensor.__module__ = "torch"
    module.Tensor = Tensor
    sys.modules["torch"] = module
    return module


class End:
    """The end of an operation: streams that were made to wait for it."""

    def __init__(self):
        self.waiting = []

    def make_wait(self, stream):
        self.waiting.append(stream)


def host_array(array):
    """The memory of a DeviceArray."""
    if array is None:
        return None
    kind = {"int64": ctypes.c_int64, "float32": ctypes.c_float}[array.dtype]
    return np.ctypeslib.as_array((kind * len(array)).from_address(array.data_ptr))


class Lane:
    """Carries all_reduce, broadcast and all_gather of a device by a native group of its own; keeps what it was asked for."""

    made = []

    def __init__(self, options, pg_options):
        self.options, self.pg_options, self.requests, self.ends = options, pg_options, [], []
        self.group = dist.ProcessGroup(options.store, options.group_rank, options.group_size, name="lane")
        Lane.made.append(self)

    def run(self, request, completion):
        self.requests.append((request.call, request.device, request.stream))
        self.ends.append(End())
        if request.call == "barrier":
            work = dist.barrier(self.group, async_op=True)
        elif request.call == "all_reduce":
            work = dist.all_reduce(host_array(request.output), request.op, self.group, async_op=True)
        elif request.call == "broadcast":
            work = dist.broadcast(host_array(request.output), group=self.group, group_src=request.root, async_op=True)
        elif request.call == "all_gather":
            work = dist.all_gather_into_tensor(host_array(request.output), host_array(request.input), self.group,
                                               async_op=True)
        else:
            raise RuntimeError(f"no {request.call} here")
        work.wait()
        completion.enqueued(self.ends[-1])
        completion.success()

    def abort(self, reason):
        self.group.destroy()

    @classmethod
    def register(cls, name="lane", devices="cuda"):
        dist.Backend.register_backend(name, cls, extended_api=True, devices=devices)
