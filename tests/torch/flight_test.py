"""PyTorch's flight recorder shows the operations of our groups, under tutti's and under gloo's name."""

import json
import os
import pickle
import subprocess
import sys
import unittest

import ranks
import torch
import torch.distributed as dist


def recorded(rank: int, n: int, backend: str) -> None:
    os.environ["TORCH_FR_BUFFER_SIZE"] = "6"
    if backend == "gloo":
        os.environ["TUTTI_REPLACE_GLOO"] = "1"
        import tutti.torch

        tutti.torch.replace_gloo()
    c10d = torch._C._distributed_c10d
    dist.init_process_group(backend, rank=rank, world_size=n)
    for _ in range(3):
        dist.all_reduce(torch.ones(9))
    pair = dist.new_group(list(range(n)), group_desc="a pair")
    gathered = [torch.empty(2, 2) for _ in range(n)]
    dist.all_gather(gathered, torch.ones(2, 2, dtype=torch.float32), group=pair, async_op=True).wait()
    if rank == 0:
        dist.send(torch.ones(3, dtype=torch.int64), 1)
    if rank == 1:
        dist.recv(torch.ones(3, dtype=torch.int64), 0)
    late = dist.irecv(torch.empty(1), (rank + 1) % n)

    trace = pickle.loads(c10d._dump_fr_trace())
    assert trace["version"] and trace["pg_config"]["0"] == {
        "name": "0", "desc": "default_pg", "ranks": json.dumps(list(range(n)))}, trace["pg_config"]
    assert trace["pg_status"]["0"]["last_completed_collective"] == 3, trace["pg_status"]
    entries = trace["entries"]
    assert len(entries) == 6, len(entries)
    assert [entry["profiling_name"] for entry in entries[:3]] == ["gloo:all_reduce"] * 3  # also of tutti: readers accept no other
    assert entries[0]["input_sizes"] == [[9]] and entries[0]["input_dtypes"] == ["Float"]
    assert [entry["collective_seq_id"] for entry in entries[:3]] == [1, 2, 3]
    assert all(entry["state"] == "completed" and entry["retired"] for entry in entries[:5])
    assert any(frame["filename"] == __file__ for frame in entries[0]["frames"]), entries[0]["frames"]
    gather, message, waiting = entries[3:]
    assert gather["process_group"][1] == "a pair" and gather["output_sizes"] == [[n * 2, 2]], gather
    assert message["is_p2p"] and message["profiling_name"] == f"gloo:{'send 0->1' if rank == 0 else 'recv 1<-0'}", message
    assert message["process_group"] == ("0, from 0 to 1", "messages"), message
    assert trace["pg_config"]["0, from 0 to 1"]["ranks"] == "[0, 1]", trace["pg_config"]
    assert waiting["state"] == "started" and not waiting["retired"], waiting
    active = json.loads(c10d._dump_fr_trace_json(onlyActive=True))
    assert [entry["record_id"] for entry in active["entries"]] == [waiting["record_id"]], active
    assert "entries" not in json.loads(c10d._dump_fr_trace_json(includeCollectives=False))
    assert "frames" not in pickle.loads(c10d._dump_fr_trace(includeStackTraces=False))["entries"][0]

    store = dist.distributed_c10d._get_default_store()  # no barrier: it would be recorded
    store.set(f"looked/{rank}", "")
    store.wait([f"looked/{other}" for other in range(n)])
    dist.send(torch.ones(1), (rank - 1) % n)
    late.wait()
    last = pickle.loads(c10d._dump_fr_trace())["entries"]
    assert len(last) == 6 and last[-2]["state"] == "completed", last  # the oldest has made room
    assert last[0]["record_id"] == 1


class Flight(unittest.TestCase):
    def test_under_our_name(self) -> None:
        self.run_ranks("tutti")

    def test_under_the_name_of_gloo(self) -> None:
        self.run_ranks("gloo")

    def run_ranks(self, backend: str) -> None:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(ranks.free_port()))
        ranks.run(2, recorded, backend, backend=None)

    def test_nothing_is_recorded_without_the_variable(self) -> None:
        environment = {name: value for name, value in os.environ.items() if "TORCH_FR" not in name}
        done = subprocess.run([sys.executable, "-c", "import torch, torch.distributed as dist\n"
                               "dist.init_process_group('tutti', store=dist.HashStore(), rank=0, world_size=1)\n"
                               "dist.all_reduce(torch.ones(1))\n"
                               "print(torch._C._distributed_c10d._dump_fr_trace_json())"],
                              capture_output=True, text=True, timeout=60, env=environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("all_reduce", done.stdout)


if __name__ == "__main__":
    unittest.main()
