"""Under Lightning's Trainer and Fabric, uneven batches train as one process on the whole batch does, in float64."""

from typing import Any

import pytest

from framework_case import EPOCHS, GLOBAL_BATCH, SAMPLES, STEPS, check, ranks

pytest.importorskip("lightning")

WHOLE = ("automatic", "automatic, workers", "window 2", "window 2, workers", "by hand", "count")
SHARDED = ("sharded", "sharded, window 2")
ROWS = 200  # of ranks/streams.py


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    return ranks("lit.py", str(tmp_path_factory.mktemp("checkpoints")))


@pytest.mark.parametrize("case", WHOLE + SHARDED)
def test_equal_to_one_process(found: dict[str, dict[str, Any]], case: str) -> None:
    if case in SHARDED and case not in found:
        pytest.skip("Lightning is too old for fully_shard")
    steps = EPOCHS * -(-STEPS // (2 if "window" in case else 1))
    check(found[case], steps=steps, batches=EPOCHS * STEPS)
    assert found[case]["batches"] == STEPS
    assert found[case]["global_step"] == steps
    # Manual optimization leaves the scheduler to the module.
    assert found[case]["turns"] == (0 if case == "by hand" else steps)
    if found[case]["expected"] is not None:
        assert found[case]["logged"] == pytest.approx(found[case]["expected"], abs=1e-6)  # Lightning logs float32


@pytest.mark.parametrize(
    "case",
    [
        f"mid-step={STEPS + 3}, 0 workers",
        f"mid-step={STEPS + 3}, 2 workers",
        "end-epoch=0, 0 workers",
        "end-epoch=1, 2 workers",
    ],
)
def test_continues_from_checkpoints(found: dict[str, dict[str, Any]], case: str) -> None:
    check(found[case], steps=4 * STEPS)


def test_ranks_that_train_on_the_same_batch(found: dict[str, dict[str, Any]]) -> None:
    case = "two ranks to a batch"
    if case not in found:
        pytest.skip("Lightning is too old for fully_shard")
    assert found[case]["difference"] < 1e-12
    assert found[case]["sizes"] == [(EPOCHS * [*(STEPS - 1) * [GLOBAL_BATCH], SAMPLES % GLOBAL_BATCH])] * 2


def test_a_second_fit_of_the_same_callback(found: dict[str, dict[str, Any]]) -> None:
    assert found["fitted twice"]["difference"] < 1e-12
    assert found["fitted twice"]["steps"] == STEPS


def test_a_second_fit_of_the_same_trainer(found: dict[str, dict[str, Any]]) -> None:
    assert found["one trainer that fits twice"]["global_step"] == 2 * STEPS


def test_a_stream(found: dict[str, dict[str, Any]]) -> None:
    assert found["stream"]["difference"] < 1e-12
    assert found["stream"]["rows"] == [row for row in range(ROWS) for _ in range(EPOCHS)]


def test_compute_time_is_free_of_lightnings_own_waits(found: dict[str, dict[str, Any]]) -> None:
    delay, (slow, fast) = found["waiting"]["delay"], found["waiting"]["medians"]
    assert slow > delay
    assert fast < delay / 2


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (
            "switch",
            "use_distributed_sampler: Lightning would put a sampler of its own in the place of Evenstep's; give",
        ),
        ("no sampler", "sampler: DataLoader is not a BalancedBatchSampler, nor from rebatch"),
        ("other loader", "sampler: the training's batches are not drawn from it; give DataLoader(..., batch_sampler="),
        ("no function", "count: int is not callable; give a function of a batch"),
    ],
)
def test_what_cannot_be_balanced_is_refused(found: dict[str, dict[str, Any]], case: str, message: str) -> None:
    assert found["refused"]["errors"][case].startswith(message)


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    return ranks("fabric.py", str(tmp_path_factory.mktemp("checkpoints")))


@pytest.mark.parametrize("case", ["plain", "workers", "window 2", "method", "a loader made anew for each epoch"])
def test_fabric_is_equal_to_one_process(fabric: dict[str, dict[str, Any]], case: str) -> None:
    check(fabric[case], steps=EPOCHS * -(-STEPS // (2 if "window" in case else 1)), batches=EPOCHS * STEPS)


@pytest.mark.parametrize("case", ["0-3, 0 workers", f"0-{STEPS}, 0 workers", "1-3, 2 workers", f"1-{STEPS}, 2 workers"])
def test_fabric_continues_from_checkpoints(fabric: dict[str, dict[str, Any]], case: str) -> None:
    assert fabric[case]["difference"] < 1e-12
    assert fabric[case]["steps"] == 3 * STEPS
