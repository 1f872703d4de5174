"""Under transformers' Trainer, uneven batches train as one process on the whole batch does, in float64."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import evenstep.torch
from framework_case import EPOCHS, STEPS, check, ranks

pytest.importorskip("transformers")

CASES = (
    ("rows", 1),
    ("rows", 2),
    ("no labels", 2),
    ("rows dropped", 2),
    ("words", 2),
    ("few words", 2),
    ("lines", 2),
    ("llama", 1),
    ("llama", 2),
    ("llama, each by its own tokens", 2),
    ("llama, loss by hand", 2),
    ("bert", 2),
)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = str(tmp_path_factory.mktemp("checkpoints"))
    whole = [f"{case}:{window}" for case, window in (*CASES, ("rows, 1 left", 1), ("llama, 1 left", 1))]
    return ranks("trained.py", folder, *whole) | ranks("trained.py", folder, *(f"rest of {name}" for name in RESUMED))


RESUMED = ("rows:1", "llama:2")


def steps(window: int) -> int:
    return -(-STEPS // window)


@pytest.mark.parametrize(("case", "window"), CASES)
def test_equal_to_one_process(found: dict[str, dict[str, Any]], case: str, window: int) -> None:
    line = found[f"{case}, window {window}"]
    check(line, steps=EPOCHS * steps(window), batches=EPOCHS * STEPS, all_rows=case != "rows dropped")


@pytest.mark.parametrize(("case", "window"), CASES)
def test_lengths_schedules_and_losses_are_those_of_equal_batches(
    found: dict[str, dict[str, Any]], case: str, window: int
) -> None:
    line = found[f"{case}, window {window}"]
    assert (line["length"], line["turns"]) == (STEPS, EPOCHS * steps(window))
    assert line["losses_off"] < 1e-4  # some releases log four digits


@pytest.mark.parametrize("case", ["rows", "llama"])
def test_a_last_batch_of_fewer_samples_than_ranks(found: dict[str, dict[str, Any]], case: str) -> None:
    line = found[f"{case}, 1 left, window 1"]
    assert line["difference"] < 1e-12
    assert (line["length"], line["steps"]) == (4, EPOCHS * 4)
    assert line["losses_off"] < 1e-4


@pytest.mark.parametrize(("case", "window"), [("rows", 1), ("llama", 2)])
def test_continues_in_mid_epoch(found: dict[str, dict[str, Any]], case: str, window: int) -> None:
    line = found[f"rest of {case}, window {window}"]
    check(line, steps=3 * steps(window), batches=3 * STEPS - (STEPS + 2 * window))
    assert line["losses_off"] < 1e-4


def test_the_second_training_of_a_trainer_goes_on_with_the_weights(trainer: Callable[..., Any]) -> None:
    one = evenstep.torch.hf.balance(trainer())
    for _ in range(2):
        assert one.train().global_step == 2
    one.train_dataset = ROWS[:3]
    with pytest.raises(ValueError, match=r"^train_dataset: its size changed"):
        one.train()


@pytest.fixture
def trainer(tmp_path: Path) -> Callable[..., Any]:
    from transformers import Trainer, TrainingArguments

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Linear(2, 1)

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": self.inner(x).mean()}

    def make(dataset: Any = ROWS, **settings: Any) -> Any:
        args = TrainingArguments(str(tmp_path), num_train_epochs=1, use_cpu=True, report_to=[], **settings)
        return Trainer(Model(), args, train_dataset=dataset)

    return make


ROWS = [{"x": torch.ones(2), "input_ids": [1]}] * 16


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self) -> Iterator[Any]:
        return iter(ROWS)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"auto_find_batch_size": True}, "auto_find_batch_size: "),
        ({"accelerator_config": {"split_batches": True}}, "accelerator_config.split_batches: "),
        ({"accelerator_config": {"dispatch_batches": True}}, "accelerator_config.dispatch_batches: "),
        ({"train_sampling_strategy": "group_by_length"}, "train_sampling_strategy: a LengthGroupedSampler chooses"),
        ({"dataset": Stream(), "max_steps": 1}, "train_dataset: a stream has no samples to choose from"),
        ({"dataloader_in_order": False, "dataloader_num_workers": 1}, "in_order: "),
    ],
)
def test_what_uneven_batches_exclude_is_refused(
    trainer: Callable[..., Any], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        evenstep.torch.hf.balance(trainer(**settings)).train()


def test_only_a_trainer_is_balanced_and_once(trainer: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=r"^trainer: int is not a Trainer"):
        evenstep.torch.hf.balance(3)
    with pytest.raises(TypeError, match=r"^count: int is not callable"):
        evenstep.torch.hf.balance(trainer(), count=3)
    with pytest.raises(ValueError, match=r"^trainer: it is balanced already"):
        evenstep.torch.hf.balance(evenstep.torch.hf.balance(trainer()))
