"""What a user is told: each case once, in one line, and nothing where all is well."""

from collections import defaultdict
from typing import Any

import pytest

from launch import records, run
from scripted_core import ScriptedCore

SAMPLES = 32  # as in ranks/told.py
TOLD = {
    "plain": None,
    "no_core": "no core. Start with torchrun --rdzv-backend=evenstep",
    "tcp": "EVENSTEP_ADDR: 'tcp:localhost:7000' is not valid; give unix:/PATH",
    "lopsided": None,
    "rows": "counts for 4. If the loss averages over the rows that the model gets, give balance(..., count=)",
    "rows_counted": None,
    "no_terms": None,
    "rank_0_terms": None,
    "batch_norm": "BatchNorm, whose statistics are each rank's own",
    "sync_batch_norm": "batch sizes stay as they are: rank 0: SyncBatchNorm waits",
    "fsdp": None,
    "no_replica": "batch sizes stay as they are: rank 0: the model holds 0 DistributedDataParallel modules",
    "twice": "a backward has no batch of its own, so its gradient is not weighted",
    "eval_mode": None,
    "skipped": "a batch had a forward but no backward through its outputs",
    "two_forwards": None,
    "another": "batches are drawn and an optimizer steps, but the balanced model had no forward",
    "inner": "batch sizes stay as they are: rank 0: the model holds 0 DistributedDataParallel modules",
}
OF_EACH_RANK = {"rows", "twice", "skipped", "another"}
UNCOUNTED = {"skipped", "another"}


@pytest.fixture(scope="module")
def told() -> tuple[dict[str, dict[int, Any]], dict[str, int]]:
    """Give by case and rank the line, and by case the least batch size that the core was asked for."""
    with ScriptedCore(lambda opening, report: None) as core:
        out, _ = run("told.py", core.address)
    lines: dict[str, dict[int, Any]] = defaultdict(dict)
    for line in records(out):
        lines[line["case"]][line["rank"]] = line
    return lines, {opening.job.partition("/")[0]: opening.workers[0].min_batch_size for opening in core.openings}


Told = tuple[dict[str, dict[int, Any]], dict[str, int]]


@pytest.mark.parametrize("case", TOLD)
def test_what_is_said_and_trained(told: Told, case: str) -> None:
    by_rank, expected = told[0][case], TOLD[case]
    for rank in range(2):
        line = by_rank[rank]
        assert "error" not in line, line["error"]
        assert line["gradient"] == [0 if case == "no_terms" else 1] * 4
        assert case in UNCOUNTED or line["position"] == SAMPLES
        if expected is None or (rank > 0 and case not in OF_EACH_RANK):
            assert line["said"] == []
        else:
            (said,) = line["said"]
            assert expected in said


def test_what_must_agree_is_named(told: Told) -> None:
    errors = [told[0]["other_seed"][rank]["error"] for rank in range(2)]
    assert errors == [
        "seed: rank 1 has 1, rank 0 has 0; give the same on all ranks",
        "seed: rank 0 has 0, rank 1 has 1; give the same on all ranks",
    ]
    for rank in range(2):
        error = told[0]["other_world"][rank]["error"]
        assert error.startswith("evenstep: the first batch was drawn for 1 workers, the process group has 2; call init")


def test_parts_that_ranks_cannot_train_together_are_refused(told: Told) -> None:
    for rank in range(2):
        error = told[0]["parts_of_shards"][rank]["error"]
        assert error.startswith(f"evenstep: rank {rank}: with fully_shard ranks wait for each other in each forward")
        error = told[0]["parts_in_time"][rank]["error"]
        assert error.startswith(f"evenstep: rank {rank}: a batch of 4 rows had forwards of 2, and then another was")
        error = told[0]["parts_of_triplets"][rank]["error"]
        assert error.startswith(f"evenstep: rank {rank}: parts of a batch of 4 rows had forwards of 6")


def test_a_script_that_trains_past_the_balanced_model_is_told(told: Told) -> None:
    for rank in range(2):
        line = told[0]["apart"][rank]
        *sizes, weights = line["said"]
        assert "error" not in line
        assert "gradient past the outputs of its forward" in weights
        assert [said.partition("rank 0: ")[2] for said in sizes] == [
            "the model holds 2 DistributedDataParallel modules; wrap the module that holds them, once"
        ][rank:]


def test_the_core_is_asked_for_two_rows_each_unless_the_user_gave_fewer(told: Told) -> None:
    assert told[1]["plain"] == 2
    assert told[1]["lopsided"] == 1
