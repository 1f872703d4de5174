"""Under policy=observe sizes stay equal, and one line at the end says what balancing would have saved."""

import re
from collections.abc import Callable

from evenstep.report import Hints, Row
from evenstep.torch.observer import Observer
from job import Job

GLOBAL_BATCH, STEPS = 64, 60  # of ranks/uneven.py


def test_sizes_stay_equal_and_one_line_tells_what_balancing_would_have_saved(new_job: Callable[..., Job]) -> None:
    job = new_job()
    options = ("--nproc-per-node=2", "--rdzv-conf=policy=observe")
    assert job.start(*options, script="uneven.py", worker=str(STEPS)).wait(120) == 0
    assert {line["rows"] for line in job.lines(2 * STEPS)} == {GLOBAL_BATCH // 2}
    (said,) = job.said()
    found = re.search(r"observed (\d+) steps of .* s, (\d+)% less; the slowest, rank [01], took", said)
    assert found, said
    assert STEPS // 2 < int(found[1]) <= STEPS
    assert 30 <= int(found[2]) <= 55  # three times as slow: half of the time


def test_the_line_names_the_slowest_rank_and_why() -> None:
    observer = Observer()
    observer.see([Row(1, 8.0, 0.0), Row(1, 8.0, 3.0)])  # not measured everywhere
    assert observer.line("") == "evenstep: observed no step that was measured on all ranks"
    for _ in range(2):
        observer.see([Row(1, 8.0, 1.0), Row(1, 8.0, 3.0)])
    expected = (
        "evenstep: observed 2 steps of 6.0 s compute; balanced, they would have taken 3.0 s, 50% less; the slowest, "
        "rank 1, took 3.0 times as long per sample as the fastest: "
    )
    assert observer.line("") == expected + "no clock or throttling of its device explains it"
    assert observer.line("rank 0 is 9 % slower: SW power cap") == (
        expected + "no clock or throttling of its device explains it"
    )
    assert observer.line("rank 1 is 66 % slower: SW power cap, 1,410 of 1,980 MHz") == (
        expected + "SW power cap, 1,410 of 1,980 MHz"
    )
    observer.see([Row(1, 8.0, 1.0), Row(1, 8.0, 3.0, hints=Hints(throttle=("HW slowdown",)))])
    assert observer.line("").endswith(": HW slowdown")
