"""Trains from its last checkpoint on, and takes a checkpoint after each third step: resumed.py REPORT EPOCHS.

Each rank adds a JSON line a step to REPORT; rank 0 keeps the checkpoint in REPORT.state.
"""

import json
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import evenstep.torch as evenstep

SAMPLES, GLOBAL_BATCH, SEED = 1210, 24, 5


def main(report: str, epochs: int) -> None:
    dist.init_process_group("gloo")
    state = Path(f"{report}.state")
    data = TensorDataset(torch.arange(SAMPLES))
    sampler = evenstep.BalancedBatchSampler(data, GLOBAL_BATCH, seed=SEED)
    if state.exists():
        sampler.load_state_dict(json.loads(state.read_text()))
    dist.barrier()  # all have read it
    loader = DataLoader(data, batch_sampler=sampler, num_workers=2)
    model = evenstep.balance(DistributedDataParallel(nn.Linear(1, 1)), sampler)
    for epoch in range(sampler.epoch, epochs):
        sampler.set_epoch(epoch)
        for step, (batch,) in enumerate(loader):
            model(batch.float().unsqueeze(1)).mean().backward()
            time.sleep(0.02)  # leaves the core time to answer, and us time to be ended
            at = sampler.state_dict()
            line = {"rank": dist.get_rank(), "world": dist.get_world_size(), "samples": batch.tolist()}
            with open(report, "a") as file:
                file.write(json.dumps({**line, "epoch": at["epoch"], "position": at["position"]}) + "\n")
            if step % 3 < 2:
                continue
            dist.barrier()  # all have trained on it
            if dist.get_rank() == 0:
                state.with_suffix(".new").write_text(json.dumps(at))
                state.with_suffix(".new").rename(state)
    dist.destroy_process_group()


main(sys.argv[1], int(sys.argv[2]))
