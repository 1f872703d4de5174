"""Trains a little; a worker on node m2 takes three times as long for a sample, as on a slower device.

They sleep for it, so that what else the machine does changes little. Each rank prints its node, its number, and its
batch sizes in the first step and in the last.
"""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import evenstep.torch as evenstep

STEPS, GLOBAL_BATCH, WIDTH = 80, 100, 8
SECONDS_PER_SAMPLE = 0.0005


class Slowed(nn.Module):
    def __init__(self, times: int) -> None:
        super().__init__()
        self.layer, self.times = nn.Linear(WIDTH, WIDTH), times

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(len(x) * SECONDS_PER_SAMPLE * self.times)
        return self.layer(x)


def main() -> None:
    torch.set_num_threads(1)
    node = os.environ["SLURMD_NODENAME"]
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    dataset = TensorDataset(torch.randn(STEPS * GLOBAL_BATCH, WIDTH))
    sampler = evenstep.BalancedBatchSampler(dataset, global_batch_size=GLOBAL_BATCH, seed=0)
    model = evenstep.balance(DistributedDataParallel(Slowed(3 if node == "m2" else 1)), sampler)
    sizes = []
    for (x,) in DataLoader(dataset, batch_sampler=sampler):
        sizes.append(len(x))
        model(x).square().mean().backward()
    print(f"{node} rank {dist.get_rank()} first {sizes[0]} last {sizes[-1]}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
