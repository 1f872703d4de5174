"""Trains under Fabric: fabric.py FOLDER, which is for checkpoints."""

import sys
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from lightning.fabric import Fabric
from torch import nn
from torch.utils.data import DataLoader

import evenstep.torch as evenstep
from framework_case import DATA, EPOCHS, GLOBAL_BATCH, SAMPLES, SEED, STEPS, Witness, alone, net, optimizer


class Net(nn.Module):
    """Has a method that Fabric sends through its wrapper."""

    def __init__(self) -> None:
        super().__init__()
        self.net = net()

    def forward(self, x: torch.Tensor) -> Any:
        return self.net(x)

    def training_step(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(self(x), y)


class Training:
    """What a case trains with."""

    def __init__(self, workers: int = 0, method: bool = False, anew: bool = False) -> None:
        self.fabric = Fabric(accelerator="cpu", devices=dist.get_world_size(), strategy="ddp")
        self.fabric.launch()
        self.method = method
        self.anew = anew
        self.sampler = evenstep.BalancedBatchSampler(DATA, GLOBAL_BATCH, seed=SEED)
        self.workers = workers
        module = Net()
        self.model, self.optimizer = self.fabric.setup(module, optimizer(module))
        self.loader = self.new_loader()
        evenstep.balance(self.model, self.sampler)

    def new_loader(self) -> Any:
        loader = DataLoader(DATA, batch_sampler=self.sampler, num_workers=self.workers)
        return self.fabric.setup_dataloaders(loader, use_distributed_sampler=False)

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if self.method:
            return self.model.training_step(x, y)  # type: ignore[no-any-return]
        return nn.functional.cross_entropy(self.model(x), y)

    def epoch(self, witness: Witness, window: int = 1, first: int = 0, save: Path | None = None) -> None:
        """Train what is left of an epoch behind its `first` batches, saving in the middle and at the end."""
        for index, (x, y) in enumerate(self.loader, first + 1):
            witness.saw(len(x))
            last = index % window == 0 or index == STEPS
            with self.fabric.no_backward_sync(self.model, enabled=not last):
                self.fabric.backward(self.loss(x, y) / window)
            if last:
                self.optimizer.step()
                self.optimizer.zero_grad()
                witness.stepped(self.model.module)
            if save is not None and index in (3, STEPS):
                self.fabric.save(save / f"{self.sampler.epoch}-{index}", self.state())

    def state(self) -> dict[str, Any]:
        return {"model": self.model, "optimizer": self.optimizer, "sampler": self.sampler}


def whole(name: str, window: int = 1, **settings: Any) -> None:
    witness, training = Witness(alone(window=window)), Training(**settings)
    assert len(training.loader) == STEPS
    for _ in range(EPOCHS):
        training.epoch(witness, window)
        if training.anew:
            training.loader = training.new_loader()
    assert training.sampler.state_dict()["position"] == SAMPLES
    witness.tell(name)


def resumed(folder: Path, workers: int, saved: int) -> None:
    """Go on from what was saved in the middle of an epoch and at its end."""
    expected = alone(epochs=3)
    saving = Training(workers)
    for epoch in range(saved + 1):
        saving.epoch(Witness(expected, done=STEPS * epoch), save=folder)
    for batch in (3, STEPS):
        witness, training = Witness(expected, done=saved * STEPS + batch), Training(workers)
        training.fabric.load(folder / f"{saved}-{batch}", training.state())
        if batch < STEPS:
            training.epoch(witness, first=batch)
        for _ in range(saved + 1, 3):
            training.epoch(witness)
        witness.tell(f"{saved}-{batch}, {workers} workers")


def main() -> None:
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo")
    whole("plain")
    whole("workers", workers=2)
    whole("window 2", window=2)
    whole("method", method=True)
    whole("a loader made anew for each epoch", anew=True)
    folder = Path(sys.argv[1])
    resumed(folder / "0", workers=0, saved=0)
    resumed(folder / "2", workers=2, saved=1)
    dist.destroy_process_group()


main()
