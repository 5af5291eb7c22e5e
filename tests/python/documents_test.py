"""The programs of the documents that the inventory is made of, with the line that imports the package changed.

Tensors are PyTorch's where it can be imported, else NumPy arrays with the same few names.
"""
import logging
import os
import pathlib
import sys
import time
import types
import unittest
from datetime import timedelta

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import numpy as np
from ranks import free_port, run_ranks
from rows import main, rows

import tutti.hfai.distributed as hfai
import tutti.distributed as dist
import tutti.multiprocessing as mp
from tutti.distributed import ReduceOp, batch_isend_irecv
from tutti.distributed.device_mesh import DeviceMesh, init_device_mesh

try:
    import torch
except ImportError:
    torch = types.SimpleNamespace(
        arange=lambda n, dtype=None: np.arange(n, dtype=dtype), zeros=lambda *s, dtype=np.float32: np.zeros(s, dtype),
        ones=lambda *s, dtype=np.float32: np.ones(s, dtype), empty=lambda *s, dtype=np.float32: np.empty(s, dtype),
        tensor=lambda v, dtype=None: np.array(v, dtype), zeros_like=np.zeros_like, device=str, int64=np.int64,
        float32=np.float32, cfloat=np.complex64)


# ---- The article on NCCL's interface ----

def article(rank):
    world_size = dist.get_world_size()
    tensor = torch.tensor(rank)
    dist.all_reduce(tensor)
    output = torch.empty(1, dtype=torch.int64)
    dist.reduce_scatter(output, [torch.tensor(rank) for _ in range(world_size)], op=ReduceOp.SUM)
    tensor_list = [torch.zeros(1, dtype=torch.int64) for _ in range(world_size)]
    dist.all_gather(tensor_list, torch.tensor(rank))
    root = torch.tensor(world_size) if rank == 0 else torch.zeros(1, dtype=torch.int64)
    dist.broadcast(root, src=0)
    dist.barrier()
    logging.info("all_reduce, rank: %d, after: %r", rank, tensor)
    return [tensor.item(), output.tolist(), [t.tolist() for t in tensor_list], root.item()]


# ---- The documentation of torch.distributed ----

def tensors(rank):
    world_size = dist.get_world_size()
    send_tensor = torch.arange(2, dtype=torch.float32) + 2 * rank
    recv_tensor = torch.zeros(2, dtype=torch.float32)
    send_op = dist.P2POp(dist.isend, send_tensor, (rank + 1) % world_size)
    recv_op = dist.P2POp(dist.irecv, recv_tensor, (rank - 1 + world_size) % world_size)
    for req in batch_isend_irecv([send_op, recv_op]):
        req.wait()
    tensor = torch.arange(2, dtype=torch.int64) + 1 + 2 * rank
    dist.all_reduce(tensor, op=ReduceOp.SUM)
    cfloat = torch.tensor([1 + 1j, 2 + 2j], dtype=torch.cfloat) + 2 * rank * (1 + 1j)
    dist.all_reduce(cfloat, op=ReduceOp.SUM)
    tensor_list = [torch.zeros(2, dtype=torch.int64) for _ in range(2)]
    tensor_in = torch.arange(2, dtype=torch.int64) + 1 + 2 * rank
    dist.all_gather(tensor_list, tensor_in)
    tensor_out = torch.zeros(world_size * 2, dtype=torch.int64)
    dist.all_gather_into_tensor(tensor_out, tensor_in)
    tensor_out2 = torch.zeros(world_size, 2, dtype=torch.int64)
    dist.all_gather_into_tensor(tensor_out2, tensor_in)
    ones = torch.ones(2) + rank
    gather_list = [torch.zeros_like(ones) for _ in range(2)] if dist.get_rank() == 0 else None
    dist.gather(ones, gather_list, dst=0)
    output_tensor = torch.zeros(2)
    scatter_list = [torch.ones(2), torch.ones(2) * 5] if dist.get_rank() == 0 else None
    dist.scatter(output_tensor, scatter_list, src=0)
    reduced = torch.zeros(2, dtype=torch.int64)
    dist.reduce_scatter_tensor(reduced, torch.arange(world_size * 2, dtype=torch.int64))
    work = dist.all_reduce(ones, async_op=True)
    work.wait()
    return [t.tolist() for t in (recv_tensor, tensor, cfloat, *tensor_list, tensor_out, tensor_out2, *(gather_list or []),
                                 output_tensor, reduced, ones)]


def exchanges(rank):
    world_size = dist.get_world_size()
    input = torch.arange(4, dtype=torch.int64) + rank * 4
    output = torch.empty(4, dtype=torch.int64)
    dist.all_to_all_single(output, input)
    listed = [torch.zeros(1, dtype=torch.int64) for _ in range(world_size)]
    dist.all_to_all(listed, [input[i:i + 1] for i in range(world_size)])
    splits = [[2, 2, 1, 1], [3, 2, 2, 2], [2, 1, 1, 1], [2, 2, 2, 1]]
    uneven = torch.arange(sum(splits[rank]), dtype=torch.int64) + [0, 10, 20, 30][rank]
    out_splits = [splits[i][rank] for i in range(4)]
    got = torch.empty(sum(out_splits), dtype=torch.int64)
    dist.all_to_all_single(got, uneven, out_splits, splits[rank])
    return [output.tolist(), [t.tolist() for t in listed], got.tolist()]


def objects(rank):
    device = torch.device("cpu")
    sent = ["foo", 12, {1: 2}] if dist.get_rank() == 0 else [None, None, None]
    dist.broadcast_object_list(sent, src=0, device=device)
    passed = ["foo", 12, {1: 2}] if rank == 0 else [None, None, None]
    if rank == 0:
        dist.send_object_list(passed, dst=1, device=device)
    elif rank == 1:
        dist.recv_object_list(passed, src=0, device=device)
    gather_objects = ["foo", 12, {1: 2}]
    output = [None for _ in gather_objects]
    dist.all_gather_object(output, gather_objects[dist.get_rank()])
    collected = [None for _ in gather_objects]
    dist.gather_object(gather_objects[dist.get_rank()], collected if dist.get_rank() == 0 else None, dst=0)
    mine = [None]
    dist.scatter_object_list(mine, gather_objects if rank == 0 else [None, None, None], src=0)
    return [sent, passed[:1], output, collected, mine]


def meshes(rank):
    mesh = DeviceMesh(device_type="cpu", mesh=[[0, 1, 2, 3], [4, 5, 6, 7]])
    mesh_1d = init_device_mesh("cpu", mesh_shape=(8,))
    mesh_2d = init_device_mesh("cpu", mesh_shape=(2, 4), mesh_dim_names=("dp", "tp"))
    return mesh.get_local_rank(0), mesh.get_local_rank(1), mesh_1d.size(), mesh_2d["tp"].get_local_rank()


def late(rank):
    group = dist.new_group(backend="native")
    if rank not in [1]:
        try:
            dist.monitored_barrier(group=group, timeout=timedelta(seconds=0.3))
        except RuntimeError as error:
            return str(error)
    time.sleep(0.6)
    return ""


def complex_exchanges(rank):
    world_size = dist.get_world_size()
    input = torch.tensor([1 + 1j, 2 + 2j, 3 + 3j, 4 + 4j], dtype=torch.cfloat) + 4 * rank * (1 + 1j)
    output = torch.empty(4, dtype=torch.cfloat)
    dist.all_to_all_single(output, input)
    listed = [torch.empty(1, dtype=torch.cfloat) for _ in range(world_size)]
    dist.all_to_all(listed, [input[i:i + 1] for i in range(world_size)])
    try:
        dist.all_to_all_single(torch.empty(4, dtype=torch.int64), input)  # as the documentation prints it
        refused = "accepted"
    except RuntimeError as error:
        refused = str(error)
    gathered = [torch.zeros(4, dtype=torch.cfloat) for _ in range(world_size)]
    dist.all_gather(gathered, input)
    tensor_in = torch.arange(world_size * 2, dtype=torch.int64)
    stacked = torch.zeros(2, dtype=torch.int64)
    dist.reduce_scatter_tensor(stacked, tensor_in.reshape((world_size, 2)))
    return [output.tolist(), [t.tolist() for t in listed], refused, gathered[1].tolist(), stacked.tolist()]


def loops_of_scatter(rank):
    """What all_to_all_single and all_to_all are said to be equal to."""
    world_size = dist.get_world_size()
    splits = [[2, 2, 1, 1], [3, 2, 2, 2], [2, 1, 1, 1], [2, 2, 2, 1]]
    flat = torch.arange(sum(splits[rank]), dtype=torch.int64) + [0, 10, 20, 30][rank]
    edges = [sum(splits[rank][:i]) for i in range(world_size + 1)]
    scatter_list = [flat[edges[i]:edges[i + 1]] for i in range(world_size)]
    output = [torch.empty(splits[i][rank], dtype=torch.int64) for i in range(world_size)]
    dist.all_to_all(output, scatter_list)
    even = torch.arange(4, dtype=torch.int64) + rank * 4
    gather_list = [torch.empty(1, dtype=torch.int64) for _ in range(world_size)]
    for i in range(world_size):
        dist.scatter(gather_list[i], [even[j:j + 1] for j in range(world_size)] if i == rank else [], src=i)
    return [[t.tolist() for t in output], [t.tolist() for t in gather_list]]


def hook(process_group, bucket):
    group_to_use = process_group if process_group is not None else dist.group.WORLD
    bucket /= group_to_use.size()
    return dist.all_reduce(bucket, group=group_to_use, async_op=True).get_future()


def communication_hooks(rank):
    bucket = np.full(6, rank + 1.0)
    averaged = hook(None, bucket).then(lambda future: future.value()[0])
    return averaged.wait().tolist(), hook(dist.group.WORLD, np.full(2, 4.0 * rank)).wait()[0].tolist()


def only_rank_0(rank):
    if rank == 0:
        try:
            dist.monitored_barrier(wait_all_ranks=True, timeout=timedelta(seconds=0.3))
        except RuntimeError as error:
            return str(error)
    time.sleep(0.8)
    return ""


def worker(rank, backend):
    dist.init_process_group(backend, rank=rank, world_size=2)
    # monitored barrier requires gloo process group to perform host-side sync.
    group_gloo = dist.new_group(backend="gloo")
    if rank not in [1]:
        dist.monitored_barrier(group=group_gloo, timeout=timedelta(seconds=2))


def mismatched(rank, backend):
    dist.init_process_group(backend, rank=rank, world_size=2)
    tensor = np.random.randn(10 if rank == 0 else 20)
    dist.all_reduce(tensor)


# ---- The documentation of hfai.distributed ----

def cluster(rank):
    hfai.init_process_group(backend="native")
    hfai.barrier()
    objs = ["to broadcast"] if rank == 0 else [None]
    hfai.broadcast(objs, src=0)
    collected = [None, None] if rank == 0 else None
    hfai.gather({"rank": rank}, collected)
    tensor_list = [torch.zeros(2 + i, dtype=torch.int64) for i in range(2)]
    tensor = torch.arange(2 + rank, dtype=torch.int64) + 1 + 2 * rank
    hfai.all_gather(tensor_list, tensor)
    applied = hfai.pairwise_apply(lambda x, y: float(np.sum(np.asarray(x))) + float(y.sum()), torch.ones(1 + rank) * rank)
    hfai.destroy_process_group()
    return [objs, collected, [t.tolist() for t in tensor_list], applied]


class Documents(unittest.TestCase):
    @rows("S8-012", "S8-023", "S8-005", "S4-018", "S4-019", "S8-036", "S2-021", "E-101", "E-102",
          "E-103", "E-104")
    def test_the_articles_program(self):
        self.assertEqual(run_ranks(article, 4), [[6, [6], [[0], [1], [2], [3]], 4]] * 4)

    @rows("S6-010", "S6-012", "S8-014", "E-204", "E-207", "E-208", "E-209", "E-211", "E-212",
          "E-214", "E-216", "E-218")
    def test_tensors_of_the_documentation(self):
        first, second = run_ranks(tensors)
        self.assertEqual([first[0], second[0]], [[2.0, 3.0], [0.0, 1.0]])
        self.assertEqual(first[1:7], [[4, 6], [4 + 4j, 6 + 6j], [1, 2], [3, 4], [1, 2, 3, 4], [[1, 2], [3, 4]]])
        self.assertEqual(first[7:], [[1.0, 1.0], [2.0, 2.0], [1.0, 1.0], [0, 2], [3.0, 3.0]])
        self.assertEqual(second[7:], [[5.0, 5.0], [4, 6], [3.0, 3.0]])

    @rows("S8-028", "E-220", "E-221", "E-223")
    def test_exchanges_of_the_documentation(self):
        results = run_ranks(exchanges, 4)
        self.assertEqual([r[0] for r in results], [[i, 4 + i, 8 + i, 12 + i] for i in range(4)])
        self.assertEqual([r[1] for r in results], [[[i], [4 + i], [8 + i], [12 + i]] for i in range(4)])
        self.assertEqual(results[0][2], [0, 1, 10, 11, 12, 20, 21, 30, 31])
        self.assertEqual(results[3][2], [5, 17, 18, 24, 36])

    @rows("E-210", "E-219", "E-222", "E-225", "A-08")
    def test_complex_exchanges_of_the_documentation(self):
        results = run_ranks(complex_exchanges, 4)
        for rank, (output, listed, refused, gathered, stacked) in enumerate(results):
            wanted = [(4 * i + rank + 1) * (1 + 1j) for i in range(4)]
            self.assertEqual((output, listed), (wanted, [[z] for z in wanted]))
            self.assertIn("complex64", refused)
            self.assertEqual(gathered, [(5 + i) * (1 + 1j) for i in range(4)])
            self.assertEqual(stacked, [8 * rank, 8 * rank + 4])

    @rows("S8-030", "S8-021", "E-224")
    def test_what_all_to_all_is_equal_to(self):
        results = run_ranks(loops_of_scatter, 4)
        self.assertEqual(results[0][0], [[0, 1], [10, 11, 12], [20, 21], [30, 31]])
        self.assertEqual(results[3][0], [[5], [17, 18], [24], [36]])
        self.assertEqual([r[1] for r in results], [[[i], [4 + i], [8 + i], [12 + i]] for i in range(4)])

    @rows("E-229", "S7-009", "S7-021")
    def test_the_communication_hook_of_the_documentation(self):
        self.assertEqual(run_ranks(communication_hooks), [([1.5] * 6, [2.0, 2.0])] * 2)

    @rows("S16-007", "S16-006", "E-227")
    def test_a_monitored_barrier_may_name_all_who_are_missing(self):
        self.assertIn("Ranks 1, 2 failed to pass monitoredBarrier in 300 ms", run_ranks(only_rank_0, 3)[0])

    @unittest.skipUnless(dist.is_gloo_available(), "no gloo when tutti was built")
    @rows("S16-004", "S16-008", "S4-006", "S2-003", "S15-001", "S15-002", "E-228")
    def test_the_program_with_a_missing_rank(self):
        os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", str(free_port())
        with self.assertRaises(RuntimeError) as caught:
            mp.spawn(worker, nprocs=2, args=("native",))
        self.assertIn("Rank 1 failed to pass monitoredBarrier in 2000 ms", str(caught.exception))

    @rows("S16-015", "S16-016", "S3-017", "E-230")
    def test_the_program_with_shapes_that_differ(self):
        os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", str(free_port())
        os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
        try:
            with self.assertRaises(RuntimeError) as caught:
                mp.spawn(mismatched, nprocs=2, args=("native",))
        finally:
            del os.environ["TORCH_DISTRIBUTED_DEBUG"]
        self.assertIn("Error when verifying shape tensors for collective ALLREDUCE on rank", str(caught.exception))

    @rows("S9-007", "E-203", "E-206", "E-213", "E-215", "E-217")
    def test_objects_of_the_documentation(self):
        things = ["foo", 12, {1: 2}]
        for rank, (sent, passed, output, collected, mine) in enumerate(run_ranks(objects, 3)):
            self.assertEqual((sent, output, mine), (things, things, [things[rank]]))
            self.assertEqual(collected, things if rank == 0 else [None] * 3)
            self.assertEqual(passed, ["foo"] if rank < 2 else [None])

    @rows("E-201", "E-202")
    def test_meshes_of_the_documentation(self):
        self.assertEqual(run_ranks(meshes, 8), [(r // 4, r % 4, 8, r % 4) for r in range(8)])

    @rows("S16-006", "E-226")
    def test_the_monitored_barrier_of_the_documentation(self):
        self.assertIn("Rank 1 failed to pass monitoredBarrier in 300 ms", run_ranks(late)[0])

    def test_the_clusters_functions(self):
        first, second = run_ranks(cluster, init=False)
        self.assertEqual([first[0], second[0]], [["to broadcast"]] * 2)
        self.assertEqual([first[1], second[1]], [[{"rank": 0}, {"rank": 1}], None])
        self.assertEqual(first[2], [[1, 2], [3, 4, 5]])
        self.assertEqual([first[3], second[3]], [[0.0, 2.0], [2.0, 4.0]])


if __name__ == "__main__":
    main("python_" + pathlib.Path(__file__).stem)
