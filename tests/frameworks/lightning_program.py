"""Lightning's Trainer: fit and validate with DDP, logged values reduced over the ranks."""

import lightning
import small
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch import nn


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = small.model()
        self.losses: list[float] = []

    def training_step(self, batch, index):
        x, y = batch
        loss = nn.functional.mse_loss(self.net(x), y)
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch, index):
        x, y = batch
        self.log("validation", nn.functional.mse_loss(self.net(x), y), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.01)


options = {"accelerator": "cpu", "devices": 2, "max_steps": 4, "logger": False, "enable_checkpointing": False,
           "enable_progress_bar": False, "enable_model_summary": False}
if small.BY_NAME:
    # lines
    strategy = DDPStrategy(process_group_backend="tutti")
    trainer = lightning.Trainer(strategy=strategy, **options)
    # end
else:
    trainer = lightning.Trainer(strategy="ddp", **options)
module = Module()
loader = torch.utils.data.DataLoader(small.dataset(), batch_size=8)
trainer.fit(module, loader)
validated = trainer.validate(module, loader, verbose=False)
assert trainer.world_size == 2, trainer.world_size
if trainer.is_global_zero:
    print(small.outcome(module.losses + [validated[0]["validation"]], module.parameters()), flush=True)
