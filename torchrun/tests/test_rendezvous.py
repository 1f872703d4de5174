"""Real torchrun, real workers, the real core."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from job import Job, connects, free_port
from launch import eventually


def test_the_flag_alone_gives_each_job_its_core(new_job: Callable[..., Job]) -> None:
    jobs = [new_job(), new_job()]
    agents = [
        jobs[0].start("--nproc-per-node=2"),
        jobs[1].start("--rdzv-conf=policy=equal,workload=resnet50/fp16,read_timeout=50"),
    ]
    assert [agent.wait(40) for agent in agents] == [0, 0]
    (first, peer), (second,) = jobs[0].lines(2), jobs[1].lines(1)
    shared = ("EVENSTEP_JOB", "EVENSTEP_ADDR", "EVENSTEP_AGENT_PID")
    assert [first[name] for name in shared] == [peer[name] for name in shared]
    assert all(first[name] != second[name] for name in (*shared, "TORCHELASTIC_RUN_ID", "MASTER_PORT"))
    for one, agent in ((first, agents[0]), (second, agents[1])):
        assert one["SOCKET_THERE"]
        assert one["EVENSTEP_AGENT_PID"] == str(agent.pid)
        assert one["EVENSTEP_JOB"].startswith(one["TORCHELASTIC_RUN_ID"])
        assert one["MASTER_ADDR"] == "localhost"
        assert one["GRPC_ENABLE_FORK_SUPPORT"] == "0"
    assert "EVENSTEP_POLICY" not in first
    assert "EVENSTEP_WORKLOAD" not in first
    assert (second["EVENSTEP_POLICY"], second["EVENSTEP_WORKLOAD"]) == ("equal", "resnet50/fp16")
    for one_job in jobs:
        assert one_job.said() == []
        assert one_job.processes() == []
        assert list(one_job.runtime.iterdir()) == []


def test_a_shared_core_is_handed_on(new_job: Callable[..., Job]) -> None:
    job = new_job(EVENSTEP_ADDR="unix:/run/evenstep/core.sock", EVENSTEP_JOB="slurm-7")
    assert job.start().wait(40) == 0
    assert job.lines(1)[0]["EVENSTEP_JOB"].startswith("slurm-7/1-")
    assert job.lines(1)[0]["EVENSTEP_ADDR"] == "unix:/run/evenstep/core.sock"
    assert not job.lines(1)[0]["SOCKET_THERE"]


@pytest.mark.parametrize(
    ("option", "line"),
    [
        (
            "--nnodes=1:2",
            "evenstep: --rdzv-endpoint is empty, and several nodes must share one; on every node: torchrun --nnodes=1:2"
            " --rdzv-backend=evenstep --rdzv-endpoint=HOST:PORT --rdzv-id=ID ...",
        ),
        (
            "--rdzv-conf=policy=Fast",
            "evenstep: policy in --rdzv-conf: 'Fast' is not valid; give one of auto, equal, lbbsp-cpu,"
            " lbbsp-gpu-analytic, lbbsp-gpu-tuning, observe, or the name of a policy plugin",
        ),
    ],
)
def test_a_bad_request_is_one_line(job: Job, option: str, line: str) -> None:
    assert job.start(option).wait(40) == 2
    assert job.said() == [line]
    assert "Traceback" not in job.errors.read_text()


def test_a_worker_that_dies_comes_back_as_another_attempt(job: Job) -> None:
    agent = job.start("--nproc-per-node=2", "--max-restarts=2", worker="reduce stay")
    before = job.lines(2)
    os.kill(before[1]["PID"], signal.SIGKILL)
    after = job.lines(4)[2:]
    job.finish()
    assert agent.wait(40) == 0
    assert [line["SUM"] for line in (*before, *after)] == [2, 2, 2, 2]
    assert len({line["EVENSTEP_JOB"] for line in before}) == 1
    assert len({line["EVENSTEP_JOB"] for line in after}) == 1
    assert before[0]["EVENSTEP_JOB"] != after[0]["EVENSTEP_JOB"]
    assert len({line["EVENSTEP_ADDR"] for line in (*before, *after)}) == 1


def test_the_core_moves_with_group_rank_0(job: Job) -> None:
    meeting = (
        "--nnodes=1:2",
        f"--rdzv-endpoint=localhost:{free_port()}",
        "--rdzv-id=a job",
        "--rdzv-conf=last_call_timeout=1,keep_alive_interval=1",
        "--max-restarts=2",
    )
    first = job.start(*meeting, "--local-addr=localhost", worker="reduce stay")
    (alone,) = job.lines(1)
    (first_core,) = job.cores()
    # torch ranks agents by address, and this one sorts first.
    second = job.start(*meeting, "--local-addr=127.0.0.1", worker="reduce stay")
    together = job.lines(3)[1:]
    assert [line["SUM"] for line in (alone, *together)] == [1, 2, 2]
    owner = next(line for line in together if line["GROUP_RANK"] == "0")
    assert owner["EVENSTEP_AGENT_PID"] == str(second.pid)
    assert len({line["EVENSTEP_ADDR"] for line in together}) == 1
    assert len({line["EVENSTEP_JOB"] for line in together}) == 1
    assert connects(owner["EVENSTEP_ADDR"])
    assert len(job.cores()) == 1
    assert first_core not in job.cores()
    assert len(list(job.runtime.iterdir())) == 3  # of the core, and of the node's agent that each torchrun started

    second.terminate()
    assert second.wait(40) != 0
    # A real worker would fail in its next collective.
    os.kill(next(line["PID"] for line in together if line is not owner), signal.SIGKILL)
    survivor = job.lines(4)[3]
    assert survivor["SUM"] == 1
    assert survivor["EVENSTEP_AGENT_PID"] == str(first.pid)
    assert connects(survivor["EVENSTEP_ADDR"])
    jobs = {line["EVENSTEP_JOB"] for line in (alone, owner, survivor)}
    assert len(jobs) == 3
    assert all(name.startswith("a_job/") for name in jobs)
    job.finish()
    assert first.wait(40) == 0
    assert job.processes() == []


def test_workers_are_numbered_as_the_plan_lists_their_nodes(job: Job) -> None:
    meeting = ("--nnodes=2", "--nproc-per-node=2", f"--rdzv-endpoint=localhost:{free_port()}", "--rdzv-id=planned")
    # torch ranks agents by address; the one that sorts first, and joins first, is the plan's second.
    job.environment["EVENSTEP_NODE_RANK"] = "10"
    second = job.start(*meeting, "--local-addr=127.0.0.1", worker="reduce stay")
    eventually(lambda: len(job.processes()) > 0)
    job.environment["EVENSTEP_NODE_RANK"] = "9"
    first = job.start(*meeting, "--local-addr=localhost", worker="reduce stay")
    lines = sorted(job.lines(4), key=lambda line: int(line["RANK"]))
    assert [line["EVENSTEP_AGENT_PID"] for line in lines] == [str(first.pid)] * 2 + [str(second.pid)] * 2
    assert [line["RANK"] for line in lines] == ["0", "1", "2", "3"]
    assert [line["SUM"] for line in lines] == [4] * 4
    # The workers meet where rank 0 is, and so is the core, to which it alone speaks.
    assert {line["MASTER_ADDR"] for line in lines} == {"localhost"}
    (core,) = job.cores()
    assert f"PPid:\t{first.pid}\n" in Path(f"/proc/{core}/status").read_text()
    job.finish()
    assert [first.wait(40), second.wait(40)] == [0, 0]


def test_a_core_that_dies_is_back_at_its_address(job: Job) -> None:
    agent = job.start(worker="stay")
    address = job.lines(1)[0]["EVENSTEP_ADDR"]
    (core,) = job.cores()
    os.kill(core, signal.SIGKILL)
    eventually(lambda: job.cores() not in ([], [core]) and connects(address))
    job.finish()
    assert agent.wait(40) == 0
    assert job.said() == ["evenstep: the core died (signal 9); starting it again"]


@pytest.mark.parametrize("group", [False, True], ids=["alone", "group"])
@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_nothing_outlives_torchrun(job: Job, sign: signal.Signals, group: bool) -> None:
    agent = job.start("--nproc-per-node=2", worker="stay")
    job.lines(2)
    assert len(job.processes()) == 5  # torchrun, two workers, core and agent
    if group:
        os.killpg(agent.pid, sign)  # as a terminal or a container does
    else:
        agent.send_signal(sign)
    assert agent.wait(40) != 0
    eventually(lambda: job.processes() == [] and not list(job.runtime.iterdir()), seconds=10)
    assert job.said() == []


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (None, "EVENSTEP_BINARY: {binary} is not an executable file"),
        ("exit 1", "{binary} did not listen within 5 s (exit status 1)"),
        ("exec sleep 60", "{binary} did not listen within 5 s (signal 9)"),
    ],
)
def test_training_goes_on_without_a_core(
    new_job: Callable[..., Job], tmp_path: Path, script: str | None, reason: str
) -> None:
    binary = tmp_path / "evenstep"
    if script:
        binary.write_text(f"#!/bin/sh\n{script}\n")
        binary.chmod(0o755)
    job = new_job(EVENSTEP_BINARY=str(binary))
    assert job.start().wait(40) == 0
    assert "EVENSTEP_ADDR" not in job.lines(1)[0]
    assert job.said() == [f"evenstep: no core, so batch sizes stay equal: {reason.format(binary=binary)}"]
    assert list(job.runtime.iterdir()) == []
