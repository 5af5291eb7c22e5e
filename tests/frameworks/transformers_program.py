"""transformers: a Trainer with a small language model that is made here, and its evaluation."""

import tempfile

import small
import torch
from accelerate.state import AcceleratorState
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

KNOWN = ("`TrainingArguments(ddp_backend=\"tutti\")` is a ValueError of accelerate's, which on CPUs takes gloo whatever it is "
         "told; it uses a group that is there already")

if small.BY_NAME:
    with small.refused(ValueError, "please use gloo"):
        TrainingArguments(use_cpu=True, ddp_backend="tutti").device
    AcceleratorState._reset_state(reset_partial_state=True)
    # lines
    import torch.distributed as dist

    dist.init_process_group("tutti")  # before the first TrainingArguments
    arguments = TrainingArguments(use_cpu=True)
    # end
generator = torch.Generator().manual_seed(3)
texts = [{"input_ids": text, "labels": text} for text in torch.randint(0, 64, (32, 12), generator=generator)]
torch.manual_seed(1)
net = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=1, n_head=2, resid_pdrop=0, embd_pdrop=0,
                                 attn_pdrop=0, bos_token_id=0, eos_token_id=0))
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(output_dir=folder, use_cpu=True, max_steps=4, per_device_train_batch_size=4, seed=5,
                                  learning_rate=1e-3, save_strategy="no", logging_steps=1, report_to=[], disable_tqdm=True)
    trainer = Trainer(model=net, args=arguments, train_dataset=texts, eval_dataset=texts)
    trainer.train()
    evaluated = trainer.evaluate()
assert arguments.world_size == 2, arguments.world_size
if trainer.is_world_process_zero():
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    print(small.outcome(losses + [evaluated["eval_loss"]], net.parameters()), flush=True)
