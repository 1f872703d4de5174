"""Time inside Evenstep's calls on the training thread, as a share of the step. Target: below 1 % (reach 0.5 %).

Counted are the hooks around forward and backward and the draw of a batch with its wait for exchanges; the weighted
identity's multiplication is part of the model's own backward. Run by `make bench`; prints one line a rank: by the
clock, which also runs while something else has the core, and by the CPU time of the thread.
"""

import functools
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import evenstep.torch as evenstep
from evenstep.torch.loop import Loop
from evenstep.torch.schedule import Schedule

STEPS, SETTLED, ROWS, WIDTH, LAYERS = 330, 30, 128, 640, 24
CLOCKS = (time.perf_counter, time.thread_time)

inside = [0.0, 0.0]  # seconds of this step, by each clock


def now() -> list[float]:
    return [clock() for clock in CLOCKS]


def timed(owner: type, name: str) -> None:
    """Replace a method by one that adds its time to `inside`."""
    method: Callable[..., Any] = getattr(owner, name)

    @functools.wraps(method)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        global inside
        begun = now()
        try:
            return method(*args, **kwargs)
        finally:
            inside = [so_far + end - start for so_far, end, start in zip(inside, now(), begun, strict=True)]

    setattr(owner, name, wrapper)


def p99(values: Sequence[float]) -> float:
    return sorted(values)[int(0.99 * len(values))]


def rank() -> None:
    global inside
    for owner, name in (
        (Loop, "_before_forward"),
        (Loop, "_before_inner_forward"),
        (Loop, "_after_forward"),
        (Loop, "_last_gradient"),
        (Loop, "_end_backward"),
        (Schedule, "draw"),
    ):
        timed(owner, name)
    dist.init_process_group("gloo")
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[dist.get_rank() % len(cores)]})
    torch.set_num_threads(1)
    data = TensorDataset(torch.randn(2 * ROWS * STEPS, WIDTH))
    sampler = evenstep.BalancedBatchSampler(data, 2 * ROWS)
    net = nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(LAYERS)))
    model = evenstep.balance(DistributedDataParallel(net), sampler)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    shares: list[list[float]] = []  # of a step, by each clock
    steps = []
    begun = time.perf_counter()
    for (x,) in DataLoader(data, batch_sampler=sampler, num_workers=1):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        end = time.perf_counter()
        steps.append(end - begun)
        shares.append([seconds / steps[-1] for seconds in inside])
        begun, inside = end, [0.0, 0.0]
    found = [f"{statistics.median(of):.2%} (p99 {p99(of):.2%})" for of in zip(*shares[SETTLED:], strict=True)]
    print(
        f"rank {dist.get_rank()}: of a step of {statistics.median(steps[SETTLED:]) * 1e3:.0f} ms {found[0]}, "
        f"in CPU time {found[1]}; target 1 %, reach 0.5 %",
        flush=True,
    )
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:
        rank()
    else:
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--rdzv-backend=evenstep"]
        subprocess.run([*torchrun, __file__], check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
