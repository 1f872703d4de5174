"""MNIST under Fabric. The lines that Evenstep asks for are marked; docs/lightning.md has them.

torchrun --nproc-per-node=2 --rdzv-backend=evenstep examples/torchrun/train_fabric.py
"""

import argparse
import os
from pathlib import Path

import torch
from lightning.fabric import Fabric
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

import evenstep.torch as evenstep
from mnist import images, network


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=128, help="samples of a device in a step, with equal batches")
    parser.add_argument("--checkpoint", help="file to continue from where it exists, written after each epoch")
    args = parser.parse_args()

    fabric = Fabric(
        accelerator="auto" if torch.cuda.is_available() else "cpu",
        strategy="ddp",
        devices=int(os.environ["LOCAL_WORLD_SIZE"]),
        num_nodes=int(os.environ["WORLD_SIZE"]) // int(os.environ["LOCAL_WORLD_SIZE"]),
    )
    fabric.launch()
    fabric.seed_everything(0)
    dataset = images()
    sampler = evenstep.BalancedBatchSampler(dataset, args.batch * fabric.world_size, seed=0)  # 1
    loader = DataLoader(dataset, batch_sampler=sampler, num_workers=2)  # 2, was: batch_size=args.batch, shuffle=True
    model = network()
    model, optimizer = fabric.setup(model, torch.optim.Adam(model.parameters(), lr=1e-3))
    loader = fabric.setup_dataloaders(loader, use_distributed_sampler=False)  # 3
    evenstep.balance(model, sampler)  # 4

    state = {"model": model, "optimizer": optimizer, "sampler": sampler, "epoch": 0}  # 5, with checkpoints
    if args.checkpoint and Path(args.checkpoint).exists():
        fabric.load(args.checkpoint, state)
    for epoch in range(state["epoch"], args.epochs):
        for step, (pixels, digits) in enumerate(loader, 1):
            optimizer.zero_grad()
            loss = cross_entropy(model(pixels), digits)
            fabric.backward(loss)
            optimizer.step()
            if step % 10 == 0:
                fabric.print(f"epoch {epoch}: loss {loss.item():.4f}, batch sizes {sampler.batch_sizes}")
        state["epoch"] = epoch + 1
        if args.checkpoint:
            fabric.save(args.checkpoint, state)


if __name__ == "__main__":
    main()
