"""A program that knows of gloo alone; run by replaced_test.py. Prints for each use of gloo whose code serves it."""

import datetime
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def whose(backend: object) -> str:
    names = [cls.__module__ for cls in type(backend).__mro__]
    return "tutti" if any("tutti" in name for name in names) else "gloo"


def rank_main(rank: int, n: int, folder: str) -> None:
    cpu = torch.device("cpu")
    found = []
    for index, backend in enumerate(("gloo", "cpu:gloo,cuda:gloo", None)):
        dist.init_process_group(backend, init_method=f"file://{folder}/{index}", rank=rank, world_size=n)
        found.append(whose(dist.group.WORLD._get_backend(cpu)))
        if index == 0:
            assert dist.get_backend() == "gloo"
            group = dist.new_group(backend="gloo")
            found.append(whose(group._get_backend(cpu)))
            x = torch.ones(4)
            dist.all_reduce(x, group=group)
            assert x.eq(n).all()
            dist.monitored_barrier()
            dist.barrier(group)
        dist.destroy_process_group()
    store = dist.FileStore(f"{folder}/direct", n)
    direct = dist.ProcessGroupGloo(store, rank, n, datetime.timedelta(seconds=30))
    x = torch.ones(4)
    direct.allreduce([x]).wait()
    assert x.eq(n).all() and isinstance(direct, dist.ProcessGroupGloo) and direct.name() == "gloo"
    found.append(whose(direct))
    try:
        dist.ProcessGroupGloo(dist.HashStore(), 0, 2, datetime.timedelta(milliseconds=10))
    except RuntimeError as error:  # in words that programs look for
        assert "timeout after 10ms" in str(error), error
    else:
        raise AssertionError("a group of one rank of two was made")
    if rank == 0:
        print(*found, flush=True)


if __name__ == "__main__":
    mp.spawn(rank_main, args=(2, sys.argv[1]), nprocs=2)
    print("arguments", len(sys.argv), os.path.basename(sys.argv[0]), flush=True)
