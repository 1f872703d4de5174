"""Loops beyond plain DistributedDataParallel train as one process on the whole batch does, in float64."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from evenstep.torch import BalancedBatchSampler, balance, scale_loss, step
from evenstep.torch.compiles import Compiles
from launch import records, run
from scripted_core import ScriptedCore, random_sizes

BY_TWO = (
    "scaler_and_clipping",
    "clipping",
    "accumulation",
    "two_backwards",
    "skipped",
    "parts",
    "parts_synced_by_us",
    "parts_whole",
    "against_themselves",
    "rows",
    "group",
    "fsdp",
    "fsdp_clipping",
    "fsdp_accumulation",
)
BY_FOUR = ("tensor_parallel", "hybrid", "halves", "fsdp")
EQUAL_SIZES = {"by_hand": 2}


@pytest.fixture(scope="module")
def cases() -> dict[tuple[str, int], dict[str, Any]]:
    """Give the results by case and number of processes."""
    found = {}
    with ScriptedCore(random_sizes) as core:
        for workers, names in ((2, BY_TWO), (4, BY_FOUR)):
            out, _ = run("loops.py", *names, workers=workers, EVENSTEP_ADDR=core.address)
            found |= {(record["case"], workers): record for record in records(out)}
    out, _ = run("loops.py", "by_hand", EVENSTEP_BATCH_SIZES="23,9")
    (found["by_hand", 2],) = records(out)
    return found


@pytest.mark.parametrize(
    ("case", "workers"),
    [*((case, 2) for case in (*BY_TWO, *EQUAL_SIZES)), *((case, 4) for case in BY_FOUR)],
)
def test_equal_to_one_process(cases: dict[tuple[str, int], dict[str, Any]], case: str, workers: int) -> None:
    found = cases[case, workers]
    if case not in EQUAL_SIZES:
        assert found["sizes"] > 2, "the batch sizes did not change, so nothing was tested"
    assert found["difference"] < 1e-12
    if case.startswith("parts"):
        assert found["multiple"] % 4 == 0


def test_a_loader_that_changes_the_order_is_refused() -> None:
    sampler = BalancedBatchSampler(range(32), 4)
    loader = DataLoader(range(32), batch_sampler=sampler, num_workers=2, in_order=False)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^in_order: "):
        next(iter(loader))


def test_steps_by_hand_count_what_is_trained_on_not_what_is_drawn() -> None:
    sampler = BalancedBatchSampler(range(40), 4, shuffle=False)
    loader = DataLoader(range(40), batch_sampler=sampler, num_workers=2)  # type: ignore[arg-type]
    for done, batch in enumerate(loader, 1):
        assert scale_loss(batch.float().sum()) == batch.sum()
        step(sampler)
        assert sampler.state_dict()["position"] == 4 * done
    assert done == 10
    with pytest.raises(RuntimeError, match=r"^step: no batch"):
        step(sampler)
    with pytest.raises(RuntimeError, match=r"^scale_loss: no batch"):
        scale_loss(batch)


def weigh_by_hand(sampler: BalancedBatchSampler) -> Callable[[torch.Tensor], object]:
    return lambda x: scale_loss(x.float().mean(), sampler)


def balance_by_hand(sampler: BalancedBatchSampler) -> Callable[[torch.Tensor], object]:
    model = balance(torch.nn.Linear(1, 1), sampler, steps_by_hand=True)
    return lambda x: model(x.float().unsqueeze(1)).mean().backward()


@pytest.mark.parametrize("way", [weigh_by_hand, balance_by_hand])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_loop_that_never_says_step_is_refused(way: Any, num_workers: int) -> None:
    sampler = BalancedBatchSampler(range(100), 4)
    train = way(sampler)
    batches = iter(DataLoader(range(100), batch_sampler=sampler, num_workers=num_workers))  # type: ignore[arg-type]
    for _ in range(2):  # as where the next batch is fetched before a batch's second backward
        train(next(batches))
    with pytest.raises(RuntimeError, match=r"^step: a batch is not done, .* call evenstep.step\(sampler\)"):
        train(next(batches))


@pytest.mark.parametrize("way", [weigh_by_hand, balance_by_hand])
def test_a_loop_that_fetches_ahead_and_says_step_is_not(way: Any) -> None:
    sampler = BalancedBatchSampler(range(40), 4)
    train = way(sampler)
    batches = iter(DataLoader(range(40), batch_sampler=sampler))  # type: ignore[arg-type]
    batch = next(batches, None)
    while batch is not None:
        train(batch)
        after = next(batches, None)
        train(batch)
        step(sampler)
        batch = after
    assert sampler.state_dict()["position"] == 40


def test_a_count_and_micro_batches_exclude_each_other() -> None:
    sampler = BalancedBatchSampler(range(40), 4, micro_batch_size=2)
    with pytest.raises(ValueError, match=r"^count: it cannot be combined with micro_batch_size, .*; leave out one$"):
        balance(torch.nn.Linear(1, 1), sampler, count=len)


def test_a_loss_is_not_weighted_twice() -> None:
    sampler = BalancedBatchSampler(range(8), 4)
    sampler.balanced = True
    next(iter(sampler))
    with pytest.raises(ValueError, match=r"^sampler: it balances a model"):
        scale_loss(torch.ones(1), sampler)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_torchdatas_loader_resumes_behind_what_it_delivered(num_workers: int) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader")

    def loader() -> Any:
        sampler = BalancedBatchSampler(range(103), 8, seed=3)
        return stateful.StatefulDataLoader(range(103), batch_sampler=sampler, num_workers=num_workers)

    whole = [batch.tolist() for batch in loader()]
    assert sorted(sample for batch in whole for sample in batch) == list(range(103))
    for stop in (0, 1, 6, len(whole) - 1):
        first = loader()
        batches = iter(first)
        seen = [next(batches).tolist() for _ in range(stop)]
        state = json.loads(json.dumps(first.state_dict(), default=str))
        again = loader()
        again.load_state_dict(state)
        assert seen + [batch.tolist() for batch in again] == whole


def test_compilations_are_noticed_also_after_the_compiler_was_reset() -> None:
    compiles = Compiles()
    for _ in range(2):
        torch._dynamo.reset()
        model = torch.compile(torch.nn.Linear(2, 2), backend="eager")
        assert not compiles.any()
        model(torch.ones(3, 2))
        assert compiles.any()
        model(torch.ones(3, 2))
        assert not compiles.any()
