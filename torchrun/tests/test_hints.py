"""What the node's agent says of a worker's device, and its way to the core."""

import logging
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from evenstep import agent
from evenstep.rendezvous.private_server import PrivateServer
from evenstep.torch import hints
from evenstep.torch.exchange import Exchange, Row
from evenstep.torch.hints import DeviceHints, Hints, pick
from evenstep.v1 import devices_pb2 as wire
from job import Job
from launch import eventually

STUB = Path(__file__).parents[2] / "plugin/devices/nvml/testdata/stub.c"
CAPPED = Hints(1410.0, 1980.0, ("SW power cap",))


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Build a stand-in for NVIDIA's library; its first GPU is the H200 that throttles."""
    library = tmp_path / "libnvidia-ml.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, STUB], check=True)
    monkeypatch.setenv("EVENSTEP_NVML_LIBRARY", str(library))
    return str(library)


@pytest.fixture
def server(evenstep_binary: Path, stub: str) -> Iterator[PrivateServer]:
    started = PrivateServer(evenstep_binary, "agent")
    yield started
    started.stop()


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], DeviceHints]]:
    """Begin to ask the agent for the device with a UUID."""
    begun = []

    def begin(address: str, uuid: str) -> DeviceHints:
        monkeypatch.setattr(hints, "_uuid", lambda device: uuid)
        begun.append(DeviceHints(address, torch.device("cpu")))
        return begun[-1]

    yield begin
    for one in begun:
        one.close()
        one._thread.join(5)
        assert not one._thread.is_alive()


def test_the_agent_says_how_a_device_is(server: PrivateServer, read: Callable[[str, str], DeviceHints]) -> None:
    mine, cpus, unknown = read(server.address, "h200"), read(server.address, ""), read(server.address, "other")
    eventually(lambda: mine.read() == CAPPED)
    time.sleep(1)
    assert cpus.read().clock == unknown.read().clock == 0
    assert unknown.read() == Hints()


def test_what_an_agent_that_is_gone_said_is_forgotten(
    server: PrivateServer, read: Callable[[str, str], DeviceHints]
) -> None:
    mine = read(server.address, "h200")
    eventually(lambda: mine.read() == CAPPED)
    server.stop()
    eventually(lambda: mine.read() == Hints())


def test_which_device_is_mine() -> None:
    devices = [
        wire.Device(id="gpu0", kind="gpu", uuid="GPU-a-b", sm_clock_mhz=1),
        wire.Device(id="gpu1:mig0", kind="mig", uuid="MIG-a-c", sm_clock_mhz=2),
        wire.Device(id="cpu", kind="cpu", throttle=["CPU quota"]),
    ]
    assert pick(devices, "a-b") == Hints(1.0)
    assert pick(devices, "a-c") == Hints(2.0)
    assert pick(devices, "a") == Hints()
    assert pick(devices, "") == Hints(throttle=("CPU quota",))


@pytest.mark.parametrize(
    ("throttle", "arrives"),
    [
        ((), ()),
        (("SW power cap", "HW thermal slowdown"), ("SW power cap", "HW thermal slowdown")),
        (("übertaktet",), ("übertaktet",)),
        (("x" * 90, "too long for the rest"), ("x" * 90,)),
        (("x" * 200,), ()),
    ],
)
def test_hints_travel_in_a_row(throttle: tuple[str, ...], arrives: tuple[str, ...], tmp_path: Path) -> None:
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    try:
        row = Row(2, 8.0, 0.5, 1.5, 4096, hints=Hints(1410.0, 1980.0, throttle))
        exchange = Exchange(dist.group.WORLD, row, 1, [3, 5])  # type: ignore[arg-type]
        assert exchange.rows() == [Row(2, 8.0, 0.5, 1.5, 4096, hints=Hints(1410.0, 1980.0, arrives))]
        assert exchange.part()[1][:2] == [3, 5]
    finally:
        dist.destroy_process_group()


def test_an_agent_is_looked_for(tmp_path: Path, evenstep_binary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert agent.find() is None
    command = [evenstep_binary, "agent"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == f"listening unix:{tmp_path}/evenstep/agent.sock\n"
        assert agent.find() == f"unix:{tmp_path}/evenstep/agent.sock"
        running.terminate()
    assert agent.find() is None


def test_the_core_says_why_a_rank_is_slow(new_job: Callable[..., Job], stub: str) -> None:
    """Under real torchrun: its agent, the plugin, the workers' reports, the core's reason."""
    job = new_job(EVENSTEP_NVML_LIBRARY=stub)
    run = job.start("--nproc-per-node=2", script="hinted.py", worker="300")
    job.lines(20)
    assert len(job.node_agents()) == 1
    assert run.wait(120) == 0
    said = job.errors.read_text()
    assert re.search(r"rank 0 is \d\d % slower: SW power cap, 1,410 of 1,980 MHz", said), said
    assert job.processes() == []
    assert list(job.runtime.iterdir()) == []


def test_an_agent_that_dies_costs_no_step(new_job: Callable[..., Job], stub: str) -> None:
    job = new_job(EVENSTEP_NVML_LIBRARY=stub)
    run = job.start("--nproc-per-node=2", script="hinted.py", worker="160")
    job.lines(20)
    subprocess.run(["kill", "-9", *map(str, job.node_agents())], check=True)
    assert run.wait(120) == 0
    assert len(job.lines(320)) == 320
    assert "evenstep: the agent died (signal 9); starting it again" in job.said()


def test_without_an_agent_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, evenstep_binary: Path
) -> None:
    from torch.distributed.elastic.rendezvous import RendezvousParameters

    from evenstep.rendezvous import get_creator

    broken = tmp_path / "evenstep"
    broken.write_text(f'#!/bin/sh\ntest "$1" = agent && exit 1\nexec {evenstep_binary} "$@"\n')
    broken.chmod(0o755)
    monkeypatch.setenv("EVENSTEP_BINARY", str(broken))
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "")
    handler = get_creator()(RendezvousParameters("evenstep", "", "none", 1, 1))
    with caplog.at_level(logging.WARNING):
        handler.next_rendezvous()
    assert handler.shutdown()
    (line,) = [message for message in caplog.messages if message.startswith("evenstep: ")]
    assert line.startswith("evenstep: no agent, so the core will not know of devices: ")
