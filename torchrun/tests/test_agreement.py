"""All ranks use the same allocation at the same step, and every sample comes exactly once an epoch."""

from collections import defaultdict
from typing import Any

import pytest
import torch

from evenstep.torch import BalancedBatchSampler
from launch import records, run
from scripted_core import ScriptedCore, random_sizes

SAMPLES, GLOBAL_BATCH, SAVE = 500, 24, 7  # as in ranks/agreement.py
STEPS = -(-SAMPLES // GLOBAL_BATCH)
Steps = dict[tuple[int, int], dict[int, Any]]


@pytest.fixture(scope="module", params=[(2, 0), (2, 4), (3, 1)], ids=lambda p: f"{p[0]}-ranks-{p[1]}-loader-workers")
def steps(request: pytest.FixtureRequest) -> Steps:
    """By (epoch, step): by rank, the record."""
    ranks, loader_workers = request.param
    with ScriptedCore(random_sizes) as core:
        out, _ = run("agreement.py", str(loader_workers), str(SAVE), workers=ranks, EVENSTEP_ADDR=core.address)
    by_step: Steps = defaultdict(dict)
    for record in records(out):
        by_step[record["epoch"], record["step"]][record["rank"]] = record
    return by_step


def joined(by_rank: dict[int, Any]) -> list[int]:
    return [sample for rank in sorted(by_rank) for sample in by_rank[rank]["samples"]]


def order(epoch: int) -> list[int]:
    order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(3 + epoch))
    return [int(sample) for sample in order]


def test_sizes_change_often_and_each_step_is_one_slice_of_the_permutation(steps: Steps) -> None:
    assert len({tuple(len(r["samples"]) for r in by_rank.values()) for by_rank in steps.values()}) > 5
    for (epoch, step), by_rank in steps.items():
        assert joined(by_rank) == order(epoch)[step * GLOBAL_BATCH : (step + 1) * GLOBAL_BATCH]


def test_every_sample_once_an_epoch_also_after_a_break(steps: Steps) -> None:
    for epoch in (0, 2):
        samples = [sample for step in range(STEPS) for sample in joined(steps[epoch, step])]
        assert sorted(samples) == list(range(SAMPLES))
    assert {step for epoch, step in steps if epoch == 1} == {0, 1, 2}


def test_state_is_what_was_trained_on_and_resumes_on_another_world_size(steps: Steps) -> None:
    states = [by_rank["state"] for by_rank in steps[2, SAVE].values()]
    assert all(state == states[0] for state in states)
    sampler = BalancedBatchSampler(range(SAMPLES), GLOBAL_BATCH, seed=3)
    sampler.load_state_dict(states[0])
    sampler.set_epoch(2)
    rest = [sample for batch in sampler for sample in batch]
    assert rest == order(2)[(SAVE + 1) * GLOBAL_BATCH :]
