"""A worker ends with the torchrun agent that started it.

Without this, a torchrun that is killed with -9 leaves its workers training on as orphans.
"""

import contextlib
import ctypes
import os
import select
import signal
import threading

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def pid_namespace() -> str:
    """Name the namespace in which this process's pids mean something; a container may have one of its own."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def end_with_agent() -> None:
    """Ask the kernel to send SIGTERM to this process when the agent named by EVENSTEP_AGENT_PID dies.

    Sends it at once where the agent is gone already. Where something stands between it and us, a thread watches it.
    Does nothing in another pid namespace, where that pid is another process's or nobody's.
    """
    agent = os.environ.get("EVENSTEP_AGENT_PID", "")
    if not agent.isdecimal() or os.environ.get("EVENSTEP_PID_NAMESPACE") != pid_namespace():
        return
    if int(agent) == os.getppid():
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    # Not our parent: something stands between us, or it died before the kernel knew of our wish.
    if int(agent) != os.getppid():
        threading.Thread(target=_follow, args=(int(agent),), name="evenstep-lifeline", daemon=True).start()


def _follow(agent: int) -> None:
    try:
        handle = os.pidfd_open(agent)
    except ProcessLookupError:
        pass
    except OSError:  # a kernel without pidfd, or no file to be had
        return
    else:
        select.select([handle], [], [])
    os.kill(os.getpid(), signal.SIGTERM)
