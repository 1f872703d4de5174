"""The stream from rank 0 to the core: nothing that a core does or fails to do reaches the training."""

import re
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from evenstep.core import Core
from evenstep.report import Hints, Row
from evenstep.v1 import balancer_pb2 as wire
from launch import eventually
from scripted_core import ScriptedCore

ROWS = [Row(1, 8.0, 0.1, 1.5, 4096, hints=Hints(1410.0, 1980.0, ("SW power cap",))), Row(1, 8.0, 0.2)]
OPENING = wire.Open(job="test", global_batch=16, workers=[wire.Worker(min_batch_size=2)] * 2)


class Watched(Core):
    """Counts the answers that came."""

    def __init__(self, address: str, sizes: Callable[[], Sequence[int]], opening: wire.Open = OPENING) -> None:
        self.answers = threading.Semaphore(0)
        super().__init__(address, opening, sizes)

    def _take(self, allocation: wire.Allocation) -> None:
        super()._take(allocation)
        self.answers.release()


def answer(core: Watched, step: int) -> tuple[int, ...] | None:
    """Report a step, wait for its answer, and give the allocation in it, None where it was ignored."""
    core._opened.wait(5)  # what is reported before the stream is there is lost
    core.report(step, step + 1, ROWS)
    assert core.answers.acquire(timeout=40)
    return core.newest()


def test_reports_go_out_and_allocations_come_back() -> None:
    with ScriptedCore(lambda opening, report: [10, 6]) as server:
        core = Watched(server.address, lambda: (9, 7))
        assert answer(core, 3) == (10, 6)
        core.close()
    assert list(server.openings[0].batch_sizes) == [9, 7]
    report = server.reports[0]
    assert (report.step, report.next_free_step) == (3, 4)
    assert [(w.rank, w.compute_seconds, w.samples) for w in report.workers] == [(0, 0.1, 8.0), (1, 0.2, 8.0)]
    assert (report.workers[0].cpu_available, report.workers[0].memory_available_bytes) == (1.5, 4096)
    assert (report.workers[0].sm_clock_mhz, report.workers[0].sm_clock_max_mhz) == (1410, 1980)
    assert list(report.workers[0].throttle_reasons) == ["SW power cap"]
    assert not report.workers[1].HasField("sm_clock_mhz")
    assert not report.workers[1].HasField("sm_clock_max_mhz")
    assert not report.workers[1].HasField("cpu_available")
    assert not report.workers[1].HasField("memory_available_bytes")


@pytest.mark.parametrize(
    ("sizes", "fault"),
    [
        ([16], "batch_sizes: 1 sizes for 2 workers"),
        ([], "batch_sizes: 0 sizes for 2 workers"),
        ([8, 9], "batch_sizes: they sum to 17, not to the global batch 16"),
        ([15, 1], r"batch_sizes\[1\]: 1 is below the minimum 2"),
        ([16, 0], r"batch_sizes\[1\]: 0 is below the minimum 2"),
        ([4294967295, 17], "batch_sizes: they sum to 4294967312"),
    ],
)
def test_a_malformed_allocation_is_ignored_with_one_warning(
    sizes: list[int], fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    with ScriptedCore(lambda opening, report: sizes if report.step < 3 else [12, 4]) as server:
        core = Watched(server.address, lambda: (8, 8))
        assert [answer(core, step) for step in range(2)] == [None, None]
        assert answer(core, 3) == (12, 4)
        core.close()
    assert len(caplog.messages) == 1
    assert caplog.records[0].levelname == "WARNING"
    assert re.search(fault, caplog.messages[0])


def test_sizes_that_are_no_multiples_of_the_quantum_are_ignored(caplog: pytest.LogCaptureFixture) -> None:
    opening = wire.Open(job="test", global_batch=16, quantum=4, workers=[wire.Worker(min_batch_size=4)] * 2)
    with ScriptedCore(lambda opening, report: [10, 6] if report.step == 0 else [12, 4]) as server:
        core = Watched(server.address, lambda: (8, 8), opening)
        assert [answer(core, step) for step in range(2)] == [None, (12, 4)]
        core.close()
    assert "batch_sizes[0]: 10 is no multiple of the quantum 4" in caplog.messages[0]


def test_an_answer_that_came_before_the_job_was_opened_anew_is_forgotten() -> None:
    with ScriptedCore(lambda opening, report: [14, 2] if opening.job == "test" else [8, 8]) as server:
        core = Core(server.address, OPENING, lambda: (8, 8))
        core.report(0, 1, ROWS)
        eventually(lambda: core._newest)
        smaller = wire.Open(
            job="smaller", global_batch=16, workers=[wire.Worker(min_batch_size=2, max_batch_size=8)] * 2
        )
        core.reopen(smaller)
        assert core.newest() is None
        core.close()


def test_a_core_that_dies_is_opened_again_with_the_sizes_in_force(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    sizes = (8, 8)
    address = f"unix:{tmp_path}/core.sock"
    with ScriptedCore(lambda opening, report: [10, 6], address):
        core = Watched(address, lambda: sizes)
        assert answer(core, 0) == (10, 6)
        sizes = (10, 6)
    eventually(lambda: caplog.messages)
    with ScriptedCore(lambda opening, report: [11, 5], address) as second:
        eventually(lambda: second.openings)
        assert list(second.openings[0].batch_sizes) == [10, 6]
        assert answer(core, 2) == (11, 5)
        core.close()
    assert len(caplog.messages) == 2, caplog.messages
    assert "training goes on" in caplog.messages[0]
    assert "the core is back" in caplog.messages[1]


def test_a_core_that_hangs_takes_no_memory_and_no_time() -> None:
    release = threading.Event()

    def hang(opening: wire.Open, report: wire.StepReport) -> None:
        release.wait(30)

    with ScriptedCore(hang) as server:
        core = Core(server.address, OPENING, lambda: (8, 8))
        eventually(lambda: server.openings)
        begun = time.monotonic()
        for step in range(20_000):
            core.report(step, step + 1, ROWS)
        assert core._reports.qsize() <= 64
        assert core.newest() is None
        core.close()
        assert time.monotonic() - begun < 10
        release.set()


def test_no_core_at_all_is_told_once(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    core = Core(f"unix:{tmp_path}/none.sock", OPENING, lambda: (8, 8))
    time.sleep(1)  # several tries
    core.close()
    assert len(caplog.messages) == 1
    assert "no answer from the core" in caplog.messages[0]
    assert not core._thread.is_alive()
