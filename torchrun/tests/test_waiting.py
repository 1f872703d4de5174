"""A rank's compute time is free of its wait for the others."""

import statistics

from launch import run
from ranks.waiting import delayed
from scripted_core import ScriptedCore

STEPS, DELAY = 120, 0.150
SETTLED = 5  # the first steps allocate, and rebuild DDP's buckets


def test_another_ranks_delay_in_backward_is_not_in_the_compute_time() -> None:
    with ScriptedCore(lambda opening, report: None) as core:
        run("waiting.py", str(STEPS), str(DELAY), EVENSTEP_ADDR=core.address)
    by_mode: dict[bool, list[float]] = {True: [], False: []}
    own: dict[bool, list[float]] = {True: [], False: []}
    for report in core.reports[SETTLED:]:
        assert len(report.workers) == 2
        by_mode[delayed(report.step)].append(report.workers[0].compute_seconds)
        own[delayed(report.step)].append(report.workers[1].compute_seconds)
    assert min(len(times) for times in by_mode.values()) >= 30
    rise = statistics.median(by_mode[True]) - statistics.median(by_mode[False])
    print(f"rank 0: {statistics.median(by_mode[False]):.4f} s, {rise:+.4f} s while rank 1 is {DELAY} s late")
    assert abs(rise) < 0.2 * DELAY
    # The sleep itself is rank 1's own time, as a slow device's would be.
    assert statistics.median(own[True]) - statistics.median(own[False]) > 0.8 * DELAY
