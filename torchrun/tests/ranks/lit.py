"""Trains under Lightning's Trainer: lit.py FOLDER, which is for checkpoints."""

import copy
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from lightning.pytorch import Callback, LightningModule, Trainer, strategies
from lightning.pytorch.callbacks import ModelCheckpoint
from streams import Stream
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader

import evenstep.torch as evenstep
from framework_case import (
    DATA,
    EPOCHS,
    FEATURES,
    GLOBAL_BATCH,
    LABELS,
    SAMPLES,
    SEED,
    STEPS,
    Witness,
    alone,
    batches,
    net,
    optimizer,
)

DELAY = 0.1  # seconds
STOP = STEPS + 3  # optimizer steps after which a state is saved, in the middle of the second epoch


class Module(LightningModule):
    """What a user would write."""

    def __init__(self) -> None:
        super().__init__()
        self.net = net()

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = self.loss_of(batch)
        self.log("loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def loss_of(self, batch: Any) -> torch.Tensor:
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self) -> Any:
        sgd = optimizer(self.net)
        return {
            "optimizer": sgd,
            "lr_scheduler": {"scheduler": torch.optim.lr_scheduler.ConstantLR(sgd, 1.0), "interval": "step"},
        }


class ByHand(Module):
    """Optimizes manually, with two backwards a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> None:
        sgd = self.optimizers()
        sgd.zero_grad()
        loss = self.loss_of(batch) / 2
        self.manual_backward(loss, retain_graph=True)
        self.manual_backward(loss)
        sgd.step()
        self.log("loss", 2 * loss.detach(), on_step=False, on_epoch=True, sync_dist=True)


class Ignoring(Module):
    """Its loss averages over the rows of which the label is not 3."""

    def loss_of(self, batch: Any) -> torch.Tensor:
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1], ignore_index=3)


class Sharded(Module):
    """Is divided by fully_shard, among the ranks that share a batch."""

    def configure_model(self) -> None:
        mesh = self.device_mesh["data_parallel"]
        for layer in (self.net[0], self.net[2], self.net):  # type: ignore[index]
            fully_shard(layer, mesh=mesh)


class Eyes(Callback):
    """Compares the weights after each optimizer step."""

    def __init__(self, witness: Witness) -> None:
        self.witness = witness

    def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, batch_idx: int) -> None:
        self.witness.saw(len(batch[0]))

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_step > self.witness.steps:
            self.witness.stepped(module.net)


def trainer(*callbacks: Callback, **settings: Any) -> Trainer:
    settings = {"max_epochs": EPOCHS, "use_distributed_sampler": False, "strategy": "ddp", **settings}
    return Trainer(
        accelerator="cpu", devices=dist.get_world_size(), callbacks=[*callbacks], logger=False,
        enable_progress_bar=False, enable_model_summary=False,
        enable_checkpointing=any(isinstance(c, ModelCheckpoint) for c in callbacks), **settings,
    )  # fmt: skip


def train(
    witness: Witness,
    module: Module | None = None,
    workers: int = 0,
    fit: Any = None,
    callbacks: Any = (),
    count: Any = None,
    **settings: Any,
) -> tuple[Trainer, Module, evenstep.BalancedBatchSampler]:
    module = module or Module()
    sampler = evenstep.BalancedBatchSampler(DATA, GLOBAL_BATCH, seed=SEED)
    loader = DataLoader(DATA, batch_sampler=sampler, num_workers=workers)
    made = trainer(evenstep.lightning.Balance(sampler, count=count), Eyes(witness), *callbacks, **settings)
    made.fit(module, loader, **(fit or {}))
    return made, module, sampler


def whole(name: str, module: Module | None = None, window: int = 1, ignored: int = -100, **settings: Any) -> None:
    def loss_of(model: nn.Module, rows: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(model(FEATURES[rows]), LABELS[rows], ignore_index=ignored)

    witness = Witness(alone(loss_of=loss_of, window=window))
    made, module, sampler = train(witness, module, accumulate_grad_batches=window, **settings)
    assert sampler.state_dict()["position"] == SAMPLES
    turns = made.lr_scheduler_configs[0].scheduler.last_epoch
    counts = {"batches": made.num_training_batches, "global_step": made.global_step, "turns": turns}
    expected = None
    if window == 1 and ignored < 0:  # else the losses are of windows, or not means over rows
        steps = zip(witness.expected[-STEPS:], batches(EPOCHS - 1), strict=True)
        # Lightning divides by the mean number of rows of a rank, in whole rows, whether batches are equal or not.
        world = dist.get_world_size()
        expected = sum(step.loss * len(rows) for step, rows in steps) / (SAMPLES // world * world)
    witness.tell(name, logged=made.callback_metrics["loss"].item(), expected=expected, **counts)


def resumed(folder: Path, workers: int, epoch: int) -> None:
    """Write checkpoints in mid-epoch and at an epoch's end, and go on from each."""
    saves = [
        ModelCheckpoint(str(folder), filename="mid-{step}", every_n_train_steps=STOP, save_top_k=-1),
        ModelCheckpoint(
            str(folder), filename="end-{epoch}", every_n_epochs=1, save_top_k=-1, save_on_train_epoch_end=True
        ),
    ]
    expected = alone(epochs=4)
    train(Witness(expected), workers=workers, callbacks=saves)
    for file, done in ((f"mid-step={STOP}", STOP), (f"end-epoch={epoch}", (epoch + 1) * STEPS)):
        witness = Witness(expected, done=done)
        _, _, sampler = train(witness, workers=workers, fit={"ckpt_path": folder / f"{file}.ckpt"}, max_epochs=4)
        state = sampler.state_dict()
        assert (state["epoch"], state["position"]) == (3, SAMPLES), state
        witness.tell(f"{file}, {workers} workers")


def twice() -> None:
    """A callback and a module that were fitted before, and the optimizer begins anew."""
    module = Module()
    sampler = evenstep.BalancedBatchSampler(DATA, GLOBAL_BATCH, seed=SEED)
    callback = evenstep.lightning.Balance(sampler)
    loader = DataLoader(DATA, batch_sampler=sampler, num_workers=1)
    for _ in range(2):
        witness = Witness(alone(copy.deepcopy(module.net), epochs=1))
        trainer(callback, Eyes(witness), max_epochs=1).fit(module, loader)
    witness.tell("fitted twice")
    made = trainer(callback, max_epochs=1)
    for made.fit_loop.max_epochs in (1, 2):
        made.fit(module, loader)
    Witness([]).tell("one trainer that fits twice", global_step=made.global_step)


def streamed() -> None:
    """A rebatched stream as the loader; each rank notes its rows, and one process trains on those of all."""

    class Rows(Eyes):
        def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, batch_idx: int) -> None:
            self.witness.saw(len(batch["row"]))
            mine = [row for row in batch["row"].tolist() if row not in seen]
            seen.update(mine)
            everyone: list[Any] = [None] * dist.get_world_size()
            dist.all_gather_object(everyone, mine)
            whole.append(torch.tensor([row for one in everyone for row in one]))

        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            nn.functional.cross_entropy(reference(FEATURES[whole[-1]]), LABELS[whole[-1]]).backward()
            sgd.step()
            sgd.zero_grad()
            self.witness.differ(module.net, list(reference.parameters()))

        def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
            seen.clear()

    class OfRows(Module):
        def loss_of(self, batch: Any) -> torch.Tensor:
            return nn.functional.cross_entropy(self.net(batch["x"]), batch["y"])

    reference = net()
    sgd = optimizer(reference)
    seen: set[int] = set()
    whole: list[torch.Tensor] = []
    witness = Witness([])
    stream = DataLoader(Stream(dist.get_rank(), dist.get_world_size()), batch_size=8, num_workers=2)
    loader = evenstep.rebatch(stream, GLOBAL_BATCH)
    trainer(evenstep.lightning.Balance(loader), Rows(witness)).fit(OfRows(), loader)
    witness.tell("stream", rows=sorted(int(row) for rows in whole for row in rows))


def waiting() -> None:
    """Rank 0 sleeps in each step; rank 1 waits for it where Lightning asks before a batch, and where it logs."""

    class Sleeps(Module):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            time.sleep(DELAY if dist.get_rank() == 0 else 0)
            loss = self.loss_of(batch)
            self.log("loss", loss, on_step=True, sync_dist=True)
            return loss

    class Times(Eyes):
        def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, batch_idx: int) -> None:
            times.extend([sampler.measured] if sampler.measured else [])

        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            pass

    times: list[tuple[tuple[float, float], ...]] = []
    sampler = evenstep.BalancedBatchSampler(DATA, GLOBAL_BATCH, seed=SEED)
    callbacks = evenstep.lightning.Balance(sampler), Times(Witness([]))
    loader = DataLoader(DATA, batch_sampler=sampler)
    trainer(*callbacks, accumulate_grad_batches=2).fit(Sleeps(), loader)
    medians = [statistics.median(seconds for _, seconds in of_rank) for of_rank in zip(*times, strict=True)]
    Witness([]).tell("waiting", delay=DELAY, medians=medians)


def error_of(run: Callable[[], Any]) -> str:
    try:
        run()
    except (TypeError, ValueError) as error:
        return str(error)
    return ""


def other_loader() -> None:
    sampler = evenstep.BalancedBatchSampler(DATA, GLOBAL_BATCH, seed=SEED)
    trainer(evenstep.lightning.Balance(sampler)).fit(Module(), DataLoader(DATA, batch_size=8))


REFUSED: dict[str, Callable[[], Any]] = {
    "switch": lambda: train(Witness(alone()), use_distributed_sampler=True),
    "no sampler": lambda: evenstep.lightning.Balance(DataLoader(DATA)),
    "other loader": other_loader,
    "no function": lambda: evenstep.lightning.Balance(evenstep.BalancedBatchSampler(DATA, 8), count=3),
}


def main() -> None:
    warnings.simplefilter("ignore")
    folder = Path(sys.argv[1])
    dist.init_process_group("gloo")
    whole("automatic")
    whole("automatic, workers", workers=2)
    whole("window 2", window=2)
    whole("window 2, workers", window=2, workers=2)
    whole("by hand", ByHand())
    whole("count", Ignoring(), ignored=3, count=lambda batch: (batch[1] != 3).sum())
    if (sharding := getattr(strategies, "ModelParallelStrategy", None)) is not None:
        whole("sharded", Sharded(), strategy=sharding(data_parallel_size=2, tensor_parallel_size=1))
        whole("sharded, window 2", Sharded(), window=2, strategy=sharding(data_parallel_size=2, tensor_parallel_size=1))
        whole("two ranks to a batch", Sharded(), strategy=sharding(data_parallel_size=1, tensor_parallel_size=2))
    resumed(folder / "0", workers=0, epoch=0)
    resumed(folder / "2", workers=2, epoch=1)
    twice()
    streamed()
    waiting()
    witness = Witness([])
    witness.tell("refused", errors={name: error_of(case) for name, case in REFUSED.items()})
    dist.destroy_process_group()


main()
