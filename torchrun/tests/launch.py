"""Real torchrun, bounded in time, that leaves no process behind."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

RANKS = Path(__file__).parent / "ranks"


def start(script: str, *args: str, workers: int = 2, flags: tuple[str, ...] = (), **env: str) -> subprocess.Popen[str]:
    """Start torchrun on a script of tests/ranks, by default on the stock rendezvous, in a process group of its own."""
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={workers}"]
    command += flags or ("--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0")
    return subprocess.Popen(
        [*command, str(RANKS / script), *args],
        env={**os.environ, "OMP_NUM_THREADS": "1", **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(torchrun: subprocess.Popen[str], seconds: float = 120) -> tuple[str, str]:
    """Wait for torchrun's success; give (stdout, stderr). On failure or past `seconds`, kill all of it and raise."""
    try:
        out, err = torchrun.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(torchrun.pid, signal.SIGKILL)
        out, err = torchrun.communicate()
        raise AssertionError(f"torchrun did not end within {seconds} s\n{out}\n{err}") from None
    assert torchrun.returncode == 0, f"torchrun exited {torchrun.returncode}\n{out}\n{err}"
    return out, err


def run(script: str, *args: str, workers: int = 2, flags: tuple[str, ...] = (), **env: str) -> tuple[str, str]:
    """Start and finish."""
    return finish(start(script, *args, workers=workers, flags=flags, **env))


def records(out: str) -> list[dict[str, Any]]:
    """Give the JSON objects that the ranks printed, one a line."""
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]
