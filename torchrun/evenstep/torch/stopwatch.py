"""How long a rank computed in a step, free of the time it waited for others.

Compute time goes from the release of the last barrier (its all-reduce complete) to the last local gradient: optimizer,
input, copies, forward, backward. Taken out is what may wait for others in between: DistributedDataParallel's work
before the module inside it begins (buffer broadcast, bucket rebuild), FSDP's collectives around each of its modules,
and a stretch of the script's own, between forward and backward or between steps, in which it communicates: nobody knows
how much of that is waiting. The host's clock is right where the host computes; on CUDA events on the current stream
are, which are read once they are complete and never waited for.
"""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias, cast

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


Span: TypeAlias = tuple[object, object]


@dataclass
class _Stretch:
    """What the script does between the model's forward and backward, or between steps."""

    begun: object
    collectives: int  # issued before it, or inside it while the stopwatch was paused
    waits: int  # of the step before it
    blocked: float


class Stopwatch:
    """Measures a step from the release of the barrier before it to its last local gradient, less the waits between."""

    # A device that falls further behind than this many steps loses measurements, not memory.
    _PENDING = 256

    def __init__(self, clock: Clock, collectives: Callable[[], int] = lambda: 0) -> None:
        """Start before the first step, whose beginning is not known; `collectives` counts those issued so far."""
        self._clock = clock
        self._collectives = collectives
        self._stretch: _Stretch | None = None
        self._paused_at = 0  # collectives
        self._released: object | None = None  # when the step at hand began
        self._paused: object | None = None
        self._waits: list[Span] = []
        self._ended: object | None = None
        self._blocked = 0.0
        self._spoilt = False
        self._reducing: object | None = None  # since the last gradient of the step that was finished
        self._reductions: deque[Span] = deque(maxlen=self._PENDING)
        self._pending: deque[tuple[float, float, Span, list[Span]]] = deque(maxlen=self._PENDING)

    def blocked(self, seconds: float) -> None:
        """Take out host seconds that were spent waiting for other ranks in this step.

        On CUDA too: while the host waits before the forward, the device is idle between two events.
        """
        self._blocked += seconds

    def pause(self) -> None:
        """Mark that what comes now may wait for other ranks."""
        if self._released is not None and self._paused is None:
            self._paused = self._clock.mark()
            self._paused_at = self._collectives()

    def resume(self) -> None:
        """Mark that it is over."""
        if self._paused is not None:
            self._waits.append((self._paused, self._clock.mark()))
            self._paused = None
            if self._stretch is not None:
                self._stretch.collectives += self._collectives() - self._paused_at

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Leave out what is inside, which may wait for other ranks."""
        self.pause()
        try:
            yield
        finally:
            self.resume()

    @contextlib.contextmanager
    def blocking(self) -> Iterator[None]:
        """Take out the host's time inside, which is spent waiting for other ranks; see `blocked`."""
        begun = time.perf_counter()
        yield
        self.blocked(time.perf_counter() - begun)

    def begin_stretch(self) -> None:
        """Mark that what comes now is the script's own, and may communicate or not."""
        self._stretch = _Stretch(self._clock.mark(), self._collectives(), len(self._waits), self._blocked)

    def end_stretch(self) -> None:
        """Mark that it is over, and take it out where it communicated."""
        stretch, self._stretch = self._stretch, None
        if stretch is not None and self._collectives() != stretch.collectives:
            self._waits[stretch.waits :] = [(stretch.begun, self._clock.mark())]
            self._blocked = stretch.blocked

    def last_gradient(self) -> None:
        """Mark the end of the step's compute: gradients are there. Of several calls in a step the last counts."""
        self._ended = self._clock.mark()

    def spoil(self) -> None:
        """Leave the step at hand out: it did what others do not, such as to compile."""
        self._spoilt = True

    def finish(self, samples: float) -> None:
        """Note the step at hand, over `samples` samples."""
        self._paused = None
        reduction = self._waits.pop() if self._waits and self._waits[-1][0] is self._ended else None
        if self._released is not None and self._ended is not None and not self._spoilt:
            self._pending.append((samples, self._blocked, (self._released, self._ended), self._waits))
        self._released = self._reducing = None
        if reduction is not None:  # the backward is long over
            self._released = reduction[1]
            self._reductions.append(reduction)
        else:
            self._reducing = self._ended
        self._waits, self._ended, self._blocked, self._spoilt = [], None, 0.0, False
        if self._stretch is not None:
            self._stretch.waits, self._stretch.blocked = 0, 0.0

    def released(self) -> None:
        """Mark the release of the barrier: the backward is over, gradients reduced."""
        mark = self._clock.mark()
        if self._reducing is not None:
            self._reductions.append((self._reducing, mark))
            self._reducing = None
        if self._ended is not None:  # of a step that goes on
            self._waits.append((self._ended, mark))
        else:
            self._released = mark
        self.begin_stretch()

    def read_wait(self) -> float:
        """Give the seconds from last gradient to release, the mean over the steps since the last reading; or 0."""
        total, count = 0.0, 0
        while self._reductions and (seconds := self._clock.seconds(*self._reductions[0])) is not None:
            self._reductions.popleft()
            total, count = total + seconds, count + 1
        return total / count if count else 0.0

    def read(self) -> tuple[float, float]:
        """Give (samples, compute seconds), each the mean over the steps measured since the last reading; or (0, 0)."""
        samples = seconds = 0.0
        count = 0
        while self._pending:
            n, blocked, span, waits = self._pending[0]
            whole = self._clock.seconds(*span)  # the waits lie in it
            if whole is None:
                break
            self._pending.popleft()
            samples, count = samples + n, count + 1
            waited = sum(self._clock.seconds(*wait) or 0.0 for wait in waits)
            seconds += max(0.0, whole - waited - blocked)
        return (samples / count, seconds / count) if count else (0.0, 0.0)
