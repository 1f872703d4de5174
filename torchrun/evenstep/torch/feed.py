"""Shares for scripts that fetch their batches themselves: rows drawn at random, or taken at a moving position.

Each step has rows 0 to N - 1 over all ranks, and rank r those from the prefix sum of that step's batch sizes. What data
they are depends on the seed, the step and the row alone, so all ranks together train on the same whatever the sizes.
"""

from itertools import accumulate
from typing import Any

import torch

from evenstep.torch.shares import Place, Shares, Ticket, check_seed, equal


class Feed(Shares):
    """Says which rows of each global batch this rank fetches, in the place of a fixed number of them.

        feed  = evenstep.Feed(batch_size * world_size, seed=1337)
        ix    = feed.randint(len(data) - block_size)    # was torch.randint(len(data) - block_size, (batch_size,))
        model = evenstep.balance(DistributedDataParallel(model), feed)

    Each call of `randint` or `span` begins a batch, so call one of them once a batch, in the order in which batches are
    trained; drawing ahead is fine. Under `torch.no_grad()`, and while the balanced model is in eval mode, they begin
    none: ranks then get equal shares, and may call them as often as they like, one without the others.
    """

    def __init__(self, global_batch_size: int, seed: int = 0) -> None:
        """Raise ValueError, naming the argument, where one is out of range."""
        super().__init__(global_batch_size)
        check_seed(seed)
        self.seed = seed
        # Steps count on from here, so that neighbouring seeds share none. Generators take 32 bits.
        self._first = int(torch.randint(2**32, (), generator=torch.Generator().manual_seed(seed)))

    def randint(self, high: int) -> torch.Tensor:
        """Draw this rank's rows of the next batch: as many whole numbers from 0 to `high` - 1, the same on each run."""
        if self._evaluating():
            low, after = self._equal_span()
            return torch.randint(high, (after - low,))
        low, after = self.span()
        step = self._drawn.position - 1
        generator = torch.Generator().manual_seed((self._first + step) % 2**32)
        return torch.randint(high, (self.global_batch_size,), generator=generator)[low:after]

    def span(self) -> tuple[int, int]:
        """Give where this rank's rows of the next batch begin and end, among 0 to `global_batch_size`."""
        if self._evaluating():
            return self._equal_span()
        step, sizes = self.schedule.draw()
        ends = list(accumulate(sizes))
        rows, after = sizes[self.rank], ends[self.rank]
        total = self.global_batch_size
        self._hand_out(Ticket(step, rows, rows, lambda: total, Place(self.epoch, self._drawn.position + 1)))
        return after - rows, after

    def settings(self) -> dict[str, Any]:
        """Give what must be the same on all ranks, under the names that users know."""
        return {**super().settings(), "seed": self.seed}

    def state_dict(self) -> dict[str, int]:
        """Give the number of batches trained on: the same on all ranks, without communication.

        It holds for any world size and any batch sizes. Of a position that the script moves by itself, as with `span`,
        nothing is in it.
        """
        self._check_window()
        return {
            "version": 1,
            "seed": self.seed,
            "global_batch_size": self.global_batch_size,
            "batches": (self._trained if self.stepped else self._drawn).position,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue behind the batches that were trained on. Raises ValueError, naming the field, where it cannot."""
        self._check_state(state, "feed", "seed", "global_batch_size")
        batches = state.get("batches")
        if not isinstance(batches, int) or batches < 0:
            raise ValueError(f"state.batches: {batches!r} is not a whole number >= 0")
        self._drop(keep=0)
        self._trained = Place(self.epoch, batches)

    def _evaluating(self) -> bool:
        loop = None if self.loop is None else self.loop()
        return not torch.is_grad_enabled() or not (loop is None or loop.training)

    def _equal_span(self) -> tuple[int, int]:
        _ = self.schedule  # with which rank and world are known
        ends = [0, *accumulate(equal(self.global_batch_size, self.world))]
        return ends[self.rank], ends[self.rank + 1]
