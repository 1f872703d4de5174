"""Who gets which samples, in one process."""

import itertools
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from evenstep.torch import BalancedBatchSampler
from evenstep.torch.shares import split


def of_rank(monkeypatch: pytest.MonkeyPatch, rank: int, world: int, *args: Any, **kwargs: Any) -> BalancedBatchSampler:
    """Give the sampler of one rank; its rank and world come from the environment at the first draw."""
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("WORLD_SIZE", str(world))
    return BalancedBatchSampler(*args, **kwargs)


def test_one_process_takes_the_whole_batch() -> None:
    sampler = BalancedBatchSampler(range(10), 4, shuffle=False)
    assert list(sampler) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert len(sampler) == 3
    assert list(BalancedBatchSampler(range(10), 4, shuffle=False, drop_last=True)) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_the_order_depends_on_seed_and_epoch_alone() -> None:
    sampler = BalancedBatchSampler(range(100), 7, seed=1)
    first = list(sampler)
    assert list(sampler) == first
    sampler.set_epoch(1)
    assert list(sampler) != first
    sampler.set_epoch(0)
    assert list(sampler) == first
    assert list(BalancedBatchSampler(range(100), 7, seed=2)) != first


def test_sizes_of_the_environment(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("EVENSTEP_BATCH_SIZES", "3,1")
    assert next(iter(of_rank(monkeypatch, 1, 2, range(8), 4, shuffle=False))) == [3]
    assert not caplog.messages
    for wrong in ("3,2", "4,0", "4", "3,x", "²,2", "-1,5", "", "3," + "1" * 5000):
        monkeypatch.setenv("EVENSTEP_BATCH_SIZES", wrong)
        assert next(iter(of_rank(monkeypatch, 1, 2, range(8), 4, shuffle=False))) == [2, 3]
        assert "EVENSTEP_BATCH_SIZES" in caplog.messages[-1]


def test_fewer_samples_than_ranks_repeat_one_row_that_counts_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    samplers = [of_rank(monkeypatch, rank, 3, range(10), 4, shuffle=False) for rank in range(3)]
    lasts, weights = [], []
    for rank, sampler in enumerate(samplers):
        monkeypatch.setenv("RANK", str(rank))
        sampler.balanced = True
        lasts.append(list(sampler)[-1])
        weights.append(sampler._tickets[-1].weight)
    assert lasts == [[8], [9], [8]]
    assert weights == [1, 1, 0]


@pytest.mark.parametrize("sizes", [(5, 3), (1, 1, 6), (1,) * 8, (100, 1, 27)])
def test_split(sizes: tuple[int, ...]) -> None:
    for samples in range(1, sum(sizes) + 1):
        shares = split(samples, sizes)
        assert sum(shares) == samples
        assert min(shares) >= min(2, samples // len(sizes), min(sizes) if samples == sum(sizes) else 2)
        assert all(share <= size + 2 for share, size in zip(shares, sizes, strict=True))
    assert split(sum(sizes), sizes) == list(sizes)


@pytest.mark.parametrize(("done", "other_batch"), [(0, 8), (1, 8), (3, 5), (12, 8), (13, 8)])
def test_a_restart_repeats_and_skips_nothing(done: int, other_batch: int) -> None:
    sampler = BalancedBatchSampler(range(100), 8, seed=5)
    sampler.set_epoch(3)
    seen = list(itertools.islice(sampler, done))
    again = BalancedBatchSampler(range(100), other_batch, seed=5)
    again.load_state_dict(sampler.state_dict())
    again.set_epoch(3)
    samples = [sample for batch in (*seen, *again) for sample in batch]
    if done == 0:  # the state of a sampler that was not iterated yet
        assert len(samples) == 100
    assert sorted(samples) == list(range(100))
    again.set_epoch(4)
    assert sum(len(batch) for batch in again) == 100


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_epoch_that_is_set_inside_an_iteration_is_that_of_the_next(num_workers: int) -> None:
    def train(sampler: BalancedBatchSampler, stop: int | None = None, chosen: int | None = None) -> list[int]:
        loader = DataLoader(range(40), batch_sampler=sampler, num_workers=num_workers)  # type: ignore[arg-type]
        seen = []
        for batch in itertools.islice(loader, stop):
            seen.extend(batch.tolist())
            assert sampler.take() is not None
            if chosen is not None:
                sampler.set_epoch(chosen)
            sampler.finish()
        return seen

    sampler = BalancedBatchSampler(range(40), 8)
    seen = train(sampler, 2, chosen=1)
    assert sampler.state_dict()["epoch"] == 0
    again = BalancedBatchSampler(range(40), 8)
    again.load_state_dict(sampler.state_dict())
    again.set_epoch(0)
    seen += train(again, chosen=1)
    assert sorted(seen) == list(range(40))
    assert again.state_dict() == {**sampler.state_dict(), "epoch": 1, "position": 0}
    assert train(again) == [sample for batch in of_epoch(1) for sample in batch]


def test_an_epoch_that_is_set_behind_a_finished_one_is_whole_however_often_it_is_set() -> None:
    sampler = of_epoch(0)
    list(sampler)
    again = of_epoch(0)
    again.load_state_dict(sampler.state_dict())
    for _ in range(2):
        again.set_epoch(1)
    again.count_epoch(1)  # as frameworks do
    assert again.epoch == 1
    assert list(again) == list(of_epoch(1))


def of_epoch(epoch: int) -> BalancedBatchSampler:
    sampler = BalancedBatchSampler(range(40), 8)
    sampler.set_epoch(epoch)
    return sampler


def test_batches_that_the_next_epoch_overtakes_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    sampler = BalancedBatchSampler(range(12), 4, shuffle=False)
    batch = next(first := iter(sampler))
    while batch is not None:  # a prefetcher that is one batch ahead
        after = next(first, None)
        if after is None:
            second = iter(sampler)
            next(second)
        assert sampler.take() is not None
        sampler.finish()
        batch = after
    assert len(caplog.messages) == 1
    assert "the last batches of an epoch had no forward when the next iteration began" in caplog.messages[0]


@pytest.mark.parametrize("stop", [1, 3, None])
def test_an_iteration_that_is_left_and_one_that_is_not_are_not(
    stop: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    sampler = BalancedBatchSampler(range(40), 4)
    for _ in range(2):
        for _ in itertools.islice(DataLoader(range(40), batch_sampler=sampler, num_workers=1), stop):  # type: ignore[arg-type]
            assert sampler.take() is not None
            sampler.finish()
    assert caplog.messages == []


def test_a_finished_epoch_starts_afresh_where_the_loop_sets_none() -> None:
    sampler = BalancedBatchSampler(range(10), 4)
    first = list(sampler)
    again = BalancedBatchSampler(range(10), 4)
    again.load_state_dict(sampler.state_dict())
    assert list(again) == first


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_look_after_a_resume_repeats_nothing(num_workers: int) -> None:
    sampler = BalancedBatchSampler(range(12), 4, shuffle=False)
    sampler.balanced = True
    sampler.load_state_dict({**sampler.state_dict(), "position": 4})
    loader = DataLoader(range(12), batch_sampler=sampler, num_workers=num_workers)  # type: ignore[arg-type]
    assert next(iter(loader)).tolist() == [4, 5, 6, 7]
    assert [batch.tolist() for batch in loader] == [[4, 5, 6, 7], [8, 9, 10, 11]]


def test_an_iteration_that_another_one_ended_says_so() -> None:
    sampler = BalancedBatchSampler(range(12), 4)
    first = iter(sampler)
    next(first)
    next(iter(sampler))
    with pytest.raises(RuntimeError, match="ended by a newer one"):
        next(first)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_iterating_twice_after_a_resume_starts_at_the_same_place(num_workers: int) -> None:
    sampler = BalancedBatchSampler(range(12), 4, shuffle=False)
    sampler.load_state_dict({**sampler.state_dict(), "position": 4})
    batches = [batch.tolist() for batch in DataLoader(range(12), batch_sampler=sampler, num_workers=num_workers)]  # type: ignore[arg-type]
    assert batches == [[4, 5, 6, 7], [8, 9, 10, 11]]


def test_a_state_of_another_order_is_refused() -> None:
    sampler = BalancedBatchSampler(range(10), 4)
    good = sampler.state_dict()
    for field, value in [
        ("version", 2),
        ("seed", 1),
        ("shuffle", False),
        ("dataset_size", 11),
        ("epoch", -1),
        ("epoch", "0"),
        ("epoch", 2**63),
        ("position", 11),
        ("position", None),
    ]:
        with pytest.raises(ValueError, match=rf"^state\.{field}: "):
            sampler.load_state_dict({**good, field: value})
    with pytest.raises(ValueError, match=r"^state\.version: "):
        sampler.load_state_dict({})


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"global_batch_size": 0}, "global_batch_size: 0 is not"),
        ({"global_batch_size": 2.5}, "global_batch_size: 2.5 is not"),
        ({"global_batch_size": True}, "global_batch_size: True is not"),
        ({"dataset": []}, "dataset: it is empty"),
        ({"dataset": iter([1])}, "dataset: list_iterator has no length"),
        ({"seed": -1}, "seed: -1 is not"),
        ({"seed": "1"}, "seed: '1' is not"),
        ({"drop_last": True, "global_batch_size": 11}, "drop_last: the 10 samples"),
    ],
)
def test_bad_arguments_are_named(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{message}"):
        BalancedBatchSampler(**{"dataset": range(10), "global_batch_size": 4, **kwargs})


def test_bad_epoch_and_too_many_workers_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"^epoch: -1 is not"):
        BalancedBatchSampler(range(10), 4).set_epoch(-1)
    with pytest.raises(ValueError, match=r"^global_batch_size: 4 is below the 5 workers"):
        next(iter(of_rank(monkeypatch, 0, 5, range(10), 4)))


def test_the_sampler_is_no_attribute_trap_for_frameworks() -> None:
    # accelerate reads `batch_size` and re-seeds `generator` where a batch sampler has them.
    sampler = BalancedBatchSampler(range(10), 4)
    assert not hasattr(sampler, "batch_size")
    assert not hasattr(sampler, "generator")
    assert isinstance(sampler, torch.utils.data.Sampler)
