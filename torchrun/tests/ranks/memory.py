"""Trains where rank 1's allocator has little: memory.py WHERE, in `forward`, `backward`, or `nowhere` a row fits.

Prints one JSON line a step and rank, then the difference from one process on the whole batch.
"""

import copy
import json
import resource
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import evenstep.torch as evenstep

SAMPLES, GLOBAL_BATCH = 400, 16
ROW = 32 << 20  # float64: 256 MiB
ROOM = 5 * 8 * ROW  # on rank 1


class Hungry(nn.Module):
    """A layer that needs memory for each row. It has a buffer, as BatchNorm does."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 1)
        self.register_buffer("seen", torch.zeros(1))
        self.where = where

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.first(x))
        if self.where == "backward":
            hidden.register_hook(lambda _: eat(len(x)))
        elif self.where == "forward":
            eat(len(x))
        elif self.where == "nowhere":
            eat(100 * len(x))
        return self.last(hidden)  # type: ignore[no-any-return]


def eat(rows: int) -> None:
    torch.empty(rows * ROW, dtype=torch.float64)


def main() -> None:
    where = sys.argv[1]
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    x = torch.randn(SAMPLES, 4, dtype=torch.float64)
    data = TensorDataset(x, torch.arange(SAMPLES))
    rank = dist.get_rank()
    reference = Hungry("").double()
    net = copy.deepcopy(reference)
    net.where = where if rank == 1 else ""
    sampler = evenstep.BalancedBatchSampler(data, GLOBAL_BATCH, seed=3)
    model = evenstep.balance(DistributedDataParallel(net), sampler)
    ours = torch.optim.SGD(model.parameters(), lr=0.1)
    theirs = torch.optim.SGD(reference.parameters(), lr=0.1)

    def train(batch: torch.Tensor) -> None:
        model(batch).square().mean().backward()

    order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(3)).split(GLOBAL_BATCH)
    for step, (batch, indices) in enumerate(DataLoader(data, batch_sampler=sampler)):
        if rank == 1 and step == 0:
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, resource.RLIM_INFINITY))
        time.sleep(0.02)
        for optimizer in (ours, theirs):
            optimizer.zero_grad()
        evenstep.train_within_memory(model, sampler, train, batch)
        reference(x[order[step]]).square().mean().backward()
        for optimizer in (ours, theirs):
            optimizer.step()
        line = {"rank": rank, "step": step, "rows": len(batch), "samples": indices.tolist()}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
    pairs = zip(net.parameters(), reference.parameters(), strict=True)
    worst = max(((a - b).abs().max() / b.abs().max()).item() for a, b in pairs)
    sys.stdout.write(json.dumps({"rank": rank, "difference": worst}) + "\n")
    sys.stdout.flush()
    dist.destroy_process_group()


main()
