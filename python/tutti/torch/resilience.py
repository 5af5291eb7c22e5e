"""A training that outlives its ranks: tutti.distributed.resilient with torch.distributed's groups, modules and optimizers.

After each step a rank writes the state of its objects into one buffer. Where a tensor is sharded, it also sends that to the
rank `distance` behind it, so that what a rank had is there when it is not. The loop passes from a step to the next when all
ranks have completed it, so two states are kept: that before the step under way, which all ranks have, and that behind it.
"""

from __future__ import annotations

import copy
import functools
import gc
import os
import pickle
from datetime import timedelta
from typing import Any, Callable, Iterator, NamedTuple, Sequence

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.distributed.tensor import DeviceMesh, DTensor, _redistribute, distribute_tensor
from torch.distributed.tensor import debug as tensor_debug

from .stores import FileStore, TCPStore

_ALIGNMENT = 64
_JOINING = timedelta(seconds=30)  # of ranks that all are there: one that ends meanwhile holds the others up for no longer


class _Slot(NamedTuple):
    """Where a tensor was in a state_dict: its values in the buffer, and what a DTensor is besides."""

    offset: int
    shape: tuple[int, ...]  # of this rank's part
    dtype: torch.dtype
    mesh: int = -1  # the number of its mesh among those of the objects, by first use; -1: no DTensor
    placements: tuple[Any, ...] = ()
    part: tuple[int, ...] = ()  # this rank's place in the mesh
    whole: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()


class _Copy(NamedTuple):
    """The state of one rank at the beginning of step `step`, in the group of number `epoch`, which had `size` ranks."""

    epoch: int
    step: int
    rank: int
    size: int
    is_sharded: bool
    buffer: torch.Tensor

    def facts(self) -> tuple[int, int, int, int, bool]:
        return self[:5]


def _mapped(state: Any, change: Callable[[Any], Any]) -> Any:
    """A copy of a state_dict, with other leaves."""
    if isinstance(state, dict):
        return {key: _mapped(value, change) for key, value in state.items()}
    if isinstance(state, (list, tuple)) and not isinstance(state, _Slot):
        return type(state)(_mapped(value, change) for value in state) if type(state) in (list, tuple) else copy.deepcopy(state)
    return change(state)


def _values(buffer: torch.Tensor, slot: _Slot) -> torch.Tensor:
    count = torch.Size(slot.shape).numel() * slot.dtype.itemsize
    return buffer[slot.offset:slot.offset + count].view(slot.dtype).view(slot.shape)


def _is_shard(placement: Any) -> bool:
    return not placement.is_replicate()


def _room(size: int, spare: list[torch.Tensor]) -> torch.Tensor:
    """So many bytes or more, of memory that is there already if that is enough."""
    old = spare.pop() if spare else None
    return old if old is not None and old.numel() >= size else torch.empty(-(-size // 4096) * 4096, dtype=torch.uint8)


def _pack(objects: Sequence[Any], spare: list[torch.Tensor]) -> tuple[torch.Tensor, bool]:
    """The state of the objects as bytes: two lengths, the values of the tensors, the rest pickled. And whether a tensor is
    sharded."""
    tensors: list[tuple[_Slot, torch.Tensor]] = []
    meshes: list[DeviceMesh] = []
    end = _ALIGNMENT

    def slot_of(value: Any) -> Any:
        nonlocal end
        if not isinstance(value, torch.Tensor):
            return value
        local = value.to_local() if isinstance(value, DTensor) else value
        slot = _Slot(end, tuple(local.shape), local.dtype)
        if isinstance(value, DTensor):
            if value.device_mesh not in meshes:
                meshes.append(value.device_mesh)
            slot = slot._replace(mesh=meshes.index(value.device_mesh), placements=tuple(value.placements),
                                 part=tuple(value.device_mesh.get_coordinate() or ()), whole=tuple(value.shape),
                                 stride=tuple(value.stride()))
        end += -(-local.nbytes // _ALIGNMENT) * _ALIGNMENT
        tensors.append((slot, local))
        return slot

    with torch.no_grad():
        slots = pickle.dumps([_mapped(thing.state_dict(), slot_of) for thing in objects])
        size = end + len(slots)
        buffer = _room(size, spare)
        buffer[:16].view(torch.int64).copy_(torch.tensor([end, size]))
        for slot, local in tensors:
            _values(buffer, slot).copy_(local)
        buffer[end:size].copy_(torch.frombuffer(bytearray(slots), dtype=torch.uint8))
    return buffer, any(_is_shard(placement) for slot, _ in tensors for placement in slot.placements)


def _size_of(buffer: torch.Tensor) -> int:
    return int(buffer[8:16].view(torch.int64))


def _slots_of(buffer: torch.Tensor) -> Any:
    begin, end = buffer[:16].view(torch.int64).tolist()
    return pickle.loads(buffer[begin:end].numpy().tobytes())


def _slots_in(state: Any) -> Iterator[_Slot]:
    found: list[_Slot] = []
    _mapped(state, lambda leaf: found.append(leaf) if isinstance(leaf, _Slot) else None)
    return iter(found)


def _meshes_of(objects: Sequence[Any]) -> list[DeviceMesh]:
    meshes: list[DeviceMesh] = []

    def look(value: Any) -> None:
        if isinstance(value, DTensor) and value.device_mesh not in meshes:
            meshes.append(value.device_mesh)

    for thing in objects:
        _mapped(thing.state_dict(), look)
    return meshes


def _joined(parts: list[tuple[torch.Tensor, _Slot]]) -> torch.Tensor:
    """The whole of a tensor, of all ranks' parts."""
    slot = parts[0][1]
    sharded = [i for i, placement in enumerate(slot.placements) if _is_shard(placement)]
    if len(sharded) != 1 or any(type(placement).__name__ not in ("Shard", "Replicate") for placement in slot.placements):
        raise ValueError(f"tutti.torch.resilient: a tensor of {slot.placements} in a group of another size: expected one Shard(), "
                         "beside Replicate() at most")
    pieces = {its.part[sharded[0]]: _values(buffer, its) for buffer, its in parts}
    return torch.cat([pieces[i] for i in sorted(pieces)], dim=slot.placements[sharded[0]].dim)


def _forget_meshes() -> None:
    """PyTorch's caches take equal meshes for one, also where this process has another place in the second."""
    for name in ("_clear_python_sharding_prop_cache", "_clear_fast_path_sharding_prop_cache"):
        getattr(tensor_debug, name, lambda: None)()
    _redistribute._gen_transform_infos.cache_clear()


def _load(objects: Sequence[Any], buffers: list[torch.Tensor]) -> None:
    """Gives the objects the state in a buffer, or, of several, what this rank has now of all old ranks' states."""
    meshes = _meshes_of(objects)
    states = [_slots_of(buffer) for buffer in buffers]
    others = [_slots_in(state) for state in states[1:]]

    def tensor_of(leaf: Any) -> Any:
        if not isinstance(leaf, _Slot):
            return leaf
        parts = [(buffers[0], leaf)] + [(buffer, next(slots)) for buffer, slots in zip(buffers[1:], others)]
        if leaf.mesh < 0:
            return _values(buffers[0], leaf).clone()
        mesh = meshes[leaf.mesh]
        if len(buffers) > 1 and any(map(_is_shard, leaf.placements)):
            return distribute_tensor(_joined(parts), mesh, leaf.placements, src_data_rank=None)
        return DTensor.from_local(_values(buffers[0], leaf).clone().to(mesh.device_type), mesh, leaf.placements, run_check=False,
                                  shape=torch.Size(leaf.whole), stride=leaf.stride)

    for thing, state in zip(objects, states[0]):
        thing.load_state_dict(_mapped(state, tensor_of))


def _store_of(place: Any) -> Any:
    """torch.distributed's store of the place in which newcomers wait."""
    from tutti import distributed as tutti
    from tutti.distributed import resilience

    place = place or resilience._place_of_engine
    if place is None:
        port = os.environ.get("TUTTI_STORE_PORT")
        if port is None:
            raise ValueError("tutti.torch.resilient: place is None, and TUTTI_STORE_PORT is not set; expected a launcher that serves "
                             "a store, as tutti run does, or a tutti.distributed.TCPStore, FileStore or PrefixStore of one")
        return TCPStore(os.environ.get("MASTER_ADDR", "127.0.0.1"), int(port), wait_for_workers=False)
    if isinstance(place, tutti.TCPStore):
        return TCPStore(place.host, place.port, wait_for_workers=False)
    if isinstance(place, tutti.FileStore):
        return FileStore(place.path)
    if isinstance(place, tutti.PrefixStore):
        return _store_of(place.underlying_store)
    raise ValueError(f"tutti.torch.resilient: place is a {type(place).__name__}; expected a tutti.distributed.TCPStore, FileStore or "
                     "PrefixStore of one")


class _Training:
    def __init__(self, make: Callable[[], Any], step: Callable[..., Any], backend: str, distance: int | None, place: Any) -> None:
        self.make, self.step, self.backend, self.place = make, step, backend, place
        self.distance = distance or int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        self.objects: list[Any] = []
        self.group, self.epoch, self.is_lost = "", -1, False
        self.copies: list[_Copy] = []
        self.spare: list[torch.Tensor] = []  # memory of copies that are needed no more

    def __call__(self, r: Any) -> None:
        try:
            if r.is_new_group:
                self.begin(r.group, r.step)
            else:  # all ranks have completed the step before this one
                self.forget(lambda one: (one.epoch, one.step) != (self.epoch, r.step))
            self.step(r, *self.objects)
            self.keep(r.step + 1)
        except BaseException as error:
            # The others hear of it wherever they wait: in torch.distributed's group, or in the loop's.
            if not self.is_lost:  # all raise that
                self.abort()
            if isinstance(error, dist.DistError):
                r.group.abort(f"torch.distributed: {error}")
            raise

    def abort(self) -> None:
        for group in list(distributed_c10d._world.pg_map):  # a rank may wait in a group that has lost nobody
            group.abort()

    def forget(self, is_old: Callable[[_Copy], bool]) -> None:
        self.spare += [one.buffer for one in self.copies if is_old(one)]
        self.copies = [one for one in self.copies if not is_old(one)]

    def begin(self, group: Any, step: int) -> None:
        """Makes torch.distributed's default group of the ranks of the group, the objects in it, and their state."""
        from tutti import distributed as tutti

        self.objects = []
        gc.collect()  # what a DistributedDataParallel has of the old group
        if dist.is_initialized():
            self.abort()
            dist.destroy_process_group()
        _forget_meshes()
        number = torch.tensor([int.from_bytes(os.urandom(7), "little") if group.rank() == 0 else 0])
        tutti.all_reduce(number, group=group)  # when it returns, all are here
        store = dist.PrefixStore(f"tutti.torch.resilient/{int(number)}", _store_of(self.place))
        store.set_timeout(_JOINING)
        dist.init_process_group(self.backend, store=store, rank=group.rank(), world_size=group.size())
        made = self.make()
        self.objects = list(made) if isinstance(made, (list, tuple)) else [made]
        self.restore(step)
        self.keep(step)
        self.group = group.group_name

    def restore(self, step: int) -> None:
        said: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(said, (self.distance, self.epoch, [one.facts() for one in self.copies if one.step == step]))
        self.distance, self.epoch = said[0][0], max(epoch for _, epoch, _ in said) + 1
        lost: list[int] = []
        for epoch in sorted({facts[0] for _, _, its in said for facts in its}, reverse=True):
            holders: dict[int, list[int]] = {}  # of each old rank: the new ranks that have its state
            old_size = 0
            for rank, (_, _, its) in enumerate(said):
                for its_epoch, _, old_rank, size, is_sharded in its:
                    if its_epoch == epoch:
                        holders.setdefault(old_rank, []).append(rank)
                        old_size = size if is_sharded else 0
            missing = [old for old in range(old_size) if old not in holders]
            if not missing:
                self.take(epoch, step, holders, old_size)
                return
            lost = lost or missing
        if lost:
            from tutti.errors import InvalidArgument  # which no other group mends

            self.is_lost = True
            raise InvalidArgument(f"tutti.torch.resilient: the state of ranks {lost} is lost: each ended together with the rank "
                                  f"{self.distance} behind it, which had its copy: expected a distance between ranks that do not")

    def take(self, epoch: int, step: int, holders: dict[int, list[int]], old_size: int) -> None:
        """The state of old_size old ranks; 0: that of any of them is that of all."""
        rank, size = dist.get_rank(), dist.get_world_size()
        own = {one.rank: one.buffer for one in self.copies if (one.epoch, one.step) == (epoch, step)}
        if old_size == 0:
            mine = next(iter(own.values()), None)
            having = {rank for ranks in holders.values() for rank in ranks}
            if len(having) < size:
                sent = self.broadcast(mine, min(having))
                mine = sent if mine is None else mine
            assert mine is not None
            _load(self.objects, [mine])
        elif old_size == size:
            for old, ranks in holders.items():
                if old not in ranks and rank == ranks[0]:
                    self.send(own[old], old)
                elif old not in ranks and rank == old:
                    own[old] = self.receive(ranks[0])
            _load(self.objects, [own[rank]])
        else:
            _load(self.objects, [self.broadcast(own.get(old), min(holders[old])) for old in range(old_size)])

    def keep(self, step: int) -> None:
        """Copies what this rank has at the beginning of a step, and gives it to another one if the others lack it."""
        rank, size = dist.get_rank(), dist.get_world_size()
        buffer, is_sharded = _pack(self.objects, self.spare)
        kept = [_Copy(self.epoch, step, rank, size, is_sharded, buffer)]
        if is_sharded and size > 1:
            distance = self.distance % size or 1
            source = (rank - distance) % size
            kept.append(_Copy(self.epoch, step, source, size, True, self.exchange(buffer, (rank + distance) % size, source)))
        self.copies += kept

    # ---- Messages: the size of a buffer, then its bytes

    def exchange(self, buffer: torch.Tensor, to: int, source: int) -> torch.Tensor:
        sending = [dist.isend(torch.tensor([_size_of(buffer)]), to), dist.isend(buffer[:_size_of(buffer)], to)]
        received = self.receive(source)
        for work in sending:
            work.wait()
        return received

    def send(self, buffer: torch.Tensor, to: int) -> None:
        dist.send(torch.tensor([_size_of(buffer)]), to)
        dist.send(buffer[:_size_of(buffer)], to)

    def receive(self, source: int) -> torch.Tensor:
        size = torch.zeros(1, dtype=torch.int64)
        dist.recv(size, source)
        buffer = _room(int(size), self.spare)
        dist.recv(buffer[:int(size)], source)
        return buffer

    def broadcast(self, buffer: torch.Tensor | None, source: int) -> torch.Tensor:
        mine = dist.get_rank() == source
        size = torch.tensor([_size_of(buffer) if buffer is not None and mine else 0])
        dist.broadcast(size, source)
        if buffer is None or not mine:
            buffer = _room(int(size), self.spare)
        dist.broadcast(buffer[:int(size)], source)
        return buffer


def resilient(make: Callable[[], Any], step: Callable[..., Any] | None = None, *, steps: int, backend: str = "tutti",
              distance: int | None = None, place: Any = None, **loop: Any) -> Any:
    """Trains step by step with torch.distributed, in groups that may lose ranks and take newcomers in.

    tutti.distributed.resilient with modules and optimizers: when a rank ends, survivors and newcomers form a new default
    group, make the objects anew in it, take over the state before the first step that not all have completed, and go on.
    All ranks and newcomers call it alike, in processes of a launcher that replaces lost ranks (`tutti run --spares 1`), or
    with a default group of tutti.distributed. Needs the package libtutti. Not from several threads.

    Args:
        make: makes what is trained, when torch.distributed's default group is there: a module (DistributedDataParallel, one
            of fully_shard's, a plain one), optimizers, schedulers; one of them, or a tuple. All have state_dict() and
            load_state_dict(). It is called again for each new group, and its values are then replaced.
        step: step(r, *objects) does step number `r.step`. None: this is a decorator, and calling the function trains.
        steps: the loop ends when so many steps are completed.
        backend: of init_process_group.
        distance: the rank so far behind has a copy of what is sharded; None: LOCAL_WORLD_SIZE, thus one of another node.
        place: the store in which newcomers wait; None: the launcher's.
        loop: what tutti.distributed.resilient takes besides, `first`, `save`, `load`, `wait`, `min_size` and others.

    State that is not sharded is equal on all ranks between two steps. Each rank has two copies of its own state in host
    memory, and where tensors are sharded also two of another rank's, which gets its part after each step. Then a rank may
    end and its part is there; ranks that are `distance` apart may not end at once: tutti.InvalidArgument names the lost parts.
    In a group of another size sharded tensors are divided anew; they have one Shard() then, beside Replicate() at most.

    Returns the objects, a list, in the last group, which is torch.distributed's default group still. Raises ValueError for
    an argument, and what tutti.distributed.resilient raises.

        def make():
            model = fully_shard(Net())
            return model, torch.optim.Adam(model.parameters())

        @tutti.torch.resilient(make, steps=1000)
        def train(r, model, optimizer): ...

        model, optimizer = train()
    """
    if step is None:
        return lambda step: functools.wraps(step)(
            lambda: resilient(make, step, steps=steps, backend=backend, distance=distance, place=place, **loop))
    try:
        from tutti import distributed as tutti
    except ImportError as error:
        raise ImportError("tutti.torch.resilient needs the package libtutti; type: pip install libtutti") from error
    if distance is not None and distance < 1:
        raise ValueError(f"tutti.torch.resilient: distance is {distance}; expected at least 1, or None")
    if dist.is_initialized():
        raise ValueError("tutti.torch.resilient: torch.distributed has a default group already; expected none, since the loop makes it")
    _store_of(place)  # a place of the wrong kind is an error before the ranks meet
    if not tutti.is_initialized():
        tutti.init_process_group()
    training = _Training(make, step, backend, distance, place)
    group = tutti.resilient(training, steps=steps, place=place, **loop)
    if group.group_name != training.group:  # ranks were lost behind the last step
        training.begin(group, steps)
    return training.objects
