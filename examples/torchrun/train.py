"""A plain DistributedDataParallel training. The three lines that Evenstep asks for are marked.

torchrun --nproc-per-node=2 --rdzv-backend=evenstep examples/torchrun/train.py
"""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

import evenstep.torch as evenstep
from mnist import images, network


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--global-batch", type=int, default=256)
    parser.add_argument("--num-workers", type=int, default=2)
    parser.add_argument("--checkpoint", help="file to continue from where it exists, written every 10 steps")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    dataset = images()
    sampler = evenstep.BalancedBatchSampler(dataset, global_batch_size=args.global_batch, seed=0)  # 1
    loader = DataLoader(dataset, batch_sampler=sampler, num_workers=args.num_workers)  # 2
    model = evenstep.balance(DistributedDataParallel(network()), sampler)  # 3
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    if args.checkpoint and Path(args.checkpoint).exists():
        state = torch.load(args.checkpoint)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        sampler.load_state_dict(state["sampler"])  # holds for any number of workers and any batch sizes

    for epoch in range(sampler.epoch, args.epochs):
        sampler.set_epoch(epoch)
        for step, (pixels, digits) in enumerate(loader, 1):
            optimizer.zero_grad()
            loss = cross_entropy(model(pixels), digits)
            loss.backward()
            optimizer.step()
            if step % 10 == 0 and dist.get_rank() == 0:
                print(f"epoch {epoch}: loss {loss.item():.4f}, batch sizes {sampler.batch_sizes}", flush=True)
                if args.checkpoint:
                    parts = {"model": model, "optimizer": optimizer, "sampler": sampler}
                    torch.save({name: part.state_dict() for name, part in parts.items()}, args.checkpoint)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
