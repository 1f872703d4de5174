"""What a worker has at its disposal besides its device: the driving inputs of LB-BSP's predictors.

CPU available to the worker, in cores: what was idle on the cores it may run on, plus what it used itself, within its
control group's quota. Host memory available to it, in bytes: what the kernel calls available, within the group's limit.
Both from /proc and the control group (version 2); 0 where they cannot be read.
"""

import contextlib
import os
import time
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")  # of /proc/stat, a second
_PAUSE = 0.5  # seconds between two readings; a shorter time is too few ticks to tell


class DrivingInputs:
    """Reads them now and then; asked more often it repeats itself."""

    def __init__(self, proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> None:
        """Read from the kernel's files at `proc` and `groups`."""
        self._proc, self._groups = proc, groups
        self._above = self._groups_above()
        self._read_at = time.monotonic()
        self._idle, self._used = self._idle_seconds(), time.process_time()
        self._newest = (0.0, 0)

    def read(self) -> tuple[float, int]:
        """Give (cores, bytes) available, as of the last half second; 0 is not known."""
        now = time.monotonic()
        passed = now - self._read_at
        if passed >= _PAUSE:
            idle, used = self._idle_seconds(), time.process_time()
            cores = 0.0
            if idle is not None and self._idle is not None:
                cores = min((idle - self._idle + used - self._used) / passed, self._quota())
            self._newest = (max(0.0, cores), self._memory())
            self._read_at, self._idle, self._used = now, idle, used
        return self._newest

    def _idle_seconds(self) -> float | None:
        """Sum up what the cores that we may run on were idle, since the system started."""
        mine = {f"cpu{core}" for core in os.sched_getaffinity(0)}
        try:
            lines = [line.split() for line in (self._proc / "stat").read_text().splitlines()]
            return sum(int(line[4]) + int(line[5]) for line in lines if line and line[0] in mine) / _TICKS
        except (OSError, ValueError, IndexError):
            return None

    def _quota(self) -> float:
        """Give the cores that our control group and those above it grant."""
        cores = float(len(os.sched_getaffinity(0)))
        for quota, period in (text.split() for text in self._limits("cpu.max")):
            if quota != "max":
                cores = min(cores, int(quota) / int(period))
        return cores

    def _memory(self) -> int:
        try:
            lines = (self._proc / "meminfo").read_text().splitlines()
            available = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
        except (OSError, ValueError, IndexError, StopIteration):
            return 0
        for limit, used in zip(self._limits("memory.max"), self._limits("memory.current"), strict=False):
            if limit != "max":
                available = min(available, max(0, int(limit) - int(used)))
        return available

    def _limits(self, file: str) -> list[str]:
        """Give what `file` says in our control group and those above it, where it is there."""
        found = []
        for group in self._above:
            with contextlib.suppress(OSError):
                found.append((group / file).read_text().strip())
        return [text for text in found if text]

    def _groups_above(self) -> list[Path]:
        """Give our control group and those above it; the topmost is a container's own, the machine's has no limits."""
        try:
            line = next(
                line for line in (self._proc / "self/cgroup").read_text().splitlines() if line.startswith("0::")
            )
        except (OSError, StopIteration):
            return []
        group = self._groups / line.removeprefix("0::").strip().lstrip("/")
        return [group, *(above for above in group.parents if above.is_relative_to(self._groups))]
