"""A worker that reports what it was given: `rendezvous_worker.py REPORT [reduce] [stay]`.

`reduce` adds up ones over all workers with gloo; `stay` waits for the file REPORT.done before it leaves.
"""

import ctypes
import json
import os
import signal
import sys
import time

PR_SET_PDEATHSIG = 1


def main(report: str, *wanted: str) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(os.environ["EVENSTEP_AGENT_PID"]):
        sys.exit("the agent died before its worker was set up")
    line: dict[str, object] = dict(os.environ)
    line["PID"] = os.getpid()
    line["SOCKET_THERE"] = os.path.exists(os.environ.get("EVENSTEP_ADDR", "").removeprefix("unix:"))
    if "reduce" in wanted:
        line["SUM"] = add_ones()
    with open(report, "a") as file:
        file.write(json.dumps(line) + "\n")
    while "stay" in wanted and not os.path.exists(report + ".done"):
        time.sleep(0.05)


def add_ones() -> float:
    import torch
    import torch.distributed

    torch.distributed.init_process_group("gloo")
    ones = torch.ones(1)
    torch.distributed.all_reduce(ones)
    return ones.item()


if __name__ == "__main__":
    main(*sys.argv[1:])
