"""Real torchrun on the scripts of tests/ranks, bounded in time.

`start` starts it as a user does. `run` forks it from a server that has imported torch, and torchrun forks its ranks:
importing torch takes each process longer than most of these trainings. Evenstep and the frameworks are imported anew.
"""

import atexit
import json
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

RANKS = Path(__file__).with_name("ranks")
T = TypeVar("T")

FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(["torch.distributed.run", "torch._dynamo"])  # DDP imports the latter


def start(options: Sequence[str], script: str, *args: str, **how: Any) -> subprocess.Popen[bytes]:
    """Start torchrun on a script, in a process group of its own; `how` is Popen's."""
    command = [sys.executable, "-m", "torch.distributed.run", *options, str(RANKS / script), *args]
    return subprocess.Popen(command, start_new_session=True, **how)


def run(script: str, *args: str, workers: int = 2, **env: str) -> tuple[str, str]:
    """Run a script on the stock rendezvous and give (stdout, stderr). Raises where it fails or hangs."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **env}
    with tempfile.TemporaryDirectory(prefix="evenstep-test-") as folder:
        output = [Path(folder, name) for name in ("stdout", "stderr")]
        torchrun = FORKED.Process(target=_torchrun, args=(output, environment, workers, script, *args))
        torchrun.start()
        ended = "exited"
        try:
            torchrun.join(120)
        finally:
            if torchrun.exitcode is None:
                ended = "hung, and was ended by us:"
                torchrun.terminate()  # it ends its workers, which a kill would leave behind
                torchrun.join()
        text, errors = (path.read_text() for path in output)
    assert torchrun.exitcode == 0, f"torchrun {ended} {torchrun.exitcode}\n{text}\n{errors}"
    return text, errors


def _torchrun(output: Sequence[Path], environment: Mapping[str, str], workers: int, script: str, *args: str) -> None:
    """Be torchrun, in a process group of its own."""
    from torch.distributed.launcher.api import elastic_launch
    from torch.distributed.run import config_from_args, parse_args

    os.setsid()
    for number, path in enumerate(output, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), number)
    sys.stdout.reconfigure(line_buffering=True, write_through=False)  # type: ignore[union-attr]
    os.environ.clear()
    os.environ.update(environment)
    options = (f"--nproc-per-node={workers}", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0")
    config, _, _ = config_from_args(parse_args([*options, "--start-method=fork", script]))
    elastic_launch(config, _rank)(script, *args)


def _rank(script: str, *args: str) -> None:
    """Be a rank: run the script as `python SCRIPT` does, with torch imported."""
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))  # read at the import, which is over
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)  # torchrun's own until now
    sys.argv = [str(RANKS / script), *args]
    sys.path.insert(0, str(RANKS))
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except Exception:
        traceback.print_exc()
        sys.exit(1)
    finally:
        atexit._run_exitfuncs()  # which a fork's end leaves out


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
