"""Gradients of uneven batches equal those of one process on the whole batch."""

from typing import Any

import pytest

from launch import records, run
from scripted_core import ScriptedCore, random_sizes


@pytest.fixture(scope="module", params=[2, 3])
def cases(request: pytest.FixtureRequest) -> dict[str, dict[str, Any]]:
    with ScriptedCore(random_sizes) as core:
        out, _ = run("exactness.py", workers=request.param, EVENSTEP_ADDR=core.address)
    return {record["case"]: record for record in records(out)}


@pytest.mark.parametrize(
    "case",
    [
        "plain",
        "loader_workers",
        "buckets",
        "find_unused_parameters",
        "static_graph",
        "compiled",
        "compiled_outside",
        "no_sync",
        "count",
        "count_no_sync",
        "count_tensor",
    ],
)
def test_equal_to_one_process(cases: dict[str, dict[str, Any]], case: str) -> None:
    assert cases[case]["sizes"] > 2, "the batch sizes did not change, so nothing was tested"
    assert cases[case]["difference"] < 1e-12


def test_equal_to_the_precision_of_a_users_fp16_hook(cases: dict[str, dict[str, Any]]) -> None:
    assert cases["fp16_hook"]["sizes"] > 2
    assert cases["fp16_hook"]["difference"] < 1e-2
