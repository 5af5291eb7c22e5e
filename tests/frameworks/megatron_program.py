"""Megatron-Core: its GPT model and its pipeline schedules; tensor parallelism, then a pipeline, then its DDP."""

import contextlib
import warnings

warnings.filterwarnings("ignore")

import small
import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode


class OnCpu(TorchFunctionMode):
    """Its schedules name the device "cuda" and torch.cuda.current_device() for buffers of their own."""

    def __torch_function__(self, function, types, arguments=(), named=None):
        named = named or {}
        if named.get("device") == "cuda":
            named = named | {"device": "cpu"}
        return function(*arguments, **named)


torch.cuda.current_device = lambda: torch.device("cpu")
torch.cuda.synchronize = lambda *_: None

from megatron.core import parallel_state, tensor_parallel
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.transformer.transformer_config import TransformerConfig

KNOWN = ("Megatron-Core has its own buffers on `\"cuda\"` whatever the backend is: the program has them on the CPU, without "
         "dropout, whose generators are CUDA's; sequence parallelism needs Apex or Transformer Engine")
SEQUENCE, VOCABULARY, MICROBATCHES = 8, 64, 2

# Dropout is off, so that no generator is forked.
tensor_parallel.random.CudaRNGStatesTracker.fork = lambda *_, **__: contextlib.nullcontext()
if small.BY_NAME:
    # lines
    import torch.distributed as dist

    dist.init_process_group("tutti")  # parallel_state.initialize_model_parallel makes its groups of it
    # end
else:
    dist.init_process_group("gloo")


def texts(group: int, step: int):
    """Batches of a data-parallel group, without an end."""
    generator = torch.Generator().manual_seed(100 * step + group)
    while True:
        text = torch.randint(0, VOCABULARY, (2, SEQUENCE + 1), generator=generator)
        yield text[:, :-1], text[:, 1:]


def forward(batches, model):
    tokens, labels = next(batches)
    positions = torch.arange(SEQUENCE).expand(2, -1)
    mask = torch.triu(torch.ones(1, 1, SEQUENCE, SEQUENCE), 1).bool()
    losses = model(tokens, positions, mask, labels=labels)

    def loss_of(output):
        loss = output.float().mean()
        return loss, {"loss": loss.detach().clone()}

    return losses, loss_of


def train(tensor: int, pipeline: int) -> tuple[list[float], list[torch.Tensor]]:
    parallel_state.initialize_model_parallel(tensor, pipeline)
    torch.manual_seed(1)
    config = TransformerConfig(num_layers=2, hidden_size=32, num_attention_heads=4, use_cpu_initialization=True,
                               hidden_dropout=0.0, attention_dropout=0.0, tensor_model_parallel_size=tensor,
                               pipeline_model_parallel_size=pipeline, pipeline_dtype=torch.float32, gradient_accumulation_fusion=False,
                               bias_dropout_fusion=False, bias_activation_fusion=False, masked_softmax_fusion=False,
                               finalize_model_grads_func=finalize_model_grads)
    net = GPTModel(config, get_gpt_layer_local_spec(), VOCABULARY, SEQUENCE, share_embeddings_and_output_weights=False,
                   pre_process=parallel_state.is_pipeline_first_stage(),
                   post_process=parallel_state.is_pipeline_last_stage())
    ddp = DistributedDataParallel(config, DistributedDataParallelConfig(overlap_grad_reduce=False), net)
    ddp.broadcast_params()
    group = parallel_state.get_data_parallel_rank()
    last = parallel_state.get_pipeline_model_parallel_last_rank()
    losses = []
    for step in range(small.STEPS):
        ddp.zero_grad_buffer()
        said = get_forward_backward_func()(forward_step_func=forward, data_iterator=texts(group, step), model=ddp,
                                           num_microbatches=MICROBATCHES, seq_length=SEQUENCE, micro_batch_size=2,
                                           forward_only=False)
        with torch.no_grad():
            for p in net.parameters():
                p -= 0.1 * p.main_grad
        mean = torch.stack([one["loss"] for one in said]).mean() if said else torch.zeros(())
        dist.broadcast(mean, src=last, group=parallel_state.get_pipeline_model_parallel_group())
        losses.append(mean.item())
    # Of all ranks: each has a part of the model, or all of it.
    mine = torch.cat([p.detach().flatten() for p in net.parameters()])
    everybody = [None] * dist.get_world_size()
    dist.all_gather_object(everybody, mine)
    parallel_state.destroy_model_parallel()
    return losses, everybody


losses, parameters = [], []
with OnCpu():
    for tensor, pipeline in ((2, 1), (1, 2), (1, 1)):
        these, parts = train(tensor, pipeline)
        losses += these
        parameters += parts
assert losses[0] != losses[-1], losses
if dist.get_rank() == 0:
    print(small.outcome(losses, parameters), flush=True)
dist.destroy_process_group()
