"""A worker ends with the torchrun agent that started it.

Without this, a torchrun that is killed with -9 leaves its workers training on as orphans.
"""

import contextlib
import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def end_with_agent() -> None:
    """Ask the kernel to send SIGTERM to this process when the agent named by EVENSTEP_AGENT_PID dies.

    Does nothing where this process is not a direct child of that agent, or outside Linux.
    """
    agent = os.environ.get("EVENSTEP_AGENT_PID")
    if agent is None or agent != str(os.getppid()):
        return
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if agent != str(os.getppid()):  # it died before the kernel knew of our wish
        os.kill(os.getpid(), signal.SIGTERM)
