"""What to do where a batch does not fit into a worker's memory.

A rank that runs out of memory must not leave the others alone in an all-reduce, nor repeat one. So a batch larger than
any that is known to fit is first tried without communication. Where it fails its gradients are put back, the same
samples are trained in smaller parts. The others, who wait in their all-reduce as for any slow rank, never notice, but
for the worker's limit, which travels with the next exchange and which no later allocation exceeds.
"""

import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from evenstep.torch.parts import Parts
from evenstep.torch.shares import Shares
from evenstep.torch.stopwatch import Stopwatch

_log = logging.getLogger("evenstep")

# What torch's allocator for CPUs says; that of a device raises an OutOfMemoryError of its own.
_CPU_MESSAGES = "DefaultCPUAllocator: can't allocate memory", "DefaultCPUAllocator: not enough memory"


def is_out_of_memory(error: BaseException) -> bool:
    """Say whether an allocator of torch's found no memory."""
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or any(m in str(error) for m in _CPU_MESSAGES)


class Memory:
    """What is known of one worker's memory, in rows of a batch. It outlives the model, so it holds nothing of it."""

    def __init__(self) -> None:
        """Know nothing."""
        self.fits = 0  # the largest part that was trained
        self.limit = 0  # the largest batch size that the worker shall get; 0 is none

    def fail(self, rows: int) -> int:
        """Note that `rows` do not fit, and give how many to try next; 0 is none."""
        following = min(max(self.fits, rows // 2), rows - 1)
        self.limit = max(1, following)
        return following


class Fitting:
    """Trains batches of one model in parts that fit."""

    def __init__(
        self,
        memory: Memory,
        sampler: Shares,
        replicas: Sequence[DistributedDataParallel],
        parameters: Sequence[nn.Parameter],
    ) -> None:
        """Learn into `memory`; `sampler` knows this rank."""
        self._memory = memory
        self._sampler = sampler
        self._replicas = replicas
        self._parameters = parameters

    def train(
        self, train: Callable[..., Any], batch: Sequence[torch.Tensor], parts: Parts, stopwatch: Stopwatch
    ) -> bool:
        """Train a batch in parts that fit; False where the last of them was without the step's all-reduce."""
        rows, done, reduced = len(batch[0]), 0, True
        part = min(rows, self._memory.limit or rows)
        while done < rows:
            piece = [tensor[done : done + part] for tensor in batch]
            last = done + part >= rows
            if last and len(piece[0]) <= self._memory.fits:
                self.train_whole(train, piece)
                reduced = True
            elif self._try(train, piece, parts, stopwatch):
                reduced = False
            else:
                part = self._memory.fail(len(piece[0]))
                continue
            done += part
        return reduced

    def train_whole(self, train: Callable[..., Any], batch: Sequence[torch.Tensor]) -> None:
        """Train rows that are known to fit, or that cannot be tried. Raises RuntimeError where they do not fit."""
        try:
            train(*batch)
        except (RuntimeError, MemoryError) as error:
            if is_out_of_memory(error):
                raise RuntimeError(self._out_of_memory(len(batch[0]))) from error
            raise

    def _try(
        self, train: Callable[..., Any], batch: Sequence[torch.Tensor], parts: Parts, stopwatch: Stopwatch
    ) -> bool:
        """Train a part without communication; False where it does not fit, as if it had not been tried."""
        counted, number = parts.rows, len(batch[0])
        with contextlib.ExitStack() as stack:
            for replica in self._replicas:
                stack.enter_context(replica.no_sync())
            try:
                with put_back(self._parameters):
                    train(*batch)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                if number == 1:
                    raise RuntimeError(self._out_of_memory(1)) from error
            else:
                self._memory.fits = max(self._memory.fits, number)
                return True
        for replica in self._replicas:  # the others have passed DDP's broadcast of buffers, once
            replica.require_forward_param_sync = False
        parts.rows = counted
        stopwatch.spoil()
        _log.warning("evenstep: rank %d: %d rows do not fit into memory; trying fewer", self._sampler.rank, number)
        return False

    def _out_of_memory(self, number: int) -> str:
        what = "one row does" if number == 1 else f"{number} rows do"
        return (
            f"evenstep: rank {self._sampler.rank}: {what} not fit into memory, and no smaller part can be tried; give "
            "a smaller global batch or a smaller model"
        )


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
