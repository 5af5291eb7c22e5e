"""Halos and neighbourhood collectives from Python against np.pad and np.roll; their errors."""
import pathlib
import sys
import unittest
from datetime import timedelta

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import numpy as np
from ranks import run_ranks
from rows import main

import tutti
import tutti.distributed as dist


def halos(rank):
    """Blocks of a whole array in Fortran's order, with two cells below and one above, and all ways to exchange them."""
    n = dist.get_world_size()
    shape = dist.balanced_mesh_shape(n, (0, 0))
    mesh = dist.init_device_mesh("cpu", shape, mesh_dim_names=("y", "x"))
    place = mesh.get_coordinate()
    whole = np.arange(6.0 * shape[0] * 5 * 4 * shape[1]).reshape(6 * shape[0], 5, 4 * shape[1])
    padded = np.pad(np.pad(whole, ((0, 0), (0, 0), (2, 1)), mode="wrap"), ((2, 1), (0, 0), (0, 0)), constant_values=-1)
    part = tuple(slice(c * w, c * w + w + 3) for c, w in zip(place, (6, 4)))
    wanted = padded[part[0], :, part[1]]
    block = np.zeros((9, 5, 7), order="F")
    sides = [dist.Halo(0, width=(2, 1)), dist.Halo(-1, (2, 1), mesh_dim="x", periodic=True)]
    plan = dist.plan.exchange_halos(block, mesh, sides)
    for exchange in (lambda: dist.exchange_halos(block, mesh, sides), plan.run, lambda: plan.start().wait(),
                     lambda: dist.exchange_halos(block, mesh, sides, async_op=True).wait(),
                     lambda: [dist.exchange_halos(block, mesh, side, timeout=timedelta(seconds=20)) for side in sides]):
        block[:] = -1
        block[2:-1, :, 2:-1] = wanted[2:-1, :, 2:-1]
        exchange()
        assert np.array_equal(block, wanted), (block, wanted)
    low, high = dist.mesh_neighbors(mesh, "y")
    assert low == (None if place[0] == 0 else rank - shape[1]) and (high is None) == (place[0] == shape[0] - 1)
    assert dist.mesh_neighbors(mesh, 1, periodic=True, distance=shape[1]) == (rank, rank)
    return shape


def graph(rank):
    """Each rank sends rank + 1 numbers to each rank above it, and nothing to itself."""
    n = dist.get_world_size()
    above, below = list(range(rank + 1, n)), list(range(rank))
    links = dist.NeighborGraph(below + [rank, None], above + [rank, None])
    assert links.sources == below + [rank, None] and links.destinations == above + [rank, None]
    inputs = [np.full(rank + 1, 10 * rank + other) for other in above] + [np.zeros(0, int), np.zeros(1, int)]
    wanted = [[10 * other + rank] * (other + 1) for other in below] + [[], [-1]]
    outputs = [np.full(len(values), -1) for values in wanted]
    plan = dist.plan.neighbor_all_to_all(outputs, inputs, links)
    for exchange in (lambda: dist.neighbor_all_to_all(outputs, inputs, links), plan.run,
                     lambda: dist.neighbor_all_to_all(outputs, inputs, links, async_op=True).wait()):
        for output in outputs:
            output[:] = -1
        exchange()
        assert [output.tolist() for output in outputs] == wanted
    gathered = [np.zeros(other + 1) for other in below] + [np.zeros(rank + 1), np.zeros(1)]
    own = np.full(rank + 1, float(rank))
    for exchange in (lambda: dist.neighbor_all_gather(gathered, own, links),
                     lambda: dist.neighbor_all_gather(gathered, own, links, async_op=True).wait(),
                     dist.plan.neighbor_all_gather(gathered, own, links).run):
        for output in gathered:
            output[:] = -1
        exchange()
        assert [output.tolist() for output in gathered[:-1]] == [[float(r)] * (r + 1) for r in below + [rank]]
    return len(wanted)


def refused(rank):
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    block, texts = np.zeros((4, 4)), []
    for call in (lambda: dist.exchange_halos(block, mesh, "0"), lambda: dist.exchange_halos(block, mesh, dist.Halo(2)),
                 lambda: dist.exchange_halos(block, mesh, dist.Halo(0, width=(1, 2, 3))),
                 lambda: dist.exchange_halos(block, mesh, dist.Halo(0, width=2)),
                 lambda: dist.NeighborGraph([99], []), lambda: dist.balanced_mesh_shape(6, (4, 0)),
                 lambda: dist.neighbor_all_to_all([block], [], dist.NeighborGraph([], [])),
                 lambda: dist.NeighborGraph([], [0] if rank else [])):
        try:
            call()
            texts.append("accepted")
        except (tutti.InvalidArgument, dist.CollectiveMismatch) as error:
            texts.append(str(error))
    return texts


class Neighbors(unittest.TestCase):
    def test_halos_are_cells_of_the_padded_array(self):
        self.assertEqual(run_ranks(halos, 4)[0], (2, 2))

    def test_halos_of_three_ranks(self):
        self.assertEqual(run_ranks(halos, 3)[0], (3, 1))

    def test_messages_on_a_graph(self):
        self.assertEqual(run_ranks(graph, 3), [2, 3, 4])

    def test_errors_name_what_is_wrong(self):
        for texts in run_ranks(refused, 2):
            for text, words in zip(texts, (
                    "expected a Halo, or a list of them", "dim 2: expected 0 to 1", "expected a number, or (low, high)",
                    "has 4 cells along dimension 0: expected at least 6", "source 99: expected 0 to 1",
                    "shape [4, 0] for 6 ranks: expected sizes whose product divides it", "output_list has 1 tensors",
                    "rank 1 lists rank 0 once as a destination, but rank 0 lists rank 1 not as a source")):
                self.assertIn(words, text)


if __name__ == "__main__":
    main("python_neighbors")
