"""torchrec: tables of embeddings that ranks share in three ways, trained by fused optimizers beside a dense layer."""

import logging

logging.disable(logging.WARNING)

import small
import torch
import torch.distributed as dist
import torchrec
from torch import nn
from torch.distributed.optim import _apply_optimizer_in_backward as apply_optimizer_in_backward
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.sharding_plan import (column_wise, construct_module_sharding_plan, row_wise, table_wise)
from torchrec.distributed.types import ShardingEnv, ShardingPlan
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

if small.BY_NAME:
    # lines
    dist.init_process_group("tutti")
    # end
else:
    dist.init_process_group("gloo")
ROWS, FEATURES, BATCH = 40, ("by_table", "by_rows", "by_columns"), 4


class Ranker(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.sparse = torchrec.EmbeddingBagCollection(tables=[
            torchrec.EmbeddingBagConfig(name=f"t_{name}", embedding_dim=16, num_embeddings=ROWS, feature_names=[name],
                                        init_fn=lambda table: nn.init.uniform_(table, -1, 1)) for name in FEATURES])
        self.over = nn.Linear(16 * len(FEATURES), 1)

    def forward(self, features: KeyedJaggedTensor) -> torch.Tensor:
        return self.over(self.sparse(features).values()).squeeze(-1)


def batch(rank: int, step: int) -> tuple[KeyedJaggedTensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1000 * step + rank)
    lengths = torch.randint(0, 5, (len(FEATURES) * BATCH,), generator=generator)
    values = torch.randint(0, ROWS, (int(lengths.sum()),), generator=generator)
    return KeyedJaggedTensor.from_lengths_sync(list(FEATURES), values, lengths), torch.randn(BATCH, generator=generator)


n, cpu = dist.get_world_size(), torch.device("cpu")
net = Ranker()
apply_optimizer_in_backward(torch.optim.SGD, net.sparse.parameters(), {"lr": 0.1})
ways = {"t_by_table": table_wise(rank=1), "t_by_rows": row_wise(), "t_by_columns": column_wise(ranks=[0, 1])}
plan = construct_module_sharding_plan(net.sparse, ways, EmbeddingBagCollectionSharder(), local_size=n, world_size=n,
                                      device_type="cpu")
net = DistributedModelParallel(net, env=ShardingEnv.from_process_group(dist.group.WORLD), device=cpu,
                               plan=ShardingPlan(plan={"sparse": plan}), sharders=[EmbeddingBagCollectionSharder()])
# Shards begin at random; each gets values of its own.
with torch.no_grad():
    for index, (_, table) in enumerate(sorted(net.state_dict().items())):
        if hasattr(table, "local_shards"):
            for shard in table.local_shards():
                size, offset = shard.metadata.shard_sizes, shard.metadata.shard_offsets
                whole = torch.empty(ROWS, 16).uniform_(-1, 1, generator=torch.Generator().manual_seed(index))
                shard.tensor.copy_(whole[offset[0]:offset[0] + size[0], offset[1]:offset[1] + size[1]])
dense = torch.optim.SGD(net.module.over.parameters() if hasattr(net.module, "over") else net.parameters(), lr=0.1)
losses = []
for step in range(small.STEPS):
    features, label = batch(dist.get_rank(), step)
    dense.zero_grad()
    loss = nn.functional.mse_loss(net(features), label)
    loss.backward()
    dense.step()
    losses.append(loss.item())
mine = [shard.tensor.clone() for _, table in sorted(net.state_dict().items()) if hasattr(table, "local_shards")
        for shard in table.local_shards()]
mine += [p.detach() for p in dense.param_groups[0]["params"]]
everybody = [None] * n
dist.all_gather_object(everybody, mine)
assert losses[0] != losses[-1] and all(len(parts) >= 4 for parts in everybody), (losses, everybody)
if dist.get_rank() == 0:
    print(small.outcome(losses, [part for parts in everybody for part in parts]), flush=True)
dist.destroy_process_group()
