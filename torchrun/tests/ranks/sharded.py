"""Trains a fully_shard model, with checkpoints by torch.distributed.checkpoint: sharded.py FOLDER first|rest|four.

The rest continues, in new processes, what first saved; four saves what two processes continue.
"""

import sys
from pathlib import Path

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.utils.data import DataLoader

import evenstep.torch as evenstep
from framework_case import DATA, GLOBAL_BATCH, SEED, STEPS, Witness, alone, net, optimizer

STOP = 2  # optimizer steps of the second epoch, after which the state is saved


class Training:
    """A model in shards, in each replica of them, and what it is trained with."""

    def __init__(self, window: int, replicas: int = 1) -> None:
        world = dist.get_world_size()
        mesh = init_device_mesh("cpu", (replicas, world // replicas), mesh_dim_names=("replicate", "shard"))
        model = net()
        self.window = window
        for layer in (*model, model):
            if list(layer.parameters()):
                fully_shard(layer, mesh=mesh if replicas > 1 else mesh["shard"])
        self.sampler = evenstep.BalancedBatchSampler(DATA, GLOBAL_BATCH, seed=SEED)
        self.loader = DataLoader(DATA, batch_sampler=self.sampler, num_workers=1)
        self.model = evenstep.balance(model, self.sampler)
        self.optimizer = optimizer(self.model)

    def epoch(self, number: int, witness: Witness, most: int = STEPS, done: int = 0) -> None:
        assert isinstance(self.model, FSDPModule)
        self.sampler.set_epoch(number)
        for index, (x, y) in enumerate(self.loader, done + 1):
            witness.saw(len(x))
            last = index % self.window == 0 or index == STEPS
            self.model.set_requires_gradient_sync(last)
            (nn.functional.cross_entropy(self.model(x), y) / self.window).backward()
            if last:
                self.optimizer.step()
                self.optimizer.zero_grad()
                witness.stepped(self.model)
            if index == most:
                return

    def save(self, folder: Path) -> None:
        model, optimizer = get_state_dict(self.model, self.optimizer)
        dcp.save({"model": model, "optimizer": optimizer, "sampler": self.sampler}, checkpoint_id=folder)

    def load(self, folder: Path) -> None:
        model, optimizer = get_state_dict(self.model, self.optimizer)
        dcp.load({"model": model, "optimizer": optimizer, "sampler": self.sampler}, checkpoint_id=folder)
        set_state_dict(self.model, self.optimizer, model_state_dict=model, optim_state_dict=optimizer)


def first(folder: Path, name: str, window: int, replicas: int = 1) -> None:
    training, witness = Training(window, replicas), Witness(alone(window=window))
    training.epoch(0, witness)
    training.epoch(1, witness, most=STOP * window)
    training.save(folder / name)
    witness.tell(f"first {name}")


def rest(folder: Path, name: str, window: int) -> None:
    training = Training(window)
    training.load(folder / name)
    updates = -(-STEPS // window)
    witness = Witness(alone(window=window, epochs=3), done=updates + STOP)
    training.epoch(training.sampler.epoch, witness, done=STOP * window)
    training.epoch(2, witness)
    witness.tell(f"rest {name}")


def main() -> None:
    folder, part = Path(sys.argv[1]), sys.argv[2]
    dist.init_process_group("gloo")
    if part == "four":
        first(folder, "hybrid, window 2", window=2, replicas=2)
    else:
        for window in (1, 2):
            (first if part == "first" else rest)(folder, f"window {window}", window)
        if part == "rest":
            rest(folder, "hybrid, window 2", window=2)
    dist.destroy_process_group()


main()
