"""Trains and tells which samples each rank took at each step.

Usage: agreement.py NUM_WORKERS SAVE. Three epochs, the second left after three batches; SAVE is a step of the third
after which the sampler's state is printed too. One JSON line a step and rank.
"""

import json
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import evenstep.torch as evenstep

SAMPLES, GLOBAL_BATCH = 500, 24


def main() -> None:
    num_workers, save = int(sys.argv[1]), int(sys.argv[2])
    dist.init_process_group("gloo")
    data = TensorDataset(torch.arange(SAMPLES))
    sampler = evenstep.BalancedBatchSampler(data, GLOBAL_BATCH, seed=3)
    loader = DataLoader(data, batch_sampler=sampler, num_workers=num_workers)
    model = evenstep.balance(DistributedDataParallel(nn.Linear(1, 1)), sampler)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for step, (batch,) in enumerate(loader):
            if epoch == 1 and step == 3:
                break
            model(batch.float().unsqueeze(1)).mean().backward()
            time.sleep(0.004)  # leaves the core time to answer
            line = {"rank": dist.get_rank(), "epoch": epoch, "step": step, "samples": batch.tolist()}
            if epoch == 2 and step == save:
                line["state"] = sampler.state_dict()
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()
    dist.destroy_process_group()


main()
