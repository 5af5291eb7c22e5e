"""Ray Train: a TorchTrainer with two workers. Started without torchrun: Ray starts the workers itself."""

import os
import pathlib
import sys
import tempfile

os.environ["RAY_TRAIN_V2_ENABLED"] = "1"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_DEDUP_LOGS"] = "0"

import ray
import ray.train
import small
import torch
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model

FOLDER = str(pathlib.Path(__file__).resolve().parent)


def training(config: dict) -> None:
    sys.path.insert(0, config["folder"])
    net = prepare_model(small.model())
    rank = ray.train.get_context().get_world_rank()
    assert ray.train.get_context().get_world_size() == 2
    losses = small.train(net, torch.optim.AdamW(net.parameters(), lr=0.01), rank, lambda loss: loss.backward())
    if rank == 0:
        pathlib.Path(config["result"]).write_text(small.outcome(losses, net.parameters()))


def start_ray(folder: str) -> None:
    """Ray gives itself 30 s to start, which on a busy machine may not be enough: it has three tries."""
    path = os.environ.get("PYTHONPATH", "") + ":" + FOLDER
    for left in (2, 1, 0):
        try:
            ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20,
                     runtime_env={"env_vars": {"PYTHONPATH": path}}, _temp_dir=folder)
            return
        except Exception:  # noqa: BLE001: Ray raises Exception itself
            ray.shutdown()
            if not left:
                raise


with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
    start_ray(folder)
    loop = {"folder": FOLDER, "result": os.path.join(folder, "result")}
    scaling = ScalingConfig(num_workers=2, use_gpu=False)
    storage = ray.train.RunConfig(storage_path=folder)
    if small.BY_NAME:
        # lines
        from ray.train.torch import TorchConfig

        trainer = TorchTrainer(training, train_loop_config=loop, scaling_config=scaling, run_config=storage,
                               torch_config=TorchConfig(backend="tutti"))
        # end
    else:
        from ray.train.torch import TorchConfig

        trainer = TorchTrainer(training, train_loop_config=loop, scaling_config=scaling, run_config=storage,
                               torch_config=TorchConfig(backend="gloo"))
    trainer.fit()
    print(pathlib.Path(loop["result"]).read_text(), flush=True)
    ray.shutdown()
