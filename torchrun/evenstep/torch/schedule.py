"""Which batch sizes hold at which step, the same on all ranks.

Pure bookkeeping, without torch or time. Steps count from 0. A rank draws the batch of a step before it trains on it, by
the loader's look-ahead; `consumed` steps are trained on, `drawn` steps are handed out.

At the end of step s the ranks exchange one row each. An allocation that travels in that exchange holds from step
s + depth + 1, where depth is the largest look-ahead in any row so far. All ranks see the same rows, so they switch at
the same step, provided that none draws that step before it has seen the exchange. Two rules give this:

- before drawing step k, a rank waits for every exchange that it has issued at a step s <= k - depth - 1;
- a rank that draws further ahead than depth says so in its next row. Exchanges that it has not issued yet cannot
  complete without that row, and with it their allocations hold from beyond what the rank has drawn.

So no rank waits for an exchange that depends on its own progress, and the loader's prefetch need not be known. Batches
may be drawn on another thread than the one that trains: a row is made and its exchange noted in one piece.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Learned:
    """What one exchange brought: the largest look-ahead in its rows, and an allocation if one was complete."""

    depth: int
    sizes: tuple[int, ...] | None = None


class Schedule:
    """The allocations of a job by step, as one rank knows them."""

    # One step of slack: an exchange has the whole next step to complete in the background.
    _SLACK = 1

    def __init__(self, sizes: Sequence[int]) -> None:
        """Start with `sizes` in force, one per rank."""
        self.consumed = 0
        self.drawn = 0
        self.look_ahead = 0
        self._depth = 0
        self._allocations: deque[tuple[int, tuple[int, ...]]] = deque([(0, tuple(sizes))])
        self._issued: deque[tuple[int, Callable[[], Learned]]] = deque()
        self._lock = threading.RLock()

    def start(self, sizes: Sequence[int]) -> None:
        """Start with `sizes` instead; nothing is drawn yet."""
        assert self.drawn == 0
        self._allocations = deque([(0, tuple(sizes))])

    @property
    def depth(self) -> int:
        """What this rank's next row says of its look-ahead, slack included."""
        return self.look_ahead + self._SLACK

    def draw(self) -> tuple[int, tuple[int, ...]]:
        """Hand out the next step with its batch sizes, waiting for those exchanges that may change them."""
        with self._lock:
            step = self.drawn
            while self._issued and self._issued[0][0] <= step - self._depth - 1:
                at, wait = self._issued.popleft()
                self._learn(at, wait())
            self.drawn += 1
            self.look_ahead = max(self.look_ahead, step - self.consumed)
            return step, self.sizes(step)

    def issue(self, send: Callable[[int], Callable[[], Learned]]) -> None:
        """Have `send` issue the exchange of the step being trained on, whose row says the depth that it gets.

        What it returns blocks until the exchange is complete.
        """
        with self._lock:
            self._issued.append((self.consumed, send(self.depth)))

    def consume(self) -> None:
        """Count the step being trained on as done."""
        with self._lock:
            self.consumed += 1
            while len(self._allocations) > 1 and self._allocations[1][0] <= self.consumed:
                self._allocations.popleft()

    def abandon(self, keep: int) -> None:
        """Take back the steps that were drawn and will not be trained on, all but the first `keep`."""
        with self._lock:
            self.drawn = self.consumed + keep

    def sizes(self, step: int) -> tuple[int, ...]:
        """Give the batch sizes of a step that is not consumed yet."""
        with self._lock:
            return next(sizes for start, sizes in reversed(self._allocations) if start <= step)

    def _learn(self, at: int, learned: Learned) -> None:
        self._depth = max(self._depth, learned.depth)
        if learned.sizes is not None:
            self._allocations.append((at + self._depth + 1, learned.sizes))
