"""Data parallelism in a part of the world: what it leaves behind, and what is refused."""

import pytest

from launch import records, run
from scripted_core import ScriptedCore


@pytest.fixture(scope="module")
def results() -> dict[str, list[str]]:
    """Give the results by case, in rank order."""
    with ScriptedCore(lambda opening, report: None) as core:
        out, _ = run("parts_of_the_world.py", workers=3, EVENSTEP_ADDR=core.address)
    lines = sorted(records(out), key=lambda line: line["rank"])
    return {
        case: [line["result"] for line in lines if line["case"] == case] for case in {line["case"] for line in lines}
    }


def test_all_ranks_can_make_groups_after_some_trained(results: dict[str, list[str]]) -> None:
    assert results["in_a_part"] == ["met"] * 3


def test_a_rank_that_is_not_in_the_group_is_told(results: dict[str, list[str]]) -> None:
    assert results["not_a_member"] == ["spared", "spared", "group: rank 2 is none of its ranks"]


def test_gradients_that_are_averaged_over_others_than_share_the_batch_are_refused(
    results: dict[str, list[str]],
) -> None:
    share = "group: the ranks [0, 1, 2] share the batch, but the model averages gradients over"
    give = "give the sampler the model's group"
    assert results["replicas_without_group"] == [f"{share} [0, 1]; {give}"] * 2 + ["spared"]
    assert results["shards_without_group"] == [f"{share} [{rank}]; {give}" for rank in range(3)]
