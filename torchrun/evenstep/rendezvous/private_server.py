"""A private server: an `evenstep serve` or `agent` that belongs to one torchrun and ends with it, however that ends.

It reads its standard input, whose other end only torchrun holds: when that is gone, even by kill -9, the server meets
the end of its input, removes its socket and folder, and exits.
"""

import atexit
import contextlib
import logging
import os
import select
import shutil
import subprocess
import tempfile
import threading
import time
from pathlib import Path

_log = logging.getLogger(__name__)

_START_SECONDS = 5.0
_STOP_SECONDS = 3.0
# One that dies within this time of its start will hardly do better the next time.
_QUICK_SECONDS = 10.0
_MAX_QUICK_DEATHS = 5
# What the kernel has room for, in bytes.
_MAX_SOCKET_PATH = 107
# By command: what it is, and what its loss means.
_NAMES = {"serve": ("core", "batch sizes stay as they are"), "agent": ("agent", "the core will not know of devices")}


class PrivateServer:
    """A running server. One that dies is started again at the same address, so workers only have to reconnect."""

    address: str
    """Where it listens, as `unix:PATH`."""

    _process: subprocess.Popen[bytes] | None = None

    def __init__(self, binary: Path, command: str, plugin_dir: str | None = None) -> None:
        """Start `evenstep serve` or `agent` and wait until it listens; `OSError` says in one line why it does not."""
        self._what, self._loss = _NAMES[command]
        self._folder = _make_folder()
        self.address = f"unix:{self._folder}/{self._what}.sock"
        self._command = [str(binary), command, "--private", "--listen", self.address]
        if plugin_dir is not None:
            self._command += ["--plugin-dir", plugin_dir]
        self._stopping = threading.Event()
        # Held while a process is made, so that stop() sees either none or one that it can end.
        self._spawning = threading.Lock()
        self._watcher = threading.Thread(target=self._watch, name=f"evenstep-{self._what}", daemon=True)
        # torchrun does not shut its rendezvous down when a signal ends it.
        atexit.register(self.stop)
        try:
            self._launch()
        except BaseException:
            self.stop()
            raise
        self._watcher.start()

    @property
    def reachable(self) -> bool:
        """Whether workers can still expect to find it at its address."""
        # A runtime folder may be gone although we live: it goes when its user logs out.
        return self._watcher.is_alive() and os.path.isdir(self._folder)

    def stop(self) -> None:
        """End it and remove its folder. Harmless when done before."""
        atexit.unregister(self.stop)
        self._stopping.set()
        with self._spawning:
            process = self._process
        if process is not None:
            _end(process, _STOP_SECONDS)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _launch(self) -> None:
        with self._spawning:
            if self._stopping.is_set():
                return
            # Both pipes are close-on-exec: no worker inherits the end that keeps the core alive.
            # A session of its own: a signal to torchrun's whole group leaves it the time to remove its folder.
            # What it makes in TMPDIR for its plugins goes with its folder, however it ends.
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
                env={**os.environ, "TMPDIR": self._folder},
            )
        if not _listens(self._process):
            _end(self._process, patience=0.5)
            ending = _ending(self._process.returncode)
            raise ChildProcessError(f"{self._command[0]} did not listen within {_START_SECONDS:g} s ({ending})")

    def _watch(self) -> None:
        quick_deaths = 0
        while True:
            assert self._process is not None
            began = time.monotonic()
            status = _ending(self._process.wait())
            if self._stopping.is_set():
                return
            quick_deaths = quick_deaths + 1 if time.monotonic() - began < _QUICK_SECONDS else 1
            if quick_deaths > _MAX_QUICK_DEATHS:
                _log.warning("evenstep: the %s keeps dying (%s); %s", self._what, status, self._loss)
                return
            _log.warning("evenstep: the %s died (%s); starting it again", self._what, status)
            if self._stopping.wait(0.1 * 2**quick_deaths):
                return
            try:
                self._launch()
            except OSError as error:
                if not self._stopping.is_set():
                    _log.warning("evenstep: %s", error)


def _make_folder() -> str:
    """Make a folder that only this user can enter, in a place where a socket's path stays short enough."""
    for base in (os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir(), "/tmp"):
        if (
            base
            and os.path.isabs(base)
            and len(os.fsencode(f"{base}/evenstep-12345678/agent.sock")) <= _MAX_SOCKET_PATH
        ):
            with contextlib.suppress(OSError):
                return tempfile.mkdtemp(prefix="evenstep-", dir=base)
    raise FileNotFoundError("no folder for a socket can be made in XDG_RUNTIME_DIR, TMPDIR or /tmp")


def _listens(process: subprocess.Popen[bytes]) -> bool:
    assert process.stdout is not None
    poll = select.poll()
    poll.register(process.stdout, select.POLLIN)
    if not poll.poll(_START_SECONDS * 1000):
        return False
    # Not a read of a line, which could block: the line is written at once.
    return os.read(process.stdout.fileno(), 4096).startswith(b"listening ")


def _end(process: subprocess.Popen[bytes], patience: float) -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _ending(status: int) -> str:
    return f"signal {-status}" if status < 0 else f"exit status {status}"
