"""The whole path: real torchrun, real core, uneven workers, and what happens when parts of it die."""

import os
import signal
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from job import Job, Line, free_port
from launch import eventually, records, run
from scripted_core import ScriptedCore

GLOBAL_BATCH, STEPS = 64, 160  # as in ranks/uneven.py
FLAGS = ("--nproc-per-node=2",)


def sizes(lines: Sequence[Line]) -> dict[int, tuple[int, ...]]:
    """Give the batch sizes by step, and see that they sum to the global batch."""
    by_step: dict[int, dict[int, int]] = defaultdict(dict)
    for line in lines:
        assert line["rank"] not in by_step[line["step"]], "a step was trained twice"
        by_step[line["step"]][line["rank"]] = line["rows"]
    found = {step: tuple(rows[rank] for rank in sorted(rows)) for step, rows in by_step.items()}
    assert {sum(rows) for rows in found.values()} == {GLOBAL_BATCH}
    return found


def ran_whole(job: Job, steps: int = STEPS) -> dict[int, tuple[int, ...]]:
    found = sizes(job.lines(2 * steps))
    assert sorted(found) == list(range(steps))
    return found


def last_rank_spared(rows: tuple[int, ...]) -> bool:
    """Three times as slow: its best share is a quarter of the global batch, where equal is a half."""
    return abs(rows[-1] - GLOBAL_BATCH / 4) <= 5


def rank_0_spared(rows: tuple[int, ...]) -> bool:
    return abs(rows[0] - GLOBAL_BATCH / 4) <= 5


def test_two_jobs_with_the_flag_alone_both_balance(new_job: Callable[..., Job]) -> None:
    jobs = [new_job(), new_job()]
    agents = [job.start(*FLAGS, script="uneven.py", worker=str(STEPS)) for job in jobs]
    assert [agent.wait(120) for agent in agents] == [0, 0]
    for job in jobs:
        found = ran_whole(job)
        assert found[0] == (GLOBAL_BATCH // 2, GLOBAL_BATCH // 2)
        assert last_rank_spared(found[STEPS // 2 - 1])
        assert rank_0_spared(found[STEPS - 1])
        assert job.said() == []
        assert job.processes() == []
        assert list(job.runtime.iterdir()) == []


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core")
def test_a_second_run_starts_where_the_first_one_ended(new_job: Callable[..., Job]) -> None:
    runs = []
    for workload, steps in (("first", STEPS), ("first", 8), ("other", 8)):
        job = new_job(EVENSTEP_TEST_PIN="1")
        agent = job.start(*FLAGS, f"--rdzv-conf=workload={workload}", script="uneven.py", worker=str(steps))
        assert agent.wait(120) == 0
        runs.append(ran_whole(job, steps)[0])
        assert job.said() == []
    equal = (GLOBAL_BATCH // 2, GLOBAL_BATCH // 2)
    assert runs[0] == runs[2] == equal
    assert rank_0_spared(runs[1])  # as in the second half of the first run


def test_a_core_killed_in_mid_training_loses_no_step_and_balances_again(new_job: Callable[..., Job]) -> None:
    job = new_job(EVENSTEP_TEST_FREEZE=str(STEPS // 2))
    agent = job.start(*FLAGS, script="uneven.py", worker=str(STEPS))
    eventually(lambda: len(job.lines(0)) == STEPS)  # both ranks wait before step STEPS / 2
    (core,) = job.cores()
    os.kill(core, signal.SIGKILL)
    job.report.with_name("report.go").touch()
    assert agent.wait(120) == 0
    found = ran_whole(job)
    assert last_rank_spared(found[STEPS // 2 - 1])
    assert rank_0_spared(found[STEPS - 1])
    assert "evenstep: the core died (signal 9); starting it again" in job.said()
    assert "evenstep: the core is back" in job.said()


def test_a_core_that_stays_dead_leaves_the_sizes_as_they_are(new_job: Callable[..., Job]) -> None:
    with ScriptedCore(lambda opening, report: [48, 16]) as core:
        job = new_job(EVENSTEP_ADDR=core.address, EVENSTEP_TEST_FREEZE=str(STEPS // 2))
        agent = job.start(*FLAGS, script="uneven.py", worker=str(STEPS))
        eventually(lambda: len(job.lines(0)) == STEPS)
    job.report.with_name("report.go").touch()
    assert agent.wait(120) == 0
    found = ran_whole(job)
    assert {found[step] for step in range(STEPS // 2, STEPS)} == {(48, 16)}
    assert len(job.said()) == 1


def test_malformed_allocations_are_ignored_with_one_warning() -> None:
    answers = [[24], [25, -1], [24, 1], [0, 24], [], [1 << 31, 8]]

    def nonsense(opening: Any, report: Any) -> list[int]:
        return [size % (1 << 32) for size in answers[report.step % len(answers)]]

    with ScriptedCore(nonsense) as core:
        out, err = run("agreement.py", "0", "-1", EVENSTEP_ADDR=core.address)
    assert {len(record["samples"]) for record in records(out)} == {12, 10}  # equal, and the short last step
    assert err.count("evenstep: ignored a malformed allocation") == 1


def test_a_worker_that_dies_comes_back_and_is_balanced_again(new_job: Callable[..., Job]) -> None:
    job = new_job(EVENSTEP_TEST_FREEZE=str(STEPS // 2))
    agent = job.start(*FLAGS, "--max-restarts=2", script="uneven.py", worker=str(STEPS))
    before = eventually(lambda: lines if len(lines := job.lines(0)) == STEPS else None)
    os.kill(next(line["pid"] for line in before if line["rank"] == 1), signal.SIGKILL)
    job.report.with_name("report.go").touch()
    assert agent.wait(120) == 0
    after = [line for line in job.lines(0) if line["pid"] not in {line["pid"] for line in before}]
    found = sizes(after)
    assert sorted(found) == list(range(STEPS))
    assert last_rank_spared(found[STEPS // 2 - 1])
    assert rank_0_spared(found[STEPS - 1])


def test_a_second_agent_joins_a_running_job(new_job: Callable[..., Job]) -> None:
    job = new_job(EVENSTEP_TEST_FREEZE=str(STEPS // 2))
    flags = ("--nnodes=1:2", f"--rdzv-endpoint=localhost:{free_port()}", "--rdzv-id=joined", "--local-addr=localhost")
    flags += ("--rdzv-conf=last_call_timeout=1", "--max-restarts=1")
    first = job.start(*flags, script="uneven.py", worker=str(STEPS))
    alone = eventually(lambda: lines if len(lines := job.lines(0)) == STEPS // 2 else None)
    assert {line["world"] for line in alone} == {1}
    second = job.start(*flags, script="uneven.py", worker=str(STEPS))
    eventually(lambda: sum(line["world"] == 2 for line in job.lines(0)) == STEPS)
    job.report.with_name("report.go").touch()
    assert [first.wait(120), second.wait(120)] == [0, 0]
    found = sizes([line for line in job.lines(0) if line["world"] == 2])
    assert sorted(found) == list(range(STEPS))
    assert last_rank_spared(found[STEPS // 2 - 1])
    assert rank_0_spared(found[STEPS - 1])


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGKILL])
def test_no_worker_outlives_torchrun(new_job: Callable[..., Job], sign: signal.Signals) -> None:
    job = new_job(EVENSTEP_TEST_FREEZE="20")
    agent = job.start(*FLAGS, script="uneven.py", worker=str(STEPS))
    eventually(lambda: len(job.lines(0)) == 40)
    assert len(job.processes()) == 5  # torchrun, two workers, core and agent
    agent.send_signal(sign)
    assert agent.wait(40) != 0
    eventually(lambda: job.processes() == [] and not list(job.runtime.iterdir()), seconds=10)


def test_no_worker_outlives_a_torchrun_that_died_before_the_import(new_job: Callable[..., Job]) -> None:
    job = new_job()
    agent = job.start(*FLAGS, script="late_import.py")
    job.lines(2)
    agent.kill()
    agent.wait()
    eventually(lambda: len(job.processes()) == 2)  # the core has ended by itself
    job.report.with_name("report.go").touch()
    eventually(lambda: job.processes() == [])
