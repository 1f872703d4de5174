"""Trains with one rank slower than the others: uneven.py REPORT STEPS.

In the first half of the steps the last rank takes three times as long per row, in the second half rank 0 does. Each
rank adds one JSON line a step to REPORT. At the end nothing may hold the model. EVENSTEP_TEST_FREEZE names a step
before which a rank waits for REPORT.go; with EVENSTEP_TEST_PIN each rank has a core, and so a device, of its own.
"""

import gc
import json
import os
import sys
import time
import weakref
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import evenstep.torch as evenstep

GLOBAL_BATCH, SECONDS_PER_ROW = 64, 0.0004


class Slow(nn.Module):
    """A layer that takes its time for each row."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.factor = 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(len(x) * SECONDS_PER_ROW * self.factor)
        return self.layer(x)  # type: ignore[no-any-return]


def train(report: str, steps: int) -> weakref.ref[nn.Module]:
    rank, world = dist.get_rank(), dist.get_world_size()
    if os.environ.get("EVENSTEP_TEST_PIN"):
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank]})
    data = TensorDataset(torch.randn(GLOBAL_BATCH * steps, 4))
    sampler = evenstep.BalancedBatchSampler(data, GLOBAL_BATCH)
    slow = Slow()
    model = evenstep.balance(DistributedDataParallel(slow), sampler)
    for step, (x,) in enumerate(DataLoader(data, batch_sampler=sampler)):
        while str(step) == os.environ.get("EVENSTEP_TEST_FREEZE") and not Path(f"{report}.go").exists():
            time.sleep(0.02)
        slow.factor = 3 if rank == (world - 1 if step < steps // 2 else 0) else 1
        model(x).square().mean().backward()
        line = {"rank": rank, "world": world, "step": step, "rows": len(x), "pid": os.getpid()}
        with open(report, "a") as file:
            file.write(json.dumps(line) + "\n")
    return weakref.ref(model)


def main(report: str, steps: int) -> None:
    dist.init_process_group("gloo")
    model = train(report, steps)
    gc.collect()
    if model() is not None:
        sys.exit("the model is still held, as by the stream to the core")
    dist.destroy_process_group()


main(sys.argv[1], int(sys.argv[2]))
