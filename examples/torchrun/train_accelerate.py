"""A training with accelerate. The lines that Evenstep asks for are marked; docs/accelerate.md has them.

torchrun --nproc-per-node=2 --rdzv-backend=evenstep examples/torchrun/train_accelerate.py
"""

import argparse
from pathlib import Path

import torch
from accelerate import Accelerator
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

import evenstep.torch as evenstep
from mnist import images, network


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=64, help="samples of a device in a forward, with equal batches")
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--checkpoint", help="folder to continue from where it exists, written after each epoch")
    args = parser.parse_args()

    accelerator = Accelerator(gradient_accumulation_steps=args.accumulate, cpu=not torch.cuda.is_available())
    torch.manual_seed(0)
    dataset, model = images(), network()
    sampler = evenstep.BalancedBatchSampler(dataset, args.batch * accelerator.num_processes, view="global")  # 1
    loader = DataLoader(dataset, batch_sampler=sampler, num_workers=2)  # 2, was: batch_size=args.batch, shuffle=True
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    scheduler = torch.optim.lr_scheduler.LinearLR(
        optimizer, 1.0, 0.1, total_iters=args.epochs * len(loader) // args.accumulate
    )
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    evenstep.balance(model, sampler)  # 3
    accelerator.register_for_checkpointing(sampler)  # 4, with checkpoints

    if args.checkpoint and Path(args.checkpoint).exists():
        accelerator.load_state(args.checkpoint)
    for epoch in range(sampler.epoch, args.epochs):
        losses = []
        for pixels, digits in loader:
            with accelerator.accumulate(model):
                loss = cross_entropy(model(pixels), digits)
                accelerator.backward(loss)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            losses.append(loss.detach())
        mean = torch.stack(losses).mean().item()
        accelerator.print(f"epoch {epoch}: loss {mean:.4f}, batch sizes {sampler.batch_sizes}")
        sampler.set_epoch(epoch + 1)  # 5, with checkpoints at the end of epochs
        if args.checkpoint:
            accelerator.save_state(args.checkpoint)
    accelerator.end_training()


if __name__ == "__main__":
    main()
