"""What names of mpi4py, MPI and Horovod are called here, for the errors of whoever tries them.

Names in capitals are mpi4py's for arrays, those in small letters its names for objects.
"""
from __future__ import annotations

import sys

OURS = {
    "Allgather": "all_gather_into_tensor", "Allgatherv": "all_gather_v", "Allreduce": "all_reduce",
    "Alltoall": "all_to_all_single", "Alltoallv": "all_to_all_v", "Barrier": "barrier", "Bcast": "broadcast",
    "COMM_WORLD": "group.WORLD", "Comm": "ProcessGroup", "Create_group": "new_group", "Exscan": "exscan",
    "Finalize": "destroy_process_group", "Gather": "gather", "Gatherv": "gather_v", "Get_rank": "get_rank",
    "Get_size": "get_world_size", "IN_PLACE": "all_reduce, which works in place", "Init": "init_process_group", "Irecv": "irecv", "Isend": "isend",
    "LAND": "ReduceOp.MIN", "LOR": "ReduceOp.MAX", "MAX": "ReduceOp.MAX", "MAXLOC": "ReduceOp.MAXLOC",
    "MIN": "ReduceOp.MIN", "MINLOC": "ReduceOp.MINLOC", "Op": "ReduceOp.of", "PROD": "ReduceOp.PRODUCT",
    "Recv": "recv", "Reduce": "reduce", "Reduce_scatter": "reduce_scatter_v",
    "Reduce_scatter_block": "reduce_scatter_tensor", "SUM": "ReduceOp.SUM", "Scan": "scan", "Scatter": "scatter",
    "Scatterv": "scatter_v", "Send": "send", "Split": "split_group", "allgather": "all_gather_object", "allreduce": "all_reduce",
    "alltoall": "all_to_all_single", "bcast": "broadcast_object_list", "finalize": "destroy_process_group", "init": "init_process_group",
    "local_rank": "os.environ[\"LOCAL_RANK\"]", "rank": "get_rank", "shutdown": "destroy_process_group",
    "size": "get_world_size",
}


def of_module(name: str) -> object:
    """The __getattr__ of tutti.distributed."""
    expected = f": expected {OURS[name]}" if name in OURS else ""
    raise AttributeError(f"tutti.distributed has no {name}{expected}", name=name, obj=sys.modules["tutti.distributed"])


def of_group(self: object, name: str) -> object:
    """That of ProcessGroup."""
    expected = f": expected tutti.distributed.{OURS[name]}, with group=" if name in OURS else ""
    raise AttributeError(f"ProcessGroup has no {name}{expected}", name=name, obj=self)
