"""Each sample exactly once an epoch, whatever happens: random sequences of allocations, worlds, loaders and restarts.

Ranks are samplers in one process. They learn of allocations by exchanges that all of them see alike, as in a training.
"""

import itertools
import json
import random
from collections import Counter
from typing import Any

import pytest
from torch.utils.data import DataLoader

from evenstep.torch import BalancedBatchSampler
from evenstep.torch.schedule import Learned


class World:
    """The ranks of one launch, and what their loaders hand out."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, chance: random.Random, size: int, settings: dict[str, Any]):
        self.chance, self.size = chance, size
        self.samplers, self.loaders = [], []
        monkeypatch.setenv("WORLD_SIZE", str(size))
        for rank in range(size):
            monkeypatch.setenv("RANK", str(rank))
            sampler = BalancedBatchSampler(range(settings["samples"]), **settings["sampler"])
            sampler.balanced = True
            _ = sampler.schedule  # its rank is read now
            self.samplers.append(sampler)
            data: Any = range(settings["samples"])
            workers = chance.choice(settings["workers"])
            self.loaders.append(DataLoader(data, batch_sampler=sampler, num_workers=workers))

    def epoch(self, epoch: int, stop: int | None) -> list[list[int]]:
        """Train on an epoch, or up to `stop` steps; give the samples of each step, in rank order."""
        for sampler in self.samplers:
            sampler.set_epoch(epoch)
        steps = []
        for batches in itertools.islice(zip(*self.loaders, strict=True), stop):
            for sampler in self.samplers:
                assert sampler.take() is not None
            tickets = [sampler._tickets[0] for sampler in self.samplers]
            assert sum(ticket.weight for ticket in tickets) == tickets[0].total
            counted = zip(batches, tickets, strict=True)
            steps.append([sample for batch, ticket in counted for sample in batch.tolist()[: ticket.weight]])
            self._exchange()
            for sampler in self.samplers:
                sampler.finish()
        return steps

    def _exchange(self) -> None:
        depth = max(sampler.schedule.depth for sampler in self.samplers)
        learned = Learned(depth, self._allocation() if self.chance.random() < 0.5 else None)
        for sampler in self.samplers:
            sampler.schedule.issue(lambda _: lambda: learned)

    def _allocation(self) -> tuple[int, ...]:
        sampler = self.samplers[0]
        quantum = sampler.micro_batch_size
        spare = sampler.global_batch_size // quantum - self.size
        cuts = sorted(self.chance.randint(0, spare) for _ in range(self.size - 1))
        return tuple(quantum * (1 + high - low) for low, high in itertools.pairwise([0, *cuts, spare]))


def settings_of(chance: random.Random, workers: list[int]) -> dict[str, Any]:
    quantum, quanta = chance.choice([1, 1, 3]), chance.randint(4, 12)
    samples = chance.randint(quantum * quanta, 150)
    return {
        "samples": samples,
        "workers": workers,
        "sampler": {
            "global_batch_size": quantum * quanta,
            "micro_batch_size": quantum,
            "seed": chance.randint(0, 9),
            "shuffle": chance.random() < 0.8,
            "drop_last": chance.random() < 0.4,
        },
    }


def train_with_restarts(monkeypatch: pytest.MonkeyPatch, seed: int, workers: list[int], epochs: int) -> None:
    chance = random.Random(seed)
    settings = settings_of(chance, workers)
    whole = BalancedBatchSampler(range(settings["samples"]), **settings["sampler"])
    state = None
    for epoch in range(epochs):
        seen: list[list[int]] = []
        done = False
        while not done:
            world = World(monkeypatch, chance, chance.randint(1, 4), settings)
            if state is not None:
                for sampler in world.samplers:
                    sampler.load_state_dict(json.loads(json.dumps(state)))
            stop = None if chance.random() < 0.4 else chance.randint(1, len(whole))
            steps = world.epoch(epoch, stop)
            seen += steps
            states = [sampler.state_dict() for sampler in world.samplers]
            assert all(other == states[0] for other in states), "ranks disagree on the position"
            state = states[0]
            done = sum(map(len, seen)) >= len(whole) * settings["sampler"]["global_batch_size"] or (
                sum(map(len, seen)) == settings["samples"]
            )
            assert done or steps, f"nothing is left after {sum(map(len, seen))} samples"
        monkeypatch.setenv("RANK", "0")
        monkeypatch.setenv("WORLD_SIZE", "1")
        alone = BalancedBatchSampler(range(settings["samples"]), **settings["sampler"])
        alone.set_epoch(epoch)
        assert seen == list(alone), "other samples or another order than with one process"
        assert max(Counter(itertools.chain(*seen)).values()) == 1
        assert settings["sampler"]["drop_last"] or len(list(itertools.chain(*seen))) == settings["samples"]


@pytest.mark.parametrize("seed", range(150))
def test_each_sample_exactly_once(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    train_with_restarts(monkeypatch, seed, [0], epochs=3)


@pytest.mark.parametrize("seed", range(6))
def test_each_sample_exactly_once_with_loaders_that_prefetch(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    train_with_restarts(monkeypatch, seed, [0, 1, 2], epochs=1)
