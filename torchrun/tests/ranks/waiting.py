"""Trains while one rank sleeps in some steps, so that the other waits for it.

Usage: waiting.py STEPS DELAY_SECONDS ddp|fsdp|metrics. `late` says which rank is late: rank 1 sleeps inside its
backward, and rank 0 before its forward, so that rank 1 waits in DistributedDataParallel's broadcast of rank 0's
buffers. With `fsdp` each block is sharded, so that ranks wait for each other at each block. With `metrics` each sleeps
in its forward, and the script adds up the losses before the backward, so that the other waits there. Each rank runs on
a core of its own.
"""

import os
import random
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import evenstep.torch as evenstep

ROWS, WIDTH = 64, 512


def late(step: int) -> int | None:
    """The rank that is late, by a chance that depends on the step alone."""
    return random.Random(step).choice([None, 0, 1])


class Sleeper(nn.Module):
    """The identity; its backward sleeps. It has a buffer, as BatchNorm does."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(1))
        self.seconds = self.forward_seconds = 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(self.forward_seconds)
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
    way = sys.argv[3]
    if way == "fsdp":
        for block in blocks:
            fully_shard(block)
        wrapped: nn.Module = fully_shard(net)  # type: ignore[assignment]
    else:
        wrapped = DistributedDataParallel(net, bucket_cap_mb=2)
    model = evenstep.balance(wrapped, sampler)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step, (x,) in enumerate(DataLoader(data, batch_sampler=sampler)):
        mine = delay if dist.get_rank() == late(step) else 0.0
        if way == "metrics":
            sleeper.forward_seconds = mine
        elif dist.get_rank() == 1:
            sleeper.seconds = mine
        else:
            time.sleep(mine)
        optimizer.zero_grad()
        loss = model(x).square().mean()
        if way == "metrics":
            dist.all_reduce(loss.detach().clone())
        loss.backward()
        optimizer.step()
    time.sleep(0.2)  # the last reports are on their way
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
