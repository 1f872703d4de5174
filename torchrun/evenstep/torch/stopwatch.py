"""How long a rank computed in a step, free of the time it waited for others.

Compute time has two spans. The first goes from the release of the last barrier (its all-reduce complete) to the
forward: optimizer, input, copies. The second goes from the forward of the module inside DistributedDataParallel to
its last local gradient. Between the two lies DDP's own blocking work (buffer broadcast, bucket rebuild), after them
the wait for the others. The host's clock is right where the host computes; on CUDA events on the current stream are,
which are read once they are complete and never waited for.
"""

import time
from collections import deque
from typing import Protocol, cast

import torch


class Clock(Protocol):
    """Marks moments of the device's work."""

    def mark(self) -> object:
        """Mark the moment at which the work issued so far is done."""

    def seconds(self, start: object, end: object) -> float | None:
        """Give the seconds between two marks; None while one of them is still to come."""


class HostClock:
    """The clock of a device whose work the host does itself, or waits for."""

    def mark(self) -> float:
        """Read the clock."""
        return time.perf_counter()

    def seconds(self, start: object, end: object) -> float | None:
        """Give the seconds between two marks."""
        return cast(float, end) - cast(float, start)


class CudaClock:
    """The clock of a CUDA device: events on the current stream."""

    def mark(self) -> torch.cuda.Event:
        """Record an event."""
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call, unused-ignore]
        event.record()
        return event

    def seconds(self, start: object, end: object) -> float | None:
        """Give the seconds between two events; None while the later one is not reached."""
        first, last = cast(torch.cuda.Event, start), cast(torch.cuda.Event, end)
        return first.elapsed_time(last) / 1000.0 if last.query() else None  # type: ignore[no-untyped-call]


class Stopwatch:
    """Adds up the spans of a step; the marks come in the order of the methods below."""

    # A device that falls further behind than this many steps loses measurements, not memory.
    _PENDING = 256

    def __init__(self, clock: Clock) -> None:
        """Start before the first step, whose time before the forward is not known."""
        self._clock = clock
        self._released: object | None = None
        self._before: tuple[object, object] | None = None
        self._started: object | None = None
        self._ended: object | None = None
        self._blocked = 0.0
        self._reducing: object | None = None  # since the last gradient of the step that is being finished
        self._waits: deque[tuple[object, object]] = deque(maxlen=self._PENDING)
        self._pending: deque[tuple[float, float, list[tuple[object, object]]]] = deque(maxlen=self._PENDING)

    def blocked(self, seconds: float) -> None:
        """Take out host seconds that were spent waiting for other ranks since the last barrier.

        On CUDA too: while the host waits before the forward, the device is idle between two events.
        """
        self._blocked += seconds

    def forward(self) -> None:
        """Mark the end of the first span: the model is called. Of several calls in a step the first counts."""
        if self._released is not None and self._before is None:
            self._before = (self._released, self._clock.mark())

    def inner_forward(self) -> None:
        """Mark the start of the second span: the module inside begins. Of several calls in a step the first counts."""
        if self._started is None:
            self._started = self._clock.mark()

    def last_gradient(self) -> None:
        """Mark the end of the second span: gradients are there. Of several calls in a step the last counts."""
        self._ended = self._clock.mark()

    def finish(self, samples: float) -> None:
        """Note the spans of a step over `samples` samples."""
        if self._before is not None and self._started is not None and self._ended is not None:
            self._pending.append((samples, self._blocked, [self._before, (self._started, self._ended)]))
        self._reducing = self._ended
        self._before = self._started = self._ended = self._released = None

    def released(self) -> None:
        """Mark the release of the barrier: the backward is over, gradients reduced."""
        self._released = self._clock.mark()
        if self._reducing is not None:
            self._waits.append((self._reducing, self._released))
        self._reducing = None
        self._blocked = 0.0

    def read_wait(self) -> float:
        """Give the seconds from last gradient to release, the mean over the steps since the last reading; or 0."""
        total, count = 0.0, 0
        while self._waits and (seconds := self._clock.seconds(*self._waits[0])) is not None:
            self._waits.popleft()
            total, count = total + seconds, count + 1
        return total / count if count else 0.0

    def read(self) -> tuple[float, float]:
        """Give (samples, compute seconds), each the mean over the steps measured since the last reading; or (0, 0)."""
        samples = seconds = 0.0
        count = 0
        while self._pending:
            n, blocked, spans = self._pending[0]
            times = [self._clock.seconds(*span) for span in spans]
            if None in times:
                break
            self._pending.popleft()
            samples, count = samples + n, count + 1
            seconds += max(0.0, sum(t for t in times if t is not None) - blocked)
        return (samples / count, seconds / count) if count else (0.0, 0.0)
