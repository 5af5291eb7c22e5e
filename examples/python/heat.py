"""The heat equation in three dimensions on blocks of an array, whose halos ranks exchange while they compute inside.

    tutti run -n 4 python examples/python/heat.py
"""
from typing import Any

import numpy as np

import tutti.distributed as dist

Part = tuple[slice, ...]

WHOLE, STEPS = (24, 20, 28), 20  # hot before the first plane, cold behind the last one; a torus along 1 and 2
ALL = slice(1, -1)


def step(now: Any, new: Any, part: Part = (ALL, ALL, ALL)) -> None:
    """One step of the inner cells in `part`."""
    inner = now[part]
    around = np.zeros_like(inner)
    for dim in range(3):
        for offset in (-1, 1):
            moved = list(part)
            moved[dim] = slice(part[dim].start + offset, part[dim].stop + offset or None)
            around += now[tuple(moved)]
    new[part] = inner + 0.125 * (around - 6 * inner)


dist.init_process_group()
shape = dist.balanced_mesh_shape(dist.get_world_size(), (0, 0, 0))
mesh = dist.init_device_mesh("cpu", shape)
place = mesh.get_coordinate() or []  # each rank is in the mesh
part = [slice(w * c // n, w * (c + 1) // n) for w, c, n in zip(WHOLE, place, shape)]
now, new = (np.zeros([p.stop - p.start + 2 for p in part]) for _ in range(2))
if place[0] == 0:
    now[0] = new[0] = 1

halos = [dist.Halo(0), dist.Halo(1, periodic=True), dist.Halo(2, periodic=True)]
plans = [dist.plan.exchange_halos(block, mesh, halos) for block in (now, new)]
for turn in range(STEPS):
    work = plans[turn % 2].start()
    step(now, new, (slice(2, -2),) * 3)  # needs no halo
    if work:
        work.wait()
    for dim in range(3):
        for face in (slice(1, 2), slice(-2, -1)):
            step(now, new, tuple(face if d == dim else ALL for d in range(3)))
    now, new = new, now

whole = np.zeros([n + 2 for n in WHOLE])
whole[0] = 1
other = whole.copy()
for _ in range(STEPS):  # the same on one rank
    whole[:, 0], whole[:, -1] = whole[:, -2], whole[:, 1]
    whole[:, :, 0], whole[:, :, -1] = whole[:, :, -2], whole[:, :, 1]
    step(whole, other)
    whole, other = other, whole
assert np.array_equal(now[1:-1, 1:-1, 1:-1], whole[1:-1, 1:-1, 1:-1][tuple(part)])
print(f"rank {dist.get_rank()} at {tuple(place)} of a {shape} mesh: its hottest inner cell has "
      f"{now[1:-1, 1:-1, 1:-1].max():.6f}, the same as on one rank")
dist.destroy_process_group()
