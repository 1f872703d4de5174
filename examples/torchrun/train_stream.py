"""MNIST as a stream that each rank reads a part of. The lines that Evenstep asks for are marked.

torchrun --nproc-per-node=2 --rdzv-backend=evenstep examples/torchrun/train_stream.py
"""

import argparse
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

import evenstep.torch as evenstep
from mnist import images, network


class Stream(IterableDataset[tuple[torch.Tensor, torch.Tensor]]):
    """A part of the images for each worker of each rank's loader."""

    def __init__(self) -> None:
        self.images = images()

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        worker = get_worker_info()
        part = dist.get_rank() * worker.num_workers + worker.id
        for index in range(part, len(self.images), dist.get_world_size() * worker.num_workers):
            yield self.images[index]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=128, help="samples of a device in a step, with equal batches")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    loader = DataLoader(Stream(), batch_size=8, num_workers=2)  # 1, was: batch_size=args.batch
    loader = evenstep.rebatch(loader, args.batch * dist.get_world_size())  # 2
    model = evenstep.balance(DistributedDataParallel(network()), loader)  # 3
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        for step, (pixels, digits) in enumerate(loader, 1):
            optimizer.zero_grad()
            loss = cross_entropy(model(pixels), digits)
            loss.backward()
            optimizer.step()
            if step % 10 == 0 and dist.get_rank() == 0:
                print(f"epoch {epoch}: loss {loss.item():.4f}, batch sizes {loader.batch_sizes}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
