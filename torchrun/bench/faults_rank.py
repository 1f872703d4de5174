"""A rank of the fault bench: faults_rank.py REPORT. Trains in float64, epoch after epoch, until it is told to stop.

Adds a JSON line a step to REPORT, and at the end rank 0's with the weights and those of one process on whole batches.
Continues from REPORT.state, which rank 0 writes after each step.
"""

import io
import json
import os
import select
import sys
from pathlib import Path
from typing import Any

# Only the ranks see the clock that is set back: it is not the core's, which asks the kernel and not the C library.
if os.environ.get("EVENSTEP_FAULTS_PRELOAD") and "LD_PRELOAD" not in os.environ:
    os.environ["LD_PRELOAD"] = os.environ["EVENSTEP_FAULTS_PRELOAD"]
    os.execv(sys.executable, [sys.executable, *sys.argv])

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import evenstep.torch as evenstep

SAMPLES, GLOBAL_BATCH, MOST_EPOCHS = 300, 16, 400
FEATURES = torch.randn(SAMPLES, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1)).double()


def order(epoch: int) -> torch.Tensor:
    return torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(5 + epoch))


def expected(epochs: int, position: int) -> list[float]:
    """Train as one process does, up to `position` of the last of `epochs`."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(epochs):
        for at, rows in enumerate(order(epoch).split(GLOBAL_BATCH)):
            if epoch + 1 == epochs and at * GLOBAL_BATCH >= position:
                break
            optimizer.zero_grad()
            model(FEATURES[rows]).square().mean().backward()
            optimizer.step()
    return weights(model)


def weights(model: nn.Module) -> list[float]:
    return [x for parameter in model.parameters() for x in parameter.detach().flatten().tolist()]


def main(report: str) -> None:
    state = Path(f"{report}.state")
    data = TensorDataset(FEATURES, torch.arange(SAMPLES))
    sampler = evenstep.BalancedBatchSampler(data, GLOBAL_BATCH, seed=5)
    local = net()
    first = 0
    if state.exists():
        saved: dict[str, Any] = torch.load(io.BytesIO(state.read_bytes()))
        sampler.load_state_dict(saved["sampler"])
        local.load_state_dict(saved["model"])
        first = saved["sampler"]["epoch"]
    dist.init_process_group("gloo")
    dist.barrier()
    rank = dist.get_rank()
    model = evenstep.balance(DistributedDataParallel(local), sampler)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    until, stop = Path(os.environ["EVENSTEP_FAULTS_UNTIL"]), torch.zeros(1)
    for epoch in range(first, MOST_EPOCHS):
        sampler.set_epoch(epoch)
        workers = 0 if "LD_PRELOAD" in os.environ else epoch % 2  # a fork beside libfaketime's lock may hang
        for x, indices in DataLoader(data, batch_sampler=sampler, num_workers=workers):
            select.select([], [], [], 0.01)  # libfaketime breaks time.sleep
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            position = sampler.state_dict()["position"]
            line = {"rank": rank, "epoch": epoch, "position": position, "samples": indices.tolist()}
            with open(report, "a") as file:
                file.write(json.dumps(line) + "\n")
            if rank == 0:
                stop.fill_(until.exists())
            dist.all_reduce(stop)  # all have told before the state is kept
            if rank == 0:
                file_like = io.BytesIO()
                torch.save({"sampler": sampler.state_dict(), "model": local.state_dict()}, file_like)
                new = state.with_suffix(".new")
                new.write_bytes(file_like.getvalue())
                new.rename(state)
            if stop:
                break
        if stop:
            break
    if rank == 0:
        line = {
            "epochs": epoch + 1,
            "order": [order(e).tolist() for e in range(epoch + 1)],
            "weights": weights(local),
            "expected": expected(epoch + 1, position),
        }
        with open(report, "a") as file:
            file.write(json.dumps(line) + "\n")
    dist.destroy_process_group()


main(sys.argv[1])
