"""Trains while rank 1 sleeps inside the backward of some steps, so that rank 0 waits for it.

Usage: waiting.py STEPS DELAY_SECONDS. Which steps are delayed: `delayed`. Each rank runs on a core of its own.
"""

import os
import random
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import evenstep.torch as evenstep

ROWS, WIDTH = 64, 512


def delayed(step: int) -> bool:
    """About every second step, by a chance that depends on the step alone."""
    return random.Random(step).random() < 0.5


class Sleeper(nn.Module):
    """The identity; its backward sleeps."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.seconds > 0:
            x.register_hook(lambda _: time.sleep(self.seconds))
        return x


def main() -> None:
    steps, delay = int(sys.argv[1]), float(sys.argv[2])
    dist.init_process_group("gloo")
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[dist.get_rank() % len(cores)]})
    torch.set_num_threads(1)
    data = TensorDataset(torch.randn(2 * ROWS * steps, WIDTH))
    sampler = evenstep.BalancedBatchSampler(data, 2 * ROWS)
    sleeper = Sleeper()
    blocks = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(8)]
    net = nn.Sequential(*blocks[:4], sleeper, *blocks[4:])
    model = evenstep.balance(DistributedDataParallel(net, bucket_cap_mb=2), sampler)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step, (x,) in enumerate(DataLoader(data, batch_sampler=sampler)):
        sleeper.seconds = delay if dist.get_rank() == 1 and delayed(step) else 0.0
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    time.sleep(0.2)  # the last reports are on their way
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
