"""Batches cut from streams: what they are made of, and that ranks train on them as one process does."""

from collections import UserDict, namedtuple
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

import evenstep.torch as evenstep
from evenstep.torch.chunks import Samples, count, cut, join
from framework_case import GLOBAL_BATCH, ranks

Pair = namedtuple("Pair", "x y")
CASES = ("plain", "workers", "window 2", "collated", "unbalanced streams", "webdataset", "datasets", "accelerate")


class Numbers(IterableDataset[int]):
    def __init__(self, number: int) -> None:
        self.number = number

    def __iter__(self) -> Iterator[int]:
        yield from range(self.number)


@pytest.mark.parametrize(
    ("chunk", "first"),
    [
        (torch.arange(6).view(3, 2), torch.tensor([[0, 1]])),
        ([torch.arange(3), torch.arange(3)], [torch.tensor([0]), torch.tensor([0])]),
        ((torch.arange(3), ("a", "b", "c")), (torch.tensor([0]), ("a",))),
        ({"x": np.arange(3), "text": ["a", "b", "c"]}, {"x": np.arange(1), "text": ["a"]}),
        (Pair(torch.arange(3), [1.5, 2.5, 3.5]), Pair(torch.tensor([0]), [1.5])),
        (UserDict(x=torch.arange(3)), UserDict(x=torch.tensor([0]))),
        (Samples([{"x": 1}, {"x": 2}, {"x": 3}]), Samples([{"x": 1}])),
        (["a", "b", "c"], ["a"]),
    ],
)
def test_chunks_are_cut_and_joined(chunk: Any, first: Any) -> None:
    assert count(chunk) == 3
    assert str(cut(chunk, 0, 1)) == str(first)
    again = join([cut(chunk, 0, 1), cut(chunk, 1, 3)])
    assert type(again) is type(chunk)
    assert str(again) == str(chunk)


@pytest.mark.parametrize(
    ("chunk", "message"),
    [
        ({"x": torch.arange(3), "y": 3}, "int where rows were expected"),
        ((torch.arange(3), torch.tensor(1)), "Tensor where rows were expected"),
        ("abc", "str where rows were expected"),
        ([torch.ones(3, 2), torch.ones(4, 2)], "parts with 3 and 4 rows"),
        ({}, "parts with no rows"),
    ],
)
def test_what_has_no_rows_is_refused(chunk: Any, message: str) -> None:
    with pytest.raises(ValueError, match=rf"^evenstep: rebatch: the loader gave {message}; give it a batch_size"):
        next(iter(evenstep.rebatch([chunk], 2)))


@pytest.mark.parametrize("size", [1, 3, 8, 64])
def test_every_row_once_a_pass_in_one_process(size: int) -> None:
    loader = evenstep.rebatch(DataLoader(Numbers(50), batch_size=size), 8)
    for _ in range(2):
        batches = [batch.tolist() for batch in loader]
        assert [len(batch) for batch in batches] == [8] * 6 + [2]
        assert [row for batch in batches for row in batch] == list(range(50))


def test_a_stream_that_is_left_early_begins_anew() -> None:
    loader = evenstep.rebatch(DataLoader(Numbers(50), batch_size=3), 8)
    model = evenstep.balance(nn.Linear(1, 1), loader)
    for _ in range(2):
        for step, batch in enumerate(loader):
            assert batch.tolist() == list(range(8 * step, 8 * step + 8))
            if step == 2:
                break
            model(batch.float().unsqueeze(1)).mean().backward()
    old = iter(loader)
    next(old)
    next(iter(loader))
    with pytest.raises(RuntimeError, match="ended by a newer one over the same rebatched loader"):
        next(old)


def test_rows_that_cannot_be_put_together_are_collated_behind_the_cut() -> None:
    def padded(samples: list[int]) -> torch.Tensor:
        return nn.utils.rnn.pad_sequence([torch.ones(1 + n) for n in samples], batch_first=True)

    loader = DataLoader(Numbers(10), batch_size=3, collate_fn=list)
    shapes = [tuple(batch.shape) for batch in evenstep.rebatch(loader, 4, collate=padded)]
    assert shapes == [(4, 4), (4, 8), (2, 10)]


def test_it_has_no_length() -> None:
    with pytest.raises(TypeError):
        len(evenstep.rebatch([], 4))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"loader": 3, "global_batch_size": 4}, "loader: int cannot be iterated over"),
        ({"loader": [], "global_batch_size": 0}, "global_batch_size: 0 is not"),
        ({"loader": [], "global_batch_size": 4, "collate": 1}, "collate: int is not callable"),
    ],
)
def test_what_is_out_of_range_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{message}"):
        evenstep.rebatch(**arguments)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("streams")
    return ranks("streams.py", str(folder), HF_HUB_OFFLINE="1", HF_HOME=str(folder))


@pytest.mark.parametrize("case", CASES)
def test_equal_to_one_process_on_the_rows_consumed(found: dict[str, dict[str, Any]], case: str) -> None:
    if case in ("webdataset", "datasets", "accelerate"):
        pytest.importorskip(case)
    record = found[case]
    assert record["difference"] < 1e-12
    assert record["lost"] == record["twice"] == 0
    assert record["steps"] == len(record["totals"]) // (2 if case == "window 2" else 1) > 5
    assert max(record["totals"]) == GLOBAL_BATCH
    assert len(set(record["sizes"][0])) > 2, "the batch sizes did not change, so nothing was tested"
    # One all-reduce tells a dry rank that others have rows left: all ranks end at the same step.
    assert len({len(sizes) for sizes in record["sizes"]}) == 1


def test_a_rank_whose_stream_is_over_counts_for_nothing(found: dict[str, dict[str, Any]]) -> None:
    assert found["unbalanced streams"]["dry"] > 5


def test_a_rank_without_any_row_is_told(found: dict[str, dict[str, Any]]) -> None:
    assert "rank 1 has no row to train on while others have" in found["no row"]["errors"][1]
