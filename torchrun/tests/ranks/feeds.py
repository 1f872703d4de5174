"""Trains as scripts with a get_batch do, half of each case in objects made anew from a checkpoint."""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import evenstep.torch as evenstep
from framework_case import GLOBAL_BATCH, SEED, Step, Witness, net, optimizer

STEPS, WIDTH = 20, 8
STREAM = torch.randn(5000, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def rows_at(offsets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.stack([STREAM[i : i + WIDTH] for i in offsets])
    return x, (x.sum(1) > 0).long() + 2 * (x[:, 0] > 0).long()


class Data:
    """Rows of a stream of numbers: at random offsets, or behind a position that moves on."""

    def __init__(self, feed: evenstep.Feed, by_position: bool) -> None:
        self.feed, self.by_position, self.position = feed, by_position, 0

    def get_batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.by_position:
            return rows_at(self.feed.randint(len(STREAM) - WIDTH))
        low, high = self.feed.span()
        first = self.position
        if torch.is_grad_enabled():
            self.position = (first + self.feed.global_batch_size) % (len(STREAM) - GLOBAL_BATCH - WIDTH)
        return rows_at(torch.arange(first + low, first + high))


class Training:
    """A model in the state that one before left behind, if any."""

    def __init__(self, feed: evenstep.Feed, by_position: bool, model: nn.Module, before: "Training | None") -> None:
        self.feed, self.inner = feed, model
        self.sgd = optimizer(model)
        self.data = Data(feed, by_position)
        if before is not None:
            model.load_state_dict(before.inner.state_dict())
            self.sgd.load_state_dict(before.sgd.state_dict())
            feed.load_state_dict(before.feed.state_dict())
            self.data.position = before.feed.state_dict()["batches"] * GLOBAL_BATCH
        self.model = evenstep.balance(DistributedDataParallel(model) if dist.is_initialized() else model, feed)

    def evaluate(self) -> None:
        """What one rank alone does now and then."""
        self.model.eval()
        with torch.no_grad():
            for _ in range(3):
                x, _ = self.data.get_batch()
                assert len(x) in (GLOBAL_BATCH, GLOBAL_BATCH // 2)
                self.inner(x)
        self.model.train()

    def steps(self, number: int, *, window: int, prefetch: bool, scaler: Any) -> Iterator[tuple[float, list[int]]]:
        """Train that many steps, and give of each the mean loss of its batches and their sizes here."""
        batch = self.data.get_batch() if prefetch else None
        for step in range(number):
            if step % 4 == 1 and (not dist.is_initialized() or dist.get_rank() == 0):
                self.evaluate()
            total, sizes = 0.0, []
            for micro in range(window):
                x, y = batch or self.data.get_batch()
                unsynced = micro + 1 < window and isinstance(self.model, DistributedDataParallel)
                with self.model.no_sync() if unsynced else contextlib.nullcontext():  # type: ignore[operator]
                    loss = nn.functional.cross_entropy(self.model(x), y) / window
                    batch = self.data.get_batch() if prefetch else None  # as nanoGPT does, before the backward
                    scaler.scale(loss).backward()
                total += loss.item() * len(x) / GLOBAL_BATCH
                sizes.append(len(x))
            scaler.unscale_(self.sgd)
            nn.utils.clip_grad_norm_(self.inner.parameters(), 0.5)
            scaler.step(self.sgd)
            scaler.update()
            self.sgd.zero_grad(set_to_none=True)
            yield total, sizes


def train(
    *, window: int = 1, prefetch: bool = False, by_position: bool = False, scaled: bool = False
) -> Iterator[tuple[nn.Module, float, list[int]]]:
    """Train, the second half in what a checkpoint of the first gives; of each step the model, its loss, its sizes."""
    before = None
    for half in range(2):
        scaler = torch.amp.GradScaler("cpu", enabled=scaled)
        before = Training(evenstep.Feed(GLOBAL_BATCH, SEED), by_position, net(), before)
        for loss, sizes in before.steps(STEPS // 2, window=window, prefetch=prefetch, scaler=scaler):
            yield before.inner, loss, sizes
        assert before.feed.state_dict()["batches"] == (half + 1) * (STEPS // 2) * window


CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "prefetched": {"prefetch": True},
    "window 2": {"window": 2},
    "window 2, prefetched": {"window": 2, "prefetch": True},
    "scaler": {"scaled": True},
    "positions": {"by_position": True},
    "positions, window 2": {"by_position": True, "window": 2},
}


def compare(case: str, expected: list[Step]) -> None:
    witness, off = Witness(expected), 0.0
    for model, loss, sizes in train(**CASES[case]):
        for size in sizes:
            witness.saw(size)
        total = torch.tensor(loss, dtype=torch.float64)
        dist.all_reduce(total)
        off = max(off, abs(total.item() - expected[witness.steps].loss))
        witness.stepped(model)
    witness.tell(case, losses_off=off)


def with_other_seeds() -> str:
    feed = evenstep.Feed(GLOBAL_BATCH, dist.get_rank())
    training = Training(feed, False, net(), None)
    try:
        list(training.steps(1, window=1, prefetch=False, scaler=torch.amp.GradScaler("cpu", enabled=False)))
    except ValueError as error:
        return str(error)
    return ""


def main() -> None:
    launched = {name: os.environ.pop(name) for name in ("RANK", "WORLD_SIZE")}
    expected = {
        case: [Step(loss, [p.detach().clone() for p in model.parameters()]) for model, loss, _ in train(**settings)]
        for case, settings in CASES.items()
    }
    os.environ.update(launched)
    dist.init_process_group("gloo")
    for case in CASES:
        compare(case, expected[case])
    Witness([]).tell("other seeds", error=with_other_seeds())
    dist.destroy_process_group()


main()
