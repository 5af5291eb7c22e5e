"""Tensors on devices: DLPack, streams, backends that serve them. There is no device here: fake_devices.py."""
import os
import pathlib
import sys
import types
import unittest
import warnings
from datetime import timedelta

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import fake_devices as fake
import numpy as np
from ranks import run_ranks
from rows import main, rows

import tutti
import tutti.distributed as dist
import tutti.hfai.distributed as hfai
from tutti.hfai.distributed import HFAI_NCCL_OPT_LEVEL, set_nccl_opt_level


def alone(test, backend="cpu:native,cuda:lane", devices="cuda"):
    """The test's function on one rank, whose group has a Lane."""
    def body(rank):
        fake.Lane.register(devices=devices)
        dist.init_process_group(backend)
        test(fake.Lane.made[-1])
        dist.destroy_process_group()

    return run_ranks(body, 1, init=False)


def streams_of_torch(lane):
    torch = fake.torch()
    x = torch.Tensor([1, 2])
    dist.all_reduce(x)
    assert lane.requests == [("all_reduce", "cuda:0", 100)], lane.requests
    assert torch.Tensor.asked == -1  # nothing is to be waited for
    assert lane.ends[-1].waiting == []  # it was over

    other = torch.Tensor([1, 2], index=1)  # not the current device
    dist.all_reduce(other)
    assert lane.requests[-1] == ("all_reduce", "cuda:1", 101) and torch.cuda.current_device() == 0

    class Own(torch.Tensor):
        pass

    dist.all_reduce(Own([3]))
    assert lane.requests[-1][2] == 100

    plan = dist.plan.all_reduce(x)
    torch.cuda.current[0] = fake.Stream(torch.cuda.calls, 55)
    plan.run()
    assert lane.requests[-1][2] == 55  # of the time of the run
    with dist.coalescing():
        dist.all_reduce(x)
        torch.cuda.current[0] = fake.Stream(torch.cuda.calls, 66)
    assert lane.requests[-1][2] == 55, lane.requests  # of the time of the call


def streams_of_others(lane):
    x = fake.DeviceTensor([1, 2])
    dist.all_reduce(x)
    assert fake.DeviceTensor.asked == 1 and lane.requests[-1] == ("all_reduce", "cuda:0", 0)

    class ndarray(fake.DeviceTensor):
        pass

    ndarray.__module__ = "cupy._core.core"
    sys.modules["cupy"] = types.SimpleNamespace(cuda=types.SimpleNamespace(
        Device=lambda index: types.SimpleNamespace(__enter__=None), get_current_stream=lambda: None))
    calls = []

    class Device:
        def __init__(self, index):
            calls.append(index)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

    sys.modules["cupy"].cuda = types.SimpleNamespace(Device=Device, get_current_stream=lambda: fake.Stream([], 77))
    dist.all_reduce(ndarray([1], index=1))
    assert ndarray.asked == -1 and calls == [1] and lane.requests[-1] == ("all_reduce", "cuda:1", 77)

    pinned = fake.DeviceTensor([1, 2])
    pinned.kind = 3  # of the host, where the device can read it
    dist.all_reduce(pinned)
    assert len(lane.requests) == 2
    for kind, text in ((7, "device type 7"), (fake.ROCM, "all_reduce: tensor is on rocm:0: expected host memory")):
        x.kind = kind
        try:
            dist.all_reduce(x)
            raise SystemError("accepted")
        except tutti.InvalidArgument as error:
            assert text in str(error), error


class Open(fake.Lane):
    """Ends nothing by itself."""

    def run(self, request, completion):
        self.requests.append((request.call, request.device, request.stream))
        self.ends.append(fake.End())
        completion.enqueued(self.ends[-1])
        self.completions = getattr(self, "completions", []) + [completion]

    def abort(self, reason):
        for completion in getattr(self, "completions", []):
            completion.success()
        super().abort(reason)


def works_and_futures(rank):
    torch = fake.torch()
    Open.register()
    dist.init_process_group("cpu:native,cuda:lane")
    lane = fake.Lane.made[-1]
    streams = torch.cuda

    x = torch.Tensor([1, 2])
    work = dist.all_reduce(x, async_op=True)
    assert work.is_completed() and lane.ends[-1].waiting == []
    streams.current[0] = fake.Stream(streams.calls, 11)
    assert work.wait() is True and lane.ends[-1].waiting == [11]
    work.synchronize()
    assert lane.ends[-1].waiting == [11, 11]
    try:
        work.wait(timedelta(milliseconds=30))
        raise SystemError("over before its time")
    except tutti.Timeout:
        pass

    dist.all_reduce(x)  # the caller goes on, its stream waits
    assert lane.ends[-1].waiting == [11]

    work = dist.all_reduce(x, async_op=True)
    del work  # nobody waits: what comes next in the stream must not touch the memory before
    assert lane.ends[-1].waiting == [11], lane.ends[-1].waiting

    work = dist.all_reduce(x, async_op=True)
    future = work.get_future()
    seen = []

    def callback(done):
        seen.append((streams.current_stream(0).cuda_stream, list(lane.ends[-1].waiting)))
        return done.value()[0]

    assert future.done()
    following = future.then(callback)
    assert following.wait() is x
    assert seen[0][0] == 900 and streams.made == 1, seen  # in a stream of its own, which waits
    assert ("record", 900) in streams.calls and ("wait", 11, "event of 900") in streams.calls, streams.calls
    assert future.wait() == [x]
    failing = future.then(lambda _: 1 / 0)
    try:
        failing.wait()
        raise SystemError("no error")
    except ZeroDivisionError:
        pass
    for completion in lane.completions:  # the device has done it all
        completion.success()
    dist.destroy_process_group()


def two_ranks(rank, backend):
    fake.Lane.register()
    dist.init_process_group(backend)
    lane, torch = fake.Lane.made[-1], fake.torch()
    x = torch.Tensor([1, 2 + rank])
    dist.all_reduce(x)
    gathered = torch.Tensor([0] * 4)
    dist.all_gather_into_tensor(gathered, torch.Tensor([rank, rank]))
    copied = torch.Tensor([rank] * 3, dtype=np.int64)
    dist.broadcast(copied, src=1)
    before = len(lane.requests)
    objects = [{"rank": rank}] if rank == 0 else [None]
    dist.broadcast_object_list(objects, src=0, device="cuda:0")
    everything = [None, None]
    dist.all_gather_object(everything, "x" * (5000 * rank + 1))
    assert len(lane.requests) == before, "objects travel in host memory"
    dist.barrier(device_ids=[0])
    sub = dist.new_group([0, 1])
    y = torch.Tensor([5])
    dist.all_reduce(y, group=sub)
    mesh = dist.init_device_mesh("cuda", (2,), mesh_dim_names=("tp",))
    dist.all_reduce(y, group=mesh)
    refused = ""
    try:
        dist.all_reduce(np.ones(2))
    except tutti.InvalidArgument as error:
        refused = str(error)
    made = [x.tolist(), gathered.tolist(), copied.tolist(), objects[0], [len(o) for o in everything], y.tolist()]
    calls = [call for call, _, _ in lane.requests]
    result = made, refused, mesh.device_type, dist.get_backend(), "barrier" in calls
    dist.destroy_process_group()
    return result


def rocm(lane):
    """PyTorch for AMD says "cuda"."""
    torch = fake.torch(hip="6.2")
    dist.all_reduce(torch.Tensor([1]))
    assert lane.requests[-1] == ("all_reduce", "rocm:0", 100), lane.requests
    dist.broadcast_object_list([1], src=0, device="cuda:0")
    mesh = dist.init_device_mesh("cuda", (1,))
    assert mesh.device_type == "cuda"
    other = dist.new_group(backend="cuda:lane")
    dist.all_reduce(torch.Tensor([1]), group=other)
    assert fake.Lane.made[-1].requests[-1][1] == "rocm:0"


def kinds(lane):
    torch = fake.torch()
    for kind in ("npu", "xpu"):
        dist.all_reduce(torch.Tensor([1], device=kind, index=1))
        assert lane.requests[-1] == ("all_reduce", f"{kind}:1", 101), lane.requests
        assert torch.Tensor.asked == "none given"
        dist.broadcast_object_list([1], src=0, device=f"{kind}:1")


def options_and_times(rank):
    fake.Lane.register("nccl")
    options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
    options.config.min_ctas = 2
    dist.init_process_group("nccl", pg_options=options, device_id="cuda:1")
    lane = fake.Lane.made[-1]
    assert lane.pg_options is options, "a backend from Python gets the object"
    assert lane.options.device == "cuda:1" and dist.get_backend() == "nccl"
    times = [dist.group.WORLD.timeout, lane.options.timeout]
    mixed = dist.new_group(backend="cpu:native,cuda:nccl")
    times += [mixed.timeout, dist.new_group(backend="nccl").timeout, dist.new_group().timeout,
              dist.new_group(timeout=timedelta(seconds=7)).timeout, dist.new_group(backend="native").timeout]
    made = len(fake.Lane.made)
    other = dist.ProcessGroupNCCL.Options()
    dist.new_group(pg_options=other)
    assert len(fake.Lane.made) == made + 1 and fake.Lane.made[-1].pg_options is other
    dist.destroy_process_group()
    return [int(t.total_seconds()) for t in times]


class Devices(unittest.TestCase):
    @rows("S7-001")
    def test_operations_are_in_the_stream_in_which_torch_works(self):
        alone(streams_of_torch)

    def test_other_libraries_make_their_tensors_ready_for_the_stream_that_is_used(self):
        alone(streams_of_others)

    def test_each_kind_of_device_has_its_streams(self):
        alone(kinds, "npu:lane,xpu:lane", ["npu", "xpu"])

    def test_rocm_is_what_torch_calls_cuda(self):
        def body(rank):
            fake.torch(hip="6.2")
            fake.Lane.register(devices="cuda")
            dist.init_process_group("cpu:native,cuda:lane")
            rocm(fake.Lane.made[-1])
            dist.destroy_process_group()

        run_ranks(body, 1, init=False)

    @rows("S7-005", "S7-006", "S7-007", "S7-008", "S7-018", "S7-020", "S7-021")
    def test_works_and_futures_make_streams_wait(self):
        run_ranks(works_and_futures, 1, init=False)

    def test_groups_with_a_device_do_everything_on_it_but_objects(self):
        for backend, name in (("cpu:native,cuda:lane", "native"), ("cuda:lane", "lane"), ("lane", "lane")):
            results = run_ranks(two_ranks, 2, (backend,), init=False)
            for (made, refused, kind, main_backend, barrier) in results:
                self.assertEqual(made, [[2.0, 5.0], [0.0, 0.0, 1.0, 1.0], [1, 1, 1], {"rank": 0}, [1, 5001], [20.0]])
                self.assertEqual((kind, main_backend, barrier), ("cuda", name, True))
                self.assertEqual(refused, "" if name == "native" else
                                 "all_reduce: tensor is on cpu: no backend of group \"world\" serves it; expected one of cuda:lane")

    @rows("A-03", "S1-015", "S1-018")
    def test_groups_of_nccl_have_its_options_and_times(self):
        self.assertEqual(run_ranks(options_and_times, 1, init=False),
                         [[600, 600, 1800, 600, 600, 7, 1800]])
        self.assertEqual(dist.default_pg_nccl_timeout, timedelta(minutes=10))

    @rows("A-01")
    def test_devices_have_default_backends(self):
        self.assertEqual(dist.Backend.default_device_backend_map["cuda"], dist.Backend.NCCL)
        self.assertEqual(dist.Backend.default_device_backend_map["cpu"], dist.Backend.NATIVE)

    def test_what_a_backend_cannot_take_is_refused(self):
        def body(rank):
            try:
                dist.all_reduce(fake.DeviceTensor([1]))
            except tutti.InvalidArgument as error:
                return str(error)
            return "accepted"

        self.assertEqual(run_ranks(body, 1), ["all_reduce: tensor is on cuda:0: expected host memory"])
        with self.assertRaisesRegex(tutti.InvalidArgument, "pairwise_apply: x is on a device .*: expected host memory"):
            hfai.pairwise_apply(lambda a, b: a, fake.DeviceTensor([1]))

    @rows("S19-012")
    def test_tuning_after_a_group_of_nccl_warns(self):
        def body(rank):
            fake.Lane.register("nccl")
            with warnings.catch_warnings(record=True) as early:
                warnings.simplefilter("always")
                dist.is_nccl_available()
                dist.ProcessGroupNCCL.Options()
                set_nccl_opt_level(HFAI_NCCL_OPT_LEVEL.AUTO)
            dist.init_process_group("nccl")
            with warnings.catch_warnings(record=True) as late:
                warnings.simplefilter("always")
                set_nccl_opt_level(HFAI_NCCL_OPT_LEVEL.CUSTOM, {"NCCL_ALGO": "Ring"})
            dist.destroy_process_group()
            return [str(w.message) for w in early], [str(w.message) for w in late], os.environ["NCCL_ALGO"]

        (early, late, algo), = run_ranks(body, 1, init=False)
        self.assertEqual((early, algo), ([], "Ring"))
        self.assertEqual(len(late), 1)
        self.assertIn("expected the call before the first such group", late[0])


if __name__ == "__main__":
    main("python_" + pathlib.Path(__file__).stem)
