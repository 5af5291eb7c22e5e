"""PyTorch's flight recorder with the operations of tutti's groups: where TORCH_FR_BUFFER_SIZE is set, the two functions that
dump what CPU backends recorded return ours too. (The worker's control plane calls them in C++, and gives gloo's alone.)

What torchfrtrace, which reads such dumps, takes for granted is so in ours (schema 2.11: 2.10 and the sizes of splits):
operations are named as gloo's are, as it refuses a backend named tutti; what one rank gets from all is one tensor; where sizes
may differ by rank there are none; and each pair of ranks that exchange messages has a group for each direction, as it expects
all ranks of a group in each operation.
"""

from __future__ import annotations

import json
import os
import pathlib
import pickle
from types import ModuleType
from typing import Any

import torch

SCHEMA = "2.11"
_installed: ModuleType | None = None
_as_pickle: Any = None


def _version() -> str:
    from . import _version as built

    return built.version


def _shape_of_all(inputs: list[list[int]], outputs: list[list[int]], size: int) -> list[list[int]] | None:
    """One tensor for what `outputs`, one for each rank, hold; None where they differ from the input."""
    if len(inputs) == 1 and len(outputs) == size and all(shape == inputs[0] for shape in outputs):
        return [[size * inputs[0][0], *inputs[0][1:]] if inputs[0] else [size]]
    return None


def _name(entry: dict[str, Any], size: int) -> str:
    """What readers call the operation; changes sizes to what they expect of it."""
    name, inputs, outputs = entry["profiling_name"], entry["input_sizes"], entry["output_sizes"]
    if name == "all_reduce" and len(inputs) > 1:
        return "allreduce_coalesced"
    if name == "all_to_all":  # readers look at the first tensor alone
        for side in ("input", "output"):
            if len(entry[f"{side}_sizes"]) > 1:
                entry[f"{side}_sizes"] = [[sum(entry[f"{side}_split_sizes"])]]
                entry[f"{side}_dtypes"] = entry[f"{side}_dtypes"][:1]
    if name not in ("all_gather", "reduce_scatter"):
        return name
    one, many = ("input", "output") if name == "all_gather" else ("output", "input")
    if len(entry[f"{many}_sizes"]) == 1:  # one tensor that holds all
        return "_all_gather_base" if name == "all_gather" else "_reduce_scatter_base"
    whole = _shape_of_all(entry[f"{one}_sizes"], entry[f"{many}_sizes"], size)
    if whole:
        entry[f"{many}_sizes"], entry[f"{many}_dtypes"] = whole, entry[f"{many}_dtypes"][:1]
        return name
    if len(entry[f"{one}_sizes"]) > 1:
        return "ALLGATHER_coalesced" if name == "all_gather" else "REDUCE_SCATTER_coalesced"
    for side in ("input", "output"):
        entry[f"{side}_sizes"], entry[f"{side}_dtypes"] = [], []
    return f"{name}_v"


def _as_message(entry: dict[str, Any], config: dict[str, Any], ids: dict[str, int]) -> None:
    """Puts a message into the group of its two ranks, with PyTorch's words for it."""
    members = json.loads(config["ranks"])
    me, peer, sends = members[entry["rank"]], entry["peer"], entry["profiling_name"] == "send"
    other = members[peer] if peer >= 0 else me
    source, target = (me, other) if sends else (other, me)
    name = f"{config['name']}, from {source} to {target}" if peer >= 0 else f"{config['name']}, to {target} from any"
    pair = sorted({source, target})
    start, end = pair.index(source), pair.index(target)  # readers want the places in that group
    entry["profiling_name"] = f"gloo:send {start}->{end}" if sends else f"gloo:recv {end}<-{start}"
    entry["pg_id"] = ids.setdefault(name, len(ids))
    entry["process_group"] = (name, "messages")
    number = entry["number"] or entry["p2p_seq_id"]
    entry["collective_seq_id"] = entry["p2p_seq_id"] = entry["op_id"] = number


def _readable(entries: list[dict[str, Any]], groups: list[dict[str, Any]]) -> dict[str, Any]:
    """Gives the entries the form that readers want; returns pg_config."""
    config = {group["name"]: {name: group[name] for name in ("name", "desc", "ranks")} for group in groups}
    by_id = {group["pg_id"]: group for group in groups}
    ids = {group["name"]: group["pg_id"] for group in groups}
    for entry in entries:
        group = by_id[entry["pg_id"]]
        if entry["is_p2p"]:
            _as_message(entry, group, ids)
            name, (source, target) = entry["process_group"][0], (entry["rank"], entry["peer"])
            members = json.loads(group["ranks"])
            pair = sorted({members[source], members[target] if target >= 0 else members[source]})
            config[name] = {"name": name, "desc": "messages", "ranks": json.dumps(pair)}
        else:
            entry["profiling_name"] = f"gloo:{_name(entry, len(json.loads(group['ranks'])))}"
        for side in ("input", "output"):
            if not entry[f"{side}_split_sizes"]:
                del entry[f"{side}_split_sizes"]
        for name in ("rank", "peer", "number"):
            del entry[name]
    return config


def _merge(trace: dict[str, Any], module: ModuleType, collectives: bool, stacks: bool, active: bool) -> dict[str, Any]:
    groups = module.recorded_groups()
    entries = module.recorded_entries(stacks, active) if collectives else []
    first = len(trace.get("pg_status", {}))  # where gloo has groups too, ours come after them
    trace["version"] = SCHEMA
    trace["comm_lib_version"] = trace.get("comm_lib_version") or f"tutti {_version()}"
    trace["pg_config"] = trace.get("pg_config", {}) | _readable(entries, groups)
    trace["pg_status"] = trace.get("pg_status", {}) | {
        str(group["pg_id"] + first): {
            "last_enqueued_collective": group["last_enqueued_collective"],
            "last_started_collective": -1,  # as gloo: nobody looks when an operation starts
            "last_completed_collective": group["last_completed_collective"],
        }
        for group in groups
    }
    if collectives:
        for entry in entries:
            entry["pg_id"] += first
        trace["entries"] = sorted([*trace.get("entries", []), *entries], key=lambda entry: entry["time_created_ns"])
    return trace


def install(module: ModuleType) -> None:
    """Adds what `module`, the C++ part, recorded to what PyTorch's functions return. Once."""
    global _installed, _as_pickle
    if _installed is not None:
        return
    c10d = torch._C._distributed_c10d
    as_json, _as_pickle = c10d._dump_fr_trace_json, c10d._dump_fr_trace

    def dump_json(includeCollectives: bool | None = True, onlyActive: bool | None = False) -> bytes:  # noqa: N803
        collectives, active = includeCollectives is not False, bool(onlyActive)
        trace = _merge(json.loads(as_json(collectives, active)), module, collectives, False, active)
        for status in trace["pg_status"].values():  # in this form they are strings, and no time is zero
            status.update({name: str(value) for name, value in status.items()})
        for entry in trace.get("entries", []):
            entry["time_discovered_completed_ns"] = entry["time_discovered_completed_ns"] or 0
        return json.dumps(trace).encode()

    dump_json.__doc__, _dump.__doc__ = as_json.__doc__, _as_pickle.__doc__
    _installed = module
    c10d._dump_fr_trace_json, c10d._dump_fr_trace = dump_json, _dump


def _dump(
    includeCollectives: bool | None = True,  # noqa: N803
    includeStackTraces: bool | None = True,  # noqa: N803
    onlyActive: bool | None = False,  # noqa: N803
) -> bytes:
    collectives, stacks, active = includeCollectives is not False, includeStackTraces is not False, bool(onlyActive)
    trace = pickle.loads(_as_pickle(collectives, stacks, active))  # PyTorch's own bytes, of this process
    return pickle.dumps(_merge(trace, _installed, collectives, stacks, active), protocol=2)


def dump_flight_recorder(folder: str | os.PathLike[str]) -> str:
    """Writes what this rank's groups did for torchfrtrace, with shapes and stacks, to `folder`/rank_N; returns the path. The
    folder is made if need be; when all ranks have written theirs, `torchfrtrace FOLDER` compares them. RuntimeError unless
    TORCH_FR_BUFFER_SIZE, the number of operations that are kept, was set when the first group was made."""
    if _installed is None or not _installed.recording():
        raise RuntimeError("dump_flight_recorder: nothing is recorded; set TORCH_FR_BUFFER_SIZE to how many operations are kept")
    rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else int(os.environ.get("RANK", "0"))
    path = pathlib.Path(folder) / f"rank_{rank}"
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".new_{rank}")
    new.write_bytes(_dump())
    new.replace(path)
    return str(path)
