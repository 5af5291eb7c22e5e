"""AllToAllVV2, the operation of Huawei's ATB: tutti run -n 4 python atb.py"""
import json
import os

import numpy as np

import tutti.atb as atb

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

# By a structure: each rank sends i + 1 elements to rank i, from anywhere in its input to anywhere in the output.
operation = atb.AllToAllVV2(atb.AllToAllVV2Param(rank=rank, rankSize=size))
counts = [i + 1 for i in range(size)]
places = [sum(counts[:i]) for i in range(size)]
x = np.arange(sum(counts), dtype=np.float16) + 100 * rank
gathered = operation.execute(x, counts, places, recvCounts=[rank + 1] * size)
expected = [100 * j + places[rank] + k for j in range(size) for k in range(rank + 1)]
assert gathered.tolist() == [expected]

# By JSON texts, as ATB's tests do: every other rank's block in reverse order.
test = atb.OperationTorch("AllToAllVV2Operation")
test.set_param(json.dumps({"rank": rank, "rankSize": size, "rankRoot": 0, "backend": "hccl"}))
test.set_varaintpack_param(json.dumps({"sendCounts": [1] * size, "sdispls": list(range(size)), "recvCounts": [1] * size,
                                       "rdispls": list(reversed(range(size)))}))
result = test.execute([np.arange(size) + 10 * rank])[0]
assert result.tolist() == [[10 * j + rank for j in reversed(range(size))]]
print(f"rank {rank} of {size}: {result}")
