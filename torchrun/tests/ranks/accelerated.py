"""Trains under accelerate: accelerated.py FOLDER first|rest|one.

The rest continues, in new processes, what first saved; so does one, by itself.
"""

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import accelerate
import torch
import torch.distributed as dist
from accelerate import Accelerator, DataLoaderConfiguration
from accelerate.state import AcceleratorState, GradientState
from packaging import version
from torch import nn
from torch.utils.data import DataLoader

import evenstep.torch as evenstep
from framework_case import DATA, EPOCHS, GLOBAL_BATCH, SAMPLES, SEED, STEPS, Witness, alone, net, optimizer

# What releases before 1.14 want, and say so.
OLD: dict[str, Any] = {} if version.parse(accelerate.__version__) >= version.parse("1.14") else {"even_batches": False}
STOP = STEPS + 3  # batches after which the state is saved, in the middle of the second epoch


class Training:
    """What a case trains with."""

    def __init__(self, workers: int = 0, window: int = 1, stateful: bool = False) -> None:
        AcceleratorState._reset_state(reset_partial_state=True)
        GradientState._reset_state()
        config = DataLoaderConfiguration(use_stateful_dataloader=stateful, **OLD)
        self.accelerator = Accelerator(gradient_accumulation_steps=window, dataloader_config=config)
        self.sampler = evenstep.BalancedBatchSampler(DATA, GLOBAL_BATCH, seed=SEED, view="global")
        loader = DataLoader(DATA, batch_sampler=self.sampler, num_workers=workers)
        model = net()
        sgd = optimizer(model)
        scheduler = torch.optim.lr_scheduler.ConstantLR(sgd, factor=1.0, total_iters=len(loader) * EPOCHS)
        self.lists = len(loader)
        self.model, self.optimizer, self.loader, self.scheduler = self.accelerator.prepare(
            model, sgd, loader, scheduler
        )
        evenstep.balance(self.model, self.sampler)

    def epoch(self, loader: Any, witness: Witness, losses: list[float], most: int | None = None) -> None:
        for index, (x, y) in enumerate(loader, 1):
            witness.saw(len(x))
            with self.accelerator.accumulate(self.model):
                loss = nn.functional.cross_entropy(self.model(x), y)
                self.accelerator.backward(loss)
                self.optimizer.step()
                self.scheduler.step()
                self.optimizer.zero_grad()
            weighed = torch.stack([loss.detach() * len(x), torch.tensor(len(x), dtype=loss.dtype)])
            total = self.accelerator.reduce(weighed)
            losses.append((total[0] / total[1]).item())
            if self.accelerator.sync_gradients:
                witness.stepped(self.accelerator.unwrap_model(self.model))
            if index == most:
                return


def whole(window: int = 1, **settings: Any) -> None:
    expected = alone(window=window)
    witness, losses = Witness(expected), []
    training = Training(window=window, **settings)
    for _ in range(EPOCHS):
        training.epoch(training.loader, witness, losses)
    assert training.sampler.state_dict()["position"] == SAMPLES
    told = torch.tensor(losses).reshape(EPOCHS, STEPS)
    mine = [one.sum().item() / window for row in told for one in row.split(window)]
    off = max(abs(a - b.loss) for a, b in zip(mine, expected, strict=True))
    turns = training.scheduler.scheduler.last_epoch
    name = f"window {window}, {settings}"
    witness.tell(name, losses_off=off, length=len(training.loader), lists=training.lists, turns=turns)


def first(folder: Path, window: int, resume: str, **settings: Any) -> None:
    training = Training(window=window, **settings)
    witness = Witness(alone(window=window))
    if "registered" in resume:
        training.accelerator.register_for_checkpointing(training.sampler)
    training.epoch(training.loader, witness, [])
    training.epoch(training.loader, witness, [], most=STOP - STEPS)
    training.accelerator.save_state(str(folder / f"{resume}-{window}-{settings}"))
    witness.tell(f"first {resume}, window {window}, {settings}")


def rest(folder: Path, window: int, resume: str, **settings: Any) -> None:
    training = Training(window=window, **settings)
    registered = "registered" in resume
    if registered:
        training.accelerator.register_for_checkpointing(training.sampler)
    training.accelerator.load_state(str(folder / f"{resume}-{window}-{settings}"))
    loader = training.loader
    if not registered:
        loader.set_epoch(1)
    if "skipped" in resume:
        loader = training.accelerator.skip_first_batches(loader, STOP - STEPS)
    steps = -(-STEPS // window)
    witness = Witness(alone(window=window, epochs=3), done=steps + (STOP - STEPS) // window)
    training.epoch(loader, witness, [])
    assert training.sampler.state_dict() == {**training.sampler.state_dict(), "epoch": 1, "position": SAMPLES}
    if not registered:
        training.loader.set_epoch(2)
    training.epoch(training.loader, witness, [])
    assert training.sampler.epoch == 2
    witness.tell(f"rest {resume}, window {window}, {settings}")


def left_early() -> None:
    """accelerate does not count an epoch that is left early."""
    training = Training()
    epochs = []
    for last in (2, 2, STEPS, STEPS, 2):
        for index, (x, y) in enumerate(training.loader):
            training.accelerator.backward(nn.functional.cross_entropy(training.model(x), y))
            if index == last:
                break
        epochs.append(training.sampler.epoch)
    Witness([]).tell("left early", epochs=epochs)


RESUMED = (
    ("registered", {"window": 1}),
    ("registered", {"window": 1, "workers": 2}),
    ("registered", {"window": 3}),
    ("skipped", {"window": 1}),
    ("skipped", {"window": 1, "workers": 2}),
    ("registered and skipped", {"window": 1}),
    ("stateful", {"window": 1, "stateful": True}),
    ("stateful", {"window": 1, "stateful": True, "workers": 2}),
)


def refusals() -> None:
    def error(build: Callable[[Accelerator], Any]) -> str:
        AcceleratorState._reset_state(reset_partial_state=True)
        try:
            next(iter(build(Accelerator(dataloader_config=DataLoaderConfiguration(**OLD)))))
        except Exception as refused:
            return str(refused)
        return ""

    def sampler(**settings: Any) -> evenstep.BalancedBatchSampler:
        return evenstep.BalancedBatchSampler(DATA, GLOBAL_BATCH, **settings)

    def dispatching(accelerator: Accelerator) -> Any:
        accelerator.dataloader_config.dispatch_batches = True
        return accelerator.prepare(DataLoader(DATA, batch_sampler=sampler(view="global")))

    def loaded_and_skipped(accelerator: Accelerator) -> Any:
        ours = sampler(view="global")
        ours.load_state_dict({**ours.state_dict(), "position": GLOBAL_BATCH})
        return accelerator.skip_first_batches(accelerator.prepare(DataLoader(DATA, batch_sampler=ours)), 2)

    cases: dict[str, Callable[[Accelerator], Any]] = {
        "rank view": lambda a: a.prepare(DataLoader(DATA, batch_sampler=sampler())),
        "unprepared": lambda a: DataLoader(DATA, batch_sampler=sampler(view="global")),
        "dispatching": dispatching,  # refused where the main process draws; the others wait for it
        "as sampler": lambda a: DataLoader(DATA, sampler=sampler(), batch_size=2),
        "loaded and skipped": loaded_and_skipped,
    }
    mine = [name for name in cases if dist.get_rank() == 0 or name != "dispatching"]
    Witness([]).tell("refused", errors={name: error(cases[name]) for name in mine})


def inside_a_window() -> None:
    training, told = Training(window=2), logging.Handler()
    lines: list[str] = []
    told.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("evenstep").addHandler(told)
    training.epoch(training.loader, Witness([]), [], most=1)
    training.sampler.state_dict()
    logging.getLogger("evenstep").removeHandler(told)
    Witness([]).tell("inside a window", lines=lines)


def main() -> None:
    folder, part = Path(sys.argv[1]), sys.argv[2]
    dist.init_process_group("gloo")
    if part == "first":
        whole()
        whole(workers=2)
        whole(window=2)
        whole(window=2, workers=2)
        left_early()
        refusals()
        inside_a_window()
    for resume, settings in RESUMED:
        if resume == "stateful" and (OLD or part == "one"):  # counts wrong there, and refuses to
            continue
        (first if part == "first" else rest)(folder, resume=resume, **settings)
    dist.destroy_process_group()


main()
