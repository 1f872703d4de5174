"""MNIST under Lightning's Trainer. The lines that Evenstep asks for are marked; docs/lightning.md has them.

torchrun --nproc-per-node=2 --rdzv-backend=evenstep examples/torchrun/train_lightning.py
"""

import argparse
import os
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, DistributedSampler, random_split

import evenstep.torch as evenstep
from mnist import images, network


class Digits(LightningModule):
    def __init__(self, validation: Any) -> None:
        super().__init__()
        self.network = network()
        self.validation = validation

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        pixels, digits = batch
        loss = cross_entropy(self.network(pixels), digits)
        self.log("loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        pixels, digits = batch
        right = (self.network(pixels).argmax(1) == digits).float().mean()
        self.log("right", right, sync_dist=True)

    def val_dataloader(self) -> DataLoader:
        ranks = DistributedSampler(self.validation, shuffle=False)  # 1, with validation: Lightning adds it no more
        return DataLoader(self.validation, sampler=ranks, batch_size=250)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class Report(Callback):
    """Says what a fit came to, an epoch at a time."""

    def on_train_epoch_end(self, trainer: Trainer, module: LightningModule) -> None:
        loss, right = (trainer.callback_metrics[name].item() for name in ("loss", "right"))
        if trainer.is_global_zero:
            print(f"epoch {trainer.current_epoch}: loss {loss:.4f}, {right:.1%} right", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=128, help="samples of a device in a step, with equal batches")
    parser.add_argument(
        "--checkpoint", help="folder of checkpoints, one every 10 steps, of which the newest is continued"
    )
    args = parser.parse_args()

    seed_everything(0)
    training, validation = random_split(images(), [4500, 500])
    world = int(os.environ["WORLD_SIZE"])
    sampler = evenstep.BalancedBatchSampler(training, args.batch * world, seed=0)  # 2
    loader = DataLoader(training, batch_sampler=sampler, num_workers=2)  # 3, was: batch_size=args.batch, shuffle=True
    saved = sorted(Path(args.checkpoint).glob("*.ckpt"), key=os.path.getmtime) if args.checkpoint else []
    trainer = Trainer(
        max_epochs=args.epochs,
        strategy="ddp",
        devices=int(os.environ["LOCAL_WORLD_SIZE"]),
        num_nodes=world // int(os.environ["LOCAL_WORLD_SIZE"]),
        accelerator="auto" if torch.cuda.is_available() else "cpu",
        use_distributed_sampler=False,  # 4
        callbacks=[
            evenstep.lightning.Balance(sampler),  # 5
            ModelCheckpoint(args.checkpoint, every_n_train_steps=10, save_top_k=-1),
            Report(),
        ],
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
    )
    trainer.fit(Digits(validation), loader, ckpt_path=saved[-1] if saved else None)


if __name__ == "__main__":
    main()
