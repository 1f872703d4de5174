"""CPU and memory available to a worker, from files like the kernel's."""

import os
import time
from pathlib import Path

import pytest

from evenstep.torch.inputs import DrivingInputs

TICKS = os.sysconf("SC_CLK_TCK")


def kernel(folder: Path, idle_seconds: float, available_kb: int, **group: str) -> tuple[Path, Path]:
    """Write a /proc in which our cores were idle so long in all, and a control group with these files."""
    proc, groups = folder / "proc", folder / "cgroup"
    mine = groups / "slice" / "job"
    for made in (proc / "self", mine):
        made.mkdir(parents=True, exist_ok=True)
    cores = sorted(os.sched_getaffinity(0))
    ticks = int(idle_seconds * TICKS / len(cores))
    lines = [f"cpu{core} 1 1 1 {ticks} 0 0 0 0 0 0" for core in cores]
    (proc / "stat").write_text("\n".join(["cpu 9 9 9 9 9 9", *lines, "cpu999 0 0 0 99999999 0", "intr 1"]))
    (proc / "meminfo").write_text(f"MemTotal: 99 kB\nMemAvailable: {available_kb} kB\n")
    (proc / "self" / "cgroup").write_text("0::/slice/job\n")
    for name, text in group.items():
        (mine / name.replace("_", ".")).write_text(text + "\n")
    return proc, groups


def later(inputs: DrivingInputs, monkeypatch: pytest.MonkeyPatch, seconds: float) -> tuple[float, int]:
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + seconds)
    return inputs.read()


def test_idle_cores_and_available_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = DrivingInputs(*kernel(tmp_path, 100, 5000))
    assert inputs.read() == (0.0, 0), "nothing is known before half a second has passed"
    kernel(tmp_path, 105, 5000)
    cores, memory = later(inputs, monkeypatch, 10)
    assert 0.4 < cores <= len(os.sched_getaffinity(0))
    assert memory == 5000 * 1024


def test_a_control_group_grants_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"cpu_max": "20000 100000", "memory_max": "3000000", "memory_current": "1000000"}
    inputs = DrivingInputs(*kernel(tmp_path, 100, 5000, **limits))
    kernel(tmp_path, 200, 5000, **limits)
    assert later(inputs, monkeypatch, 10) == (0.2, 2_000_000)


def test_a_container_sees_its_own_group_as_the_topmost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proc, groups = kernel(tmp_path, 100, 5000)
    (proc / "self" / "cgroup").write_text("0::/\n")
    (groups / "cpu.max").write_text("20000 100000\n")
    inputs = DrivingInputs(proc, groups)
    kernel(tmp_path, 200, 5000)
    (proc / "self" / "cgroup").write_text("0::/\n")
    assert later(inputs, monkeypatch, 10) == (0.2, 5000 * 1024)


def test_no_limits_and_garbage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = DrivingInputs(*kernel(tmp_path, 100, 5000, cpu_max="max 100000", memory_max="max", memory_current="7"))
    (tmp_path / "proc" / "stat").write_text("cpu0 x")
    (tmp_path / "proc" / "meminfo").write_text("MemAvailable:")
    assert later(inputs, monkeypatch, 10) == (0.0, 0)
    assert DrivingInputs(tmp_path / "none", tmp_path / "none").read() == (0.0, 0)


def test_the_real_kernel() -> None:
    inputs = DrivingInputs()
    time.sleep(0.6)
    cores, memory = inputs.read()
    assert 0 <= cores <= len(os.sched_getaffinity(0))
    assert memory > 0
