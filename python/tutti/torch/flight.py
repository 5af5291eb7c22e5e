"""PyTorch's flight recorder with the operations of tutti's groups: where TORCH_FR_BUFFER_SIZE is set, the two functions that
dump what CPU backends recorded return ours too. (The worker's control plane calls them in C++, and gives gloo's alone.)"""

from __future__ import annotations

import json
import pickle
from types import ModuleType
from typing import Any

import torch

_installed = False


def _groups(module: ModuleType) -> tuple[dict[str, Any], dict[str, Any]]:
    """pg_config and pg_status."""
    config, status = {}, {}
    for group in module.recorded_groups():
        config[group["name"]] = {name: group[name] for name in ("name", "desc", "ranks")}
        status[str(group["pg_id"])] = {
            "last_enqueued_collective": group["last_enqueued_collective"],
            "last_started_collective": -1,  # as gloo: nobody looks when an operation starts
            "last_completed_collective": group["last_completed_collective"],
        }
    return config, status


def _merge(trace: dict[str, Any], module: ModuleType, collectives: bool, stacks: bool, active: bool) -> dict[str, Any]:
    config, status = _groups(module)
    first = len(trace.get("pg_status", {}))  # where gloo has groups too, ours come after them
    trace["pg_config"] = trace.get("pg_config", {}) | config
    trace["pg_status"] = trace.get("pg_status", {}) | {str(int(name) + first): value for name, value in status.items()}
    if collectives:
        entries = module.recorded_entries(stacks, active)
        for entry in entries:
            entry["pg_id"] += first
        trace["entries"] = sorted([*trace.get("entries", []), *entries], key=lambda entry: entry["time_created_ns"])
    return trace


def install(module: ModuleType) -> None:
    """Adds what `module`, the C++ part, recorded to what PyTorch's functions return. Once."""
    global _installed
    if _installed:
        return
    c10d = torch._C._distributed_c10d
    as_json, as_pickle = c10d._dump_fr_trace_json, c10d._dump_fr_trace

    def dump_json(includeCollectives: bool | None = True, onlyActive: bool | None = False) -> bytes:  # noqa: N803
        collectives, active = includeCollectives is not False, bool(onlyActive)
        trace = _merge(json.loads(as_json(collectives, active)), module, collectives, False, active)
        for status in trace["pg_status"].values():  # in this form they are strings, and no time is zero
            status.update({name: str(value) for name, value in status.items()})
        for entry in trace.get("entries", []):
            entry["time_discovered_completed_ns"] = entry["time_discovered_completed_ns"] or 0
        return json.dumps(trace).encode()

    def dump(
        includeCollectives: bool | None = True,  # noqa: N803
        includeStackTraces: bool | None = True,  # noqa: N803
        onlyActive: bool | None = False,  # noqa: N803
    ) -> bytes:
        collectives, stacks, active = includeCollectives is not False, includeStackTraces is not False, bool(onlyActive)
        trace = pickle.loads(as_pickle(collectives, stacks, active))  # PyTorch's own bytes, of this process
        return pickle.dumps(_merge(trace, module, collectives, stacks, active), protocol=2)

    dump_json.__doc__, dump.__doc__ = as_json.__doc__, as_pickle.__doc__
    c10d._dump_fr_trace_json, c10d._dump_fr_trace = dump_json, dump
    _installed = True
