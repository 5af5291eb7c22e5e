"""A work queue with one shared counter: a rank that has time takes the next piece.

    tutti run -n 4 build/python/venv/bin/python examples/python/work_queue.py
"""
import numpy as np

import tutti.distributed as dist

PIECES, HOME = 40, 0  # the rank that has the counter

dist.init_process_group()
rank = dist.get_rank()
done = []
with dist.Window(1 if rank == HOME else 0, "int64") as counter:
    while (piece := counter.fetch_add(1, HOME)) < PIECES:
        done.append(piece)  # here the work is done
mine = np.zeros(PIECES, np.int64)
mine[done] = 1
dist.all_reduce(mine)
assert mine.tolist() == [1] * PIECES, mine  # each piece once
if rank == 0:
    print(f"{PIECES} pieces, each done by one rank")
dist.destroy_process_group()
