"""Trains a little. Each rank prints its node, its number, and its batch sizes in the first step and in the last."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import evenstep.torch as evenstep

STEPS, GLOBAL_BATCH, WIDTH = 30, 100, 64


def main() -> None:
    """Train with one forward and one backward a step."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    dataset = TensorDataset(torch.randn(STEPS * GLOBAL_BATCH, WIDTH))
    sampler = evenstep.BalancedBatchSampler(dataset, global_batch_size=GLOBAL_BATCH, seed=0)
    model = evenstep.balance(DistributedDataParallel(nn.Linear(WIDTH, WIDTH)), sampler)
    sizes = []
    for (x,) in DataLoader(dataset, batch_sampler=sampler):
        sizes.append(len(x))
        model(x).square().mean().backward()
    print(f"{os.environ['NODE']} rank {dist.get_rank()} first {sizes[0]} last {sizes[-1]}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
