"""What the tests of all frameworks share: a small problem, how one process alone trains on it, and how ranks compare.

A script of tests/ranks trains under its framework and tells each optimizer step to a Witness, which compares the
weights with those that `alone` gave; `ranks` runs the script in real processes while batch sizes change at every step.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import TensorDataset

from launch import records, run
from scripted_core import ScriptedCore, random_sizes

SAMPLES, GLOBAL_BATCH, EPOCHS, SEED = 203, 32, 2, 7
STEPS = -(-SAMPLES // GLOBAL_BATCH)  # of an epoch; the last one has 11 samples
FEATURES = torch.randn(SAMPLES, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
LABELS = torch.arange(SAMPLES) % 5
DATA = TensorDataset(FEATURES, LABELS)


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 5)).double()


def optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def batches(epoch: int, samples: int = SAMPLES) -> Iterator[torch.Tensor]:
    """Give the samples of each step, as one process takes them."""
    order = torch.randperm(samples, generator=torch.Generator().manual_seed(SEED + epoch))
    yield from order.split(GLOBAL_BATCH)


@dataclass
class Step:
    """An optimizer step of one process: its loss, and the weights after it."""

    loss: float
    weights: list[torch.Tensor]


def alone(
    model: nn.Module | None = None,
    loss_of: Callable[[nn.Module, torch.Tensor], torch.Tensor] | None = None,
    *,
    window: int = 1,
    epochs: int = EPOCHS,
    terms_of: Callable[[torch.Tensor], int] | None = None,
    short: int | None = None,
    scale: float = 1.0,
    samples: int = SAMPLES,
) -> list[Step]:
    """Train in one process on whole batches, `window` of them a step and fewer at the end of an epoch.

    `loss_of` gets the model and the indices of a batch, and gives a mean, divided by `window` here, or by `short` where
    a window has fewer batches. With `terms_of` it gives a sum, divided by the terms of the window instead. All is
    multiplied by `scale`.
    """
    model = net() if model is None else model
    loss_of = loss_of or (lambda m, rows: nn.functional.cross_entropy(m(FEATURES[rows]), LABELS[rows]))
    sgd = optimizer(model)
    steps = []
    for epoch in range(epochs):
        todo = list(batches(epoch, samples))
        for low in range(0, len(todo), window):
            part = todo[low : low + window]
            divisor = window if len(part) == window else short or window
            if terms_of is not None:
                divisor = sum(terms_of(rows) for rows in part)
            losses = [scale * loss_of(model, rows) / divisor for rows in part]
            sum(losses).backward()  # type: ignore[union-attr]
            sgd.step()
            sgd.zero_grad()
            weights = [parameter.detach().clone() for parameter in model.parameters()]
            steps.append(Step(sum(loss.item() for loss in losses), weights))
    return steps


class Witness:
    """Sees what a rank trains on, and compares its weights after each optimizer step."""

    def __init__(self, expected: list[Step], done: int = 0) -> None:
        """Expect the steps behind the first `done` ones."""
        self.expected = expected
        self.steps = done
        self.worst = 0.0
        self.sizes: list[int] = []

    def saw(self, rows: int) -> None:
        """Note the size of a batch, and leave the core time to answer."""
        self.sizes.append(rows)
        time.sleep(0.003)

    def stepped(self, model: nn.Module) -> None:
        """Compare the weights with those of the next step."""
        self.differ(model, self.expected[self.steps].weights)

    def differ(self, model: nn.Module, weights: Sequence[torch.Tensor]) -> None:
        """Compare the weights with those given."""
        for mine, other in zip(model.parameters(), weights, strict=True):
            whole = mine.full_tensor() if hasattr(mine, "full_tensor") else mine  # type: ignore[operator]
            # Some weights stay what they are but for rounding, as do an attention's key biases, which begin with 0.
            self.worst = max(self.worst, ((whole - other).abs().max() / other.abs().max().clamp(min=1e-3)).item())
        self.steps += 1

    def tell(self, case: str, **more: Any) -> None:
        """Print what all ranks saw, as one JSON line of rank 0."""
        mine = {"difference": self.worst, "steps": self.steps, "sizes": self.sizes}
        everyone: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, mine)
        if dist.get_rank() == 0:
            line = {
                "case": case,
                "difference": max(one["difference"] for one in everyone),
                "steps": min(one["steps"] for one in everyone),
                "sizes": [one["sizes"] for one in everyone],
                **more,
            }
            print(json.dumps(line), flush=True)


def ranks(script: str, *words: str, workers: int = 2, **env: str) -> dict[str, dict[str, Any]]:
    """Run a script of tests/ranks under sizes that change at each step, and give its records by case."""
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    with ScriptedCore(random_sizes) as core:
        out, _ = run(script, *words, workers=workers, EVENSTEP_ADDR=core.address, PYTHONPATH=path, **env)
    return {record["case"]: record for record in records(out)}


def check(found: dict[str, Any], *, steps: int, batches: int | None = None, all_rows: bool = True) -> None:
    """Check that the weights are those of one process, over so many steps, with sizes that changed."""
    assert found["difference"] < 1e-12
    assert found["steps"] == steps
    for sizes in found["sizes"]:
        assert batches in (None, len(sizes))
        assert len(set(sizes)) > 2, "the batch sizes did not change, so nothing was tested"
    for step in zip(*found["sizes"], strict=True) if all_rows else ():
        assert sum(step) in (GLOBAL_BATCH, SAMPLES % GLOBAL_BATCH)
