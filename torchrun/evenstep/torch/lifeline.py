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

    Sends it at once where the agent is gone already. Does nothing where it lives and is not this process's parent.
    """
    agent = os.environ.get("EVENSTEP_AGENT_PID", "")
    if not agent.isdecimal():
        return
    if int(agent) == os.getppid():
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    # Not our parent: something stands between us, or it died before the kernel knew of our wish.
    if int(agent) != os.getppid() and _is_gone(int(agent)):
        os.kill(os.getpid(), signal.SIGTERM)


def _is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass
    return False
