"""A batch that does not fit into a worker's memory costs no step and no sample."""

import pytest
import torch
from torch import nn

from evenstep.torch.memory import put_back, within
from launch import records, run
from scripted_core import ScriptedCore


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_with_an_allocator_limit_on_cpu_the_same_samples_are_trained_in_parts_and_sizes_shrink(where: str) -> None:
    with ScriptedCore(lambda opening, report: None) as core:
        out, err = run("memory.py", where, EVENSTEP_ADDR=core.address)
    lines = records(out)
    steps = [line for line in lines if "step" in line]
    assert sorted(sample for line in steps for sample in line["samples"]) == list(range(400))
    sizes = [line["rows"] for line in sorted(steps, key=lambda line: line["step"]) if line["rank"] == 1]
    assert sizes[0] == 8
    assert sizes[-1] == 4
    assert [line["difference"] < 1e-12 for line in lines if "difference" in line] == [True, True]
    assert err.count("8 rows do not fit into memory") == 1
    assert core.openings[-1].workers[1].max_batch_size == 4
    assert list(core.openings[-1].batch_sizes) == [12, 4]
    assert core.openings[-1].job != core.openings[0].job


def test_with_an_allocator_limit_on_cpu_that_no_row_fits_into_the_job_stops_with_one_clear_message() -> None:
    with ScriptedCore(lambda opening, report: None) as core, pytest.raises(AssertionError) as stopped:
        run("memory.py", "nowhere", EVENSTEP_ADDR=core.address)
    assert "torchrun exited 1" in str(stopped.value)
    assert str(stopped.value).count("RuntimeError: evenstep: rank 1: one row does not fit into memory") == 1


@pytest.mark.parametrize(
    ("sizes", "limits", "quantum", "expected"),
    [
        ((8, 8), (16, 4), 1, (12, 4)),
        ((8, 8), (16, 16), 1, (8, 8)),
        ((8, 8), (11, 4), 1, None),
        ((8, 8), (16, 6), 4, (12, 4)),
        ((8, 8), (16, 3), 4, None),
        ((6, 6, 6), (2, 8, 8), 1, (2, 8, 8)),
    ],
)
def test_sizes_within_limits(
    sizes: tuple[int, ...], limits: tuple[int, ...], quantum: int, expected: tuple[int, ...] | None
) -> None:
    assert within(sizes, limits, quantum) == expected


def test_gradients_of_what_failed_are_put_back_and_of_what_did_not_are_added() -> None:
    parameter = nn.Parameter(torch.zeros(1))
    parameter.grad = torch.ones(1)
    with put_back([parameter]):
        (2 * parameter).backward()
    assert parameter.grad == 3

    def fail() -> None:
        with put_back([parameter]):
            (2 * parameter).backward()
            raise MemoryError

    with pytest.raises(MemoryError):
        fail()
    assert parameter.grad == 3
