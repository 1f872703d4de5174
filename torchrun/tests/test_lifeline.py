"""A worker ends with the torchrun that started it, and with no other process that happens to have its pid."""

import os
import signal
import subprocess
import sys

import pytest

from evenstep.lifeline import pid_namespace


def ended_process() -> int:
    """Give the pid of a process that is gone."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.mark.parametrize(
    ("namespace", "status"),
    [(pid_namespace(), -signal.SIGTERM), ("pid:[of a host outside this container]", 0), (None, 0)],
)
def test_an_agent_that_is_gone_ends_its_workers_in_its_own_namespace(namespace: str | None, status: int) -> None:
    environment = {**os.environ, "EVENSTEP_AGENT_PID": str(ended_process())}
    environment.pop("EVENSTEP_PID_NAMESPACE", None)
    if namespace is not None:
        environment["EVENSTEP_PID_NAMESPACE"] = namespace
    worker = "import time, evenstep.lifeline as l; l.end_with_agent(); time.sleep(1)"
    assert subprocess.run([sys.executable, "-c", worker], env=environment, check=False).returncode == status
