"""Real torchrun on the scripts of tests/ranks, bounded in time."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

RANKS = Path(__file__).with_name("ranks")
T = TypeVar("T")


def start(options: Sequence[str], script: str, *args: str, **how: Any) -> subprocess.Popen[bytes]:
    """Start torchrun on a script, in a process group of its own; `how` is Popen's."""
    command = [sys.executable, "-m", "torch.distributed.run", *options, str(RANKS / script), *args]
    return subprocess.Popen(command, start_new_session=True, **how)


def run(script: str, *args: str, workers: int = 2, **env: str) -> tuple[str, str]:
    """Run a script on the stock rendezvous and give (stdout, stderr). Raises where it fails or hangs."""
    options = (f"--nproc-per-node={workers}", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **env}
    torchrun = start(options, script, *args, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    ended = "exited"
    try:
        out, err = torchrun.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        ended = "hung, and was ended by us:"
        torchrun.terminate()  # it ends its workers, which a kill would leave behind
        out, err = torchrun.communicate()
    text, errors = out.decode(), err.decode()
    assert torchrun.returncode == 0, f"torchrun {ended} {torchrun.returncode}\n{text}\n{errors}"
    return text, errors


def records(out: str) -> list[dict[str, Any]]:
    """Give the JSON objects that the ranks printed, one a line."""
    return [json.loads(line) for line in out.splitlines() if line.startswith('{"')]


def eventually(look: Callable[[], T | None], seconds: float = 40) -> T:
    """Return the first true answer."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        answer = look()
        if answer:
            return answer
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} s")
