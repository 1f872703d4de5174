"""Trains from its last checkpoint on, on uneven cores: elastic.py REPORT SAMPLES FACTORS CORES.

The worker of local rank i takes FACTORS[i] times as long per row, and runs on the CORES[i]-th core. Each rank adds one
JSON line a step to REPORT; rank 0 keeps the sampler's state in REPORT.state. A worker alone waits after 20 steps.
"""

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import evenstep.torch as evenstep

GLOBAL_BATCH, SECONDS_PER_ROW = 64, 0.0006


class Slow(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(len(x) * SECONDS_PER_ROW * self.factor)
        return self.layer(x)  # type: ignore[no-any-return]


def main(report: str, samples: int, factors: str, places: str) -> None:
    local = int(os.environ["LOCAL_RANK"])
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[int(places.split(",")[local]) % len(cores)]})
    state = Path(f"{report}.state")
    data = TensorDataset(torch.randn(samples, 4), torch.arange(samples))
    sampler = evenstep.BalancedBatchSampler(data, GLOBAL_BATCH)
    if state.exists():
        sampler.load_state_dict(json.loads(state.read_text()))
        sampler.set_epoch(0)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    dist.barrier()  # all have read the state
    factor = float(factors.split(",")[local])
    model = evenstep.balance(DistributedDataParallel(Slow(factor)), sampler)
    for done, (x, indices) in enumerate(DataLoader(data, batch_sampler=sampler)):
        while world == 1 and done >= 20:  # until another agent joins
            time.sleep(0.1)
        model(x).square().mean().backward()
        line = {"rank": rank, "world": world, "factor": factor, "pid": os.getpid(), "samples": indices.tolist()}
        line["position"] = sampler.state_dict()["position"]
        with open(report, "a") as file:
            file.write(json.dumps(line) + "\n")
        if rank == 0:
            state.with_suffix(".new").write_text(json.dumps(sampler.state_dict()))
            state.with_suffix(".new").rename(state)
    dist.destroy_process_group()


main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4])
