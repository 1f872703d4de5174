"""What to do where a batch does not fit into a worker's memory.

A rank that runs out of memory must not leave the others alone in an all-reduce, nor repeat one. So a batch larger than
any that is known to fit is first tried without communication. Where it fails its gradients are put back, the same
samples are trained in smaller parts. The others, who wait in their all-reduce as for any slow rank, never notice, but
for the worker's limit, which travels with the next exchange and which no later allocation exceeds.
"""

import contextlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

# What torch's allocator for CPUs says; that of a device raises an OutOfMemoryError of its own.
_CPU_MESSAGES = "DefaultCPUAllocator: can't allocate memory", "DefaultCPUAllocator: not enough memory"


def is_out_of_memory(error: BaseException) -> bool:
    """Say whether an allocator of torch's found no memory."""
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or any(m in str(error) for m in _CPU_MESSAGES)


class Memory:
    """What is known of one worker's memory, in rows of a batch."""

    def __init__(self) -> None:
        """Know nothing."""
        self.fits = 0  # the largest part that was trained
        self.limit = 0  # the largest batch size that the worker shall get; 0 is none

    def fail(self, rows: int) -> int:
        """Note that `rows` do not fit, and give how many to try next; 0 is none."""
        following = min(max(self.fits, rows // 2), rows - 1)
        self.limit = max(1, following)
        return following


@contextlib.contextmanager
def put_back(parameters: Sequence[nn.Parameter]) -> Any:
    """Gather the gradients of what is inside apart, and add them to those before once it succeeds."""
    before = [parameter.grad for parameter in parameters]
    for parameter in parameters:
        parameter.grad = None
    try:
        yield
    except BaseException:
        for parameter, old in zip(parameters, before, strict=True):
            parameter.grad = old
        raise
    for parameter, old in zip(parameters, before, strict=True):
        if old is not None:
            parameter.grad = old if parameter.grad is None else old.add_(parameter.grad)


def within(sizes: Sequence[int], limits: Sequence[int], quantum: int) -> tuple[int, ...] | None:
    """Give sizes with the same sum, none above its limit, as close to `sizes` as that; None where there are none."""
    limits = [limit // quantum * quantum for limit in limits]
    if sum(limits) < sum(sizes) or min(limits) < quantum:
        return None
    kept = [min(size, limit) for size, limit in zip(sizes, limits, strict=True)]
    left = sum(sizes) - sum(kept)
    while left > 0:
        _, at = max((limits[i] - kept[i], -i) for i in range(len(kept)))
        kept[-at] += quantum
        left -= quantum
    return tuple(kept)
