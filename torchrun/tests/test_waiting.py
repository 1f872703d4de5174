"""A rank's compute time is free of its wait for the others."""

import statistics

import pytest

from launch import run
from ranks.waiting import late
from scripted_core import ScriptedCore

STEPS, DELAY = 110, 0.150
SETTLED = 5  # the first steps allocate, and rebuild DDP's buckets
Times = dict[tuple[int | None, int], list[float]]


@pytest.fixture(scope="module", params=["ddp", "fsdp", "metrics"])
def times(request: pytest.FixtureRequest) -> Times:
    """Give the compute seconds by (the rank that was late, the rank that was measured)."""
    with ScriptedCore(lambda opening, report: None) as core:
        run("waiting.py", str(STEPS), str(DELAY), request.param, EVENSTEP_ADDR=core.address)
    found: Times = {(slow, rank): [] for slow in (None, 0, 1) for rank in range(2)}
    for report in core.reports[SETTLED:]:
        for rank, worker in enumerate(report.workers):
            found[late(report.step), rank].append(worker.compute_seconds)
    assert min(len(seconds) for seconds in found.values()) >= 20
    assert all(worker.memory_available_bytes > 0 for worker in core.reports[-1].workers)
    return found


@pytest.mark.parametrize(("slow", "where"), [(1, "backward"), (0, "input")])
def test_a_delay_is_in_the_compute_time_of_the_rank_that_is_late_alone(times: Times, slow: int, where: str) -> None:
    undisturbed, own, other = times[None, 1 - slow], times[slow, slow], times[slow, 1 - slow]
    rise = statistics.median(other) - statistics.median(undisturbed)
    print(f"rank {1 - slow}: {statistics.median(undisturbed):.4f} s, {rise:+.4f} s while the other is late in {where}")
    assert abs(rise) < 0.2 * DELAY
    # The sleep itself is the late rank's own time, as a slow device's would be.
    assert statistics.median(own) - statistics.median(times[None, slow]) > 0.8 * DELAY
