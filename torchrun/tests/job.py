"""A job as a user starts it, with `torchrun --rdzv-backend=evenstep`, and what is left of it."""

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from launch import eventually, start

Line = dict[str, Any]


class Job:
    """Agents of one job, started with `torchrun --rdzv-backend=evenstep`, and what their workers report."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        # Short, so that a socket's path in it is short enough; its own, so that what is left in it is ours.
        self.runtime = Path(tempfile.mkdtemp(prefix="t-", dir="/tmp"))
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("EVENSTEP_")},
            **environment,
            "XDG_RUNTIME_DIR": str(self.runtime),
            "OMP_NUM_THREADS": "1",
        }
        self.report = folder / "report"
        self.errors = folder / "stderr"
        self.agents: list[subprocess.Popen[bytes]] = []

    def start(self, *options: str, script: str = "rendezvous_worker.py", worker: str = "") -> subprocess.Popen[bytes]:
        """Start an agent; its workers run `script` of tests/ranks with the report's path and the words of `worker`."""
        options = ("--rdzv-backend=evenstep", *options)
        with self.errors.open("ab") as errors:
            agent = start(options, script, str(self.report), *worker.split(), env=self.environment, stderr=errors)
        self.agents.append(agent)
        return agent

    def finish(self) -> None:
        """Let workers that stay leave."""
        Path(f"{self.report}.done").touch()

    def lines(self, count: int) -> list[Line]:
        """Wait for that many lines of the report."""

        def read() -> list[Line] | None:
            text = self.report.read_text() if self.report.exists() else ""
            lines = [json.loads(line) for line in text.splitlines() if line.endswith("}")]
            return lines if len(lines) >= count else None

        return eventually(read)

    def said(self) -> list[str]:
        """Our own lines on the agents' stderr."""
        return [line for line in self.errors.read_text().splitlines() if line.startswith("evenstep: ")]

    def cores(self) -> list[int]:
        return self._servers(b"serve")

    def node_agents(self) -> list[int]:
        return self._servers(b"agent")

    def _servers(self, command: bytes) -> list[int]:
        lines = {pid: _read(f"/proc/{pid}/cmdline").split(b"\0") for pid in self.processes()}
        return [pid for pid, line in lines.items() if b"--private" in line and line[1] == command]

    def processes(self) -> list[int]:
        """All that runs in this job's environment: agents, workers, cores."""
        mark = f"XDG_RUNTIME_DIR={self.runtime}".encode()
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        return [pid for pid in pids if mark in _read(f"/proc/{pid}/environ").split(b"\0")]

    def end(self) -> None:
        for agent in self.agents:
            agent.kill()
            agent.wait()
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.runtime)


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def connects(address: str) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(address.removeprefix("unix:")) == 0


def free_port() -> int:
    with socket.create_server(("localhost", 0)) as listener:
        return int(listener.getsockname()[1])
