"""Rows that a script fetches itself: which are whose, and that ranks train on them as one process does."""

from typing import Any

import pytest
import torch
from torch import nn

import evenstep.torch as evenstep
from framework_case import GLOBAL_BATCH, ranks

CASES = ("plain", "prefetched", "window 2", "window 2, prefetched", "scaler", "positions", "positions, window 2")


def of_rank(monkeypatch: pytest.MonkeyPatch, rank: int, sizes: str, total: int = 8, seed: int = 3) -> evenstep.Feed:
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("WORLD_SIZE", str(len(sizes.split(","))))
    monkeypatch.setenv("EVENSTEP_BATCH_SIZES", sizes)
    feed = evenstep.Feed(total, seed)
    _ = feed.schedule  # its rank is read now
    return feed


@pytest.mark.parametrize("sizes", ["8", "4,4", "7,1", "1,2,5"])
def test_all_ranks_together_draw_the_same_whatever_the_sizes(monkeypatch: pytest.MonkeyPatch, sizes: str) -> None:
    alone = of_rank(monkeypatch, 0, "8")
    feeds = [of_rank(monkeypatch, rank, sizes) for rank in range(len(sizes.split(",")))]
    drawn = []
    for _ in range(5):
        whole = alone.randint(1000)
        assert torch.cat([feed.randint(1000) for feed in feeds]).equal(whole)
        drawn += whole.tolist()
    assert len(set(drawn)) > 30
    assert min(drawn) >= 0
    assert max(drawn) < 1000
    spans = [feed.span() for feed in feeds]
    assert [high - low for low, high in spans] == [int(size) for size in sizes.split(",")]
    assert [low for low, _ in spans] == [0, *(high for _, high in spans[:-1])]


def test_neighbouring_seeds_share_no_batch() -> None:
    one, other = ({tuple(feed.randint(10**9).tolist()) for _ in range(100)} for feed in map(evenstep.Feed, (8, 8)))
    assert one == other
    drawn = [
        {tuple(feed.randint(10**9).tolist()) for _ in range(100)} for feed in (evenstep.Feed(8, s) for s in (1, 2))
    ]
    assert not drawn[0] & drawn[1]


def test_an_evaluation_begins_no_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EVENSTEP_BATCH_SIZES", raising=False)
    feed, same = of_rank(monkeypatch, 1, "7,1"), of_rank(monkeypatch, 1, "7,1")
    model = evenstep.balance(nn.Linear(1, 1), feed)
    expected = [same.randint(99).tolist() for _ in range(3)]
    assert feed.randint(99).tolist() == expected[0]
    with torch.no_grad():
        assert len(feed.randint(99)) == 4
        assert feed.span() == (4, 8)
    model.eval()
    assert len(feed.randint(99)) == 4
    assert not feed.randint(10**9).equal(feed.randint(10**9))
    model.train()
    assert feed.randint(99).tolist() == expected[1]
    assert feed.span() == (7, 8)


def test_the_state_is_what_was_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = evenstep.Feed(4, seed=1)
    for _ in range(5):
        feed.randint(99)
    assert feed.state_dict()["batches"] == 5
    evenstep.step(feed)
    assert feed.state_dict()["batches"] == 1
    expected = evenstep.Feed(4, seed=1)
    second = [expected.randint(99).tolist() for _ in range(2)][1]
    again = evenstep.Feed(4, seed=1)
    again.load_state_dict(feed.state_dict())
    assert again.randint(99).tolist() == second
    assert again.state_dict()["batches"] == 2


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"version": 2}, "state.version: 2 is unknown"),
        ({"seed": 2}, "state.seed: 2 is not the feed's 1; give the same"),
        ({"global_batch_size": 8}, "state.global_batch_size: 8 is not the feed's 4"),
        ({"batches": -1}, "state.batches: -1 is not a whole number >= 0"),
    ],
)
def test_a_state_of_another_feed_is_refused(state: dict[str, Any], message: str) -> None:
    feed = evenstep.Feed(4, seed=1)
    with pytest.raises(ValueError, match=f"^{message}"):
        feed.load_state_dict({**feed.state_dict(), **state})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((0,), "global_batch_size: 0 is not"), ((4, -1), "seed: -1 is not"), ((4, 2**63), "seed: 9223372036854775808 is")],
)
def test_what_is_out_of_range_is_refused(arguments: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        evenstep.Feed(*arguments)


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, Any]]:
    return ranks("feeds.py")


@pytest.mark.parametrize("case", CASES)
def test_equal_to_one_process(found: dict[str, dict[str, Any]], case: str) -> None:
    record = found[case]
    assert record["difference"] < 1e-12
    assert record["steps"] == 20
    for step in zip(*record["sizes"], strict=True):
        assert sum(step) == GLOBAL_BATCH
    assert len(set(record["sizes"][0])) > 2, "the batch sizes did not change, so nothing was tested"
    assert record["losses_off"] < 1e-12


def test_ranks_with_another_seed_are_refused(found: dict[str, dict[str, Any]]) -> None:
    assert found["other seeds"]["error"].startswith("seed: rank 1 has 1, rank 0 has 0")
