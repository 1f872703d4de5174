"""Trains one model after another in one process, as a search over settings does: many_models.py MODELS.

Each rank prints a JSON line a model: the files and threads it has when the model is gone, and how far its weights are
from those of one process at most.
"""

import gc
import json
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import evenstep.torch as evenstep

SAMPLES, GLOBAL_BATCH = 64, 8
DATA = torch.randn(SAMPLES, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def descend(model: nn.Module, x: torch.Tensor) -> None:
    model.zero_grad()
    model(x).square().mean().backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.1 * parameter.grad


def train(seed: int) -> float:
    torch.manual_seed(seed)
    bare, alone = nn.Linear(4, 1).double(), nn.Linear(4, 1).double()
    alone.load_state_dict(bare.state_dict())
    sampler = evenstep.BalancedBatchSampler(TensorDataset(DATA), GLOBAL_BATCH, shuffle=False)
    model = evenstep.balance(DistributedDataParallel(bare), sampler, count=len if seed % 2 else None)
    for (x,) in DataLoader(TensorDataset(DATA), batch_sampler=sampler):
        descend(model, x)
    for x in DATA.split(GLOBAL_BATCH):
        descend(alone, x)
    return float((bare.weight - alone.weight).abs().max())


def main(models: int) -> None:
    dist.init_process_group("gloo")
    for seed in range(models):
        difference = train(seed)
        gc.collect()
        dist.barrier()
        files, threads = (len(os.listdir(f"/proc/self/{what}")) for what in ("fd", "task"))
        line = {"rank": dist.get_rank(), "files": files, "threads": threads, "difference": difference}
        print(json.dumps(line), flush=True)
    dist.destroy_process_group()


main(int(sys.argv[1]))
