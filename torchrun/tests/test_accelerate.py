"""Under accelerate, uneven batches train as one process on the whole batch does, in float64."""

from typing import Any

import pytest

from framework_case import EPOCHS, STEPS, check, ranks

pytest.importorskip("accelerate")

WHOLE = ("window 1, {}", "window 1, {'workers': 2}", "window 2, {}", "window 2, {'workers': 2}")
RESUMED = (
    "registered, window 1, {}",
    "registered, window 1, {'workers': 2}",
    "registered, window 3, {}",
    "skipped, window 1, {}",
    "skipped, window 1, {'workers': 2}",
    "registered and skipped, window 1, {}",
    "stateful, window 1, {'stateful': True}",
    "stateful, window 1, {'stateful': True, 'workers': 2}",
)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = str(tmp_path_factory.mktemp("states"))
    both = [ranks("accelerated.py", folder, part, ACCELERATE_USE_CPU="true") for part in ("first", "rest")]
    one = ranks("accelerated.py", folder, "one", workers=1, ACCELERATE_USE_CPU="true")
    return both[0] | both[1] | {f"one {case}": record for case, record in one.items()}


def steps(window: int, batches: int = STEPS) -> int:
    return -(-batches // window)


@pytest.mark.parametrize("case", WHOLE)
def test_equal_to_one_process(found: dict[str, dict[str, Any]], case: str) -> None:
    window = int(case[7])
    check(found[case], steps=EPOCHS * steps(window), batches=EPOCHS * STEPS)


@pytest.mark.parametrize("case", WHOLE)
def test_lengths_schedules_and_losses_are_those_of_equal_batches(found: dict[str, dict[str, Any]], case: str) -> None:
    length, lists, turns = (found[case][name] for name in ("length", "lists", "turns"))
    assert length == STEPS
    # accelerate turns a prepared scheduler once a rank; a loader that is not prepared counts a batch a rank.
    assert (lists, turns) == (2 * STEPS, 2 * EPOCHS * steps(int(case[7])))
    assert found[case]["losses_off"] < 1e-6


@pytest.mark.parametrize("case", RESUMED)
def test_continues_in_mid_epoch(found: dict[str, dict[str, Any]], case: str) -> None:
    window = int(case.split("window ")[1][0])
    check(found[f"first {case}"], steps=steps(window) + 3 // window)
    check(found[f"rest {case}"], steps=3 * steps(window))


def test_an_epoch_that_is_left_early_is_not_trained_on_again(found: dict[str, dict[str, Any]]) -> None:
    assert found["left early"]["epochs"] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("case", [case for case in RESUMED if "stateful" not in case])
def test_one_process_continues_what_two_saved(found: dict[str, dict[str, Any]], case: str) -> None:
    one = found[f"one rest {case}"]
    assert one["difference"] < 1e-12
    assert one["steps"] == 3 * steps(int(case.split("window ")[1][0]))


def test_a_state_inside_an_accumulation_window_is_told_of(found: dict[str, dict[str, Any]]) -> None:
    assert any("inside an accumulation window" in line for line in found["inside a window"]["lines"])


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("rank view", "view: accelerate would deal this rank's batches to all ranks again"),
        ("unprepared", 'view: nobody deals the lists of view="global" to their ranks'),
        ("dispatching", "dispatch_batches: "),
        ("as sampler", "sampler: the loader would draw several whole batches"),
        ("loaded and skipped", "load_state_dict: the sampler continues behind 32 samples, the loader behind 2"),
    ],
)
def test_what_would_deal_wrong_is_refused(found: dict[str, dict[str, Any]], case: str, message: str) -> None:
    assert found["refused"]["errors"][case].startswith(message)
