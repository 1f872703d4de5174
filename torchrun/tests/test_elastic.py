"""Workers that die, agents that leave and come back: balanced again within ten steps, and no sample lost."""

import json
import os
import signal
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from evenstep.torch import BalancedBatchSampler
from job import Job, Line, free_port
from launch import eventually
from scripted_core import ScriptedCore, random_sizes

GLOBAL_BATCH, SAMPLES = 64, 64 * 220  # as in ranks/elastic.py
SLOW = 3.0
RESUMED = 1210  # samples, as in ranks/resumed.py


def worlds(lines: list[Line]) -> list[list[dict[int, Line]]]:
    """Give the lines by attempt in their order, by step, and by rank. An attempt is its rank 0."""
    attempts: dict[int, dict[int, dict[int, Line]]] = {}
    pending: dict[int, dict[int, Line]] = defaultdict(dict)
    for line in lines:
        pending[line["position"]].setdefault(line["rank"], line)
        if pending[line["position"]][line["rank"]] is not line:  # trained again, after the checkpoint
            pending[line["position"]] = {line["rank"]: line}
        step = pending[line["position"]]
        if len(step) == line["world"]:
            attempts.setdefault(step[0]["pid"], {})[line["position"]] = step
    return [[by_step[position] for position in sorted(by_step)] for by_step in attempts.values()]


def exactly_once(attempts: list[list[dict[int, Line]]]) -> None:
    """See that the steps of the checkpoint's line, the newest of each position, hold each sample once."""
    newest: dict[int, list[int]] = {}
    for attempt in attempts:
        for step in attempt:
            newest[step[0]["position"]] = [sample for rank in sorted(step) for sample in step[rank]["samples"]]
    assert sorted(sample for samples in newest.values() for sample in samples) == list(range(SAMPLES))


def balanced(step: dict[int, Line]) -> bool:
    """Three times as slow: its best share is a quarter of the global batch."""
    (rows,) = [len(line["samples"]) for line in step.values() if line["factor"] == SLOW]
    return abs(rows - GLOBAL_BATCH / 4) <= 6


def test_a_worker_killed_is_balanced_again_within_ten_steps(job: Job) -> None:
    options = ("--nproc-per-node=2", "--max-restarts=2")
    agent = job.start(*options, script="elastic.py", worker=f"{SAMPLES} 1,{SLOW} 0,1")
    lines = eventually(lambda: lines if len(lines := job.lines(0)) >= 2 * 80 else None)
    os.kill(next(line["pid"] for line in lines if line["rank"] == 1), signal.SIGKILL)
    assert agent.wait(120) == 0
    attempts = worlds(job.lines(0))
    assert len(attempts) == 2
    assert balanced(attempts[0][-1])
    assert any(balanced(step) for step in attempts[1][:10])
    assert balanced(attempts[1][-1])
    exactly_once(attempts)


def test_a_run_ended_and_resumed_on_other_world_sizes_takes_the_samples_of_one_process(job: Job) -> None:
    """Ended by SIGTERM in mid-epoch, twice: with three ranks, with two, and with three again to the end."""
    trained: dict[tuple[int, int], list[int]] = {}
    seen = 0
    with ScriptedCore(random_sizes) as core:
        job.environment["EVENSTEP_ADDR"] = core.address
        for ranks, steps in ((3, 70), (2, 14), (3, None)):
            agent = job.start(f"--nproc-per-node={ranks}", script="resumed.py", worker="3")
            if steps is not None:
                eventually(lambda: len(job.lines(0)) >= seen + ranks * steps, seconds=90)  # noqa: B023
                agent.terminate()
            assert (agent.wait(120) == 0) is (steps is None)
            state = json.loads(Path(f"{job.report}.state").read_text())
            upto = (state["epoch"], state["position"])
            assert steps is None or 0 < state["position"] < RESUMED
            by_step: dict[tuple[int, int], dict[int, Line]] = defaultdict(dict)
            for line in job.lines(0)[seen:]:
                by_step[line["epoch"], line["position"]][line["rank"]] = line
            assert len({len(line["samples"]) for step in by_step.values() for line in step.values()}) > 4
            for at, step in by_step.items():
                if steps is None or at <= upto:  # what is behind the checkpoint is trained on again
                    assert at not in trained
                    assert len(step) == ranks
                    trained[at] = [sample for rank in range(ranks) for sample in step[rank]["samples"]]
            seen = len(job.lines(0))
    whole = BalancedBatchSampler(range(RESUMED), 24, seed=5)
    for epoch in range(3):
        whole.set_epoch(epoch)
        mine = [samples for at, samples in sorted(trained.items()) if at[0] == epoch]
        assert mine == list(whole)


def test_an_agent_that_leaves_and_comes_back_is_balanced_again_within_ten_steps(new_job: Callable[..., Job]) -> None:
    job = new_job()
    options = ("--nnodes=1:2", f"--rdzv-endpoint=localhost:{free_port()}", "--rdzv-id=left", "--local-addr=localhost")
    options += ("--rdzv-conf=last_call_timeout=3,keep_alive_interval=2,keep_alive_max_attempt=3", "--max-restarts=5")
    first = job.start(*options, script="elastic.py", worker=f"{SAMPLES} 1 0")
    eventually(lambda: job.lines(0))
    second = job.start(*options, script="elastic.py", worker=f"{SAMPLES} {SLOW} 1")
    eventually(lambda: sum(line["world"] == 2 for line in job.lines(0)) >= 2 * 60, seconds=90)
    second.terminate()
    second.wait(40)
    seen = len(job.lines(0))
    eventually(lambda: any(line["world"] == 1 for line in job.lines(0)[seen:]), seconds=90)
    third = job.start(*options, script="elastic.py", worker=f"{SAMPLES} {SLOW} 1")
    assert [first.wait(120), third.wait(120)] == [0, 0]
    attempts = worlds(job.lines(0))
    together = [attempt for attempt in attempts if attempt[0][0]["world"] == 2]
    assert len(together) == 2
    assert balanced(together[0][-1])
    assert any(balanced(step) for step in together[1][:10])
    assert balanced(together[1][-1])
    exactly_once(attempts)
