"""Who gets which samples.

All ranks walk one seeded permutation of the dataset with one shared cursor: step s takes the next `global_batch_size`
samples, and rank r the slice of them at the prefix sum of that step's batch sizes. So each sample comes exactly once an
epoch whatever the sizes did, and a position in the epoch is one number, the same on all ranks.
"""

import logging
import os
import re
from collections import deque
from collections.abc import Iterator, Sequence, Sized
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import Sampler

from evenstep.torch.schedule import Schedule

_log = logging.getLogger("evenstep")


@dataclass(frozen=True)
class Ticket:
    """One drawn batch of this rank, until it is trained on."""

    step: int
    rows: int  # samples handed out on this rank
    weight: int  # samples that count: rows, or 0 where a row is repeated because there were too few for all ranks
    total: int  # sum of the weights over all ranks
    epoch: int
    position: int  # samples of the epoch up to and including this step, over all ranks


class BalancedBatchSampler(Sampler[list[int]]):
    """Yields this rank's share of each global batch, as many samples as the allocation of that step says.

    Give it to a DataLoader as `batch_sampler`. Without `balance` or without a core the shares are equal.

    `dataset` is any map-style dataset with a length. `global_batch_size` is the number of samples in a step over all
    ranks; it never changes. The order depends on `seed` and the epoch (see `set_epoch`) alone, and is that of the
    dataset where `shuffle` is False. The last batch of an epoch may be short; `drop_last` leaves it out.

    Rank and world size are those of the default process group when the first batch is drawn, else those of torchrun's
    environment (RANK, WORLD_SIZE), else one process.
    """

    def __init__(
        self,
        dataset: Sized,
        global_batch_size: int,
        *,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = False,
    ) -> None:
        """Raise TypeError or ValueError, naming the argument, where one is out of range."""
        if not hasattr(dataset, "__len__"):
            raise TypeError(f"dataset: {type(dataset).__name__} has no length; give a map-style dataset")
        if not isinstance(global_batch_size, int) or isinstance(global_batch_size, bool) or global_batch_size < 1:
            raise ValueError(f"global_batch_size: {global_batch_size!r} is not a whole number >= 1")
        if not isinstance(seed, int) or not 0 <= seed < 2**63:
            raise ValueError(f"seed: {seed!r} is not a whole number from 0 to 2**63 - 1")
        if len(dataset) < 1:
            raise ValueError("dataset: it is empty; give at least one sample")
        if drop_last and len(dataset) < global_batch_size:
            raise ValueError(
                f"drop_last: the {len(dataset)} samples of the dataset do not fill one global batch of "
                f"{global_batch_size}; give drop_last=False or a smaller global_batch_size"
            )
        self.global_batch_size = global_batch_size
        self.seed = seed
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.dataset_size = len(dataset)
        self.epoch = 0
        # Set by `balance`. Until then nothing tells when a batch is trained on, so it counts as consumed when drawn.
        self.balanced = False
        self.rank, self.world = 0, 1  # known once `schedule` is
        # For logs: (samples, compute seconds) of each rank in the newest exchange seen, (0, 0) where not measured.
        self.measured: tuple[tuple[float, float], ...] = ()
        self._position = 0  # samples of the epoch consumed, over all ranks
        self._resume_at = 0  # where the next iteration starts; not 0 only after load_state_dict
        self._loaded = False  # no iteration has begun since load_state_dict
        self._tickets: deque[Ticket] = deque()
        self._in_hand = False  # the first ticket's forward has begun
        self._iteration: object | None = None  # the one under way
        self._schedule: Schedule | None = None

    def __len__(self) -> int:
        """Give the number of steps in an epoch; it does not depend on the batch sizes."""
        full, rest = divmod(self.dataset_size, self.global_batch_size)
        return full + (rest > 0 and not self.drop_last)

    def set_epoch(self, epoch: int) -> None:
        """Choose the permutation of the next iteration; call it before each epoch, as with DistributedSampler."""
        if not isinstance(epoch, int) or not 0 <= epoch < 2**63 - self.seed:
            raise ValueError(f"epoch: {epoch!r} is not a whole number from 0 to 2**63 - 1 - seed")
        if epoch != self.epoch:
            self.epoch, self._resume_at, self._position = epoch, 0, 0
        elif self._loaded:
            self._resume_at = self._position  # nothing is left of an epoch that was finished

    def state_dict(self) -> dict[str, int | bool]:
        """Give the position up to what was trained on: the same on all ranks, without communication.

        Batches that a loader has prefetched are not in it, so a restart from it repeats and skips none. It holds for
        any world size and any batch sizes.
        """
        return {
            "version": 1,
            "seed": self.seed,
            "shuffle": self.shuffle,
            "dataset_size": self.dataset_size,
            "epoch": self.epoch,
            "position": self._position,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue at `state`: the next iteration starts behind the samples that were trained on.

        Raises ValueError, naming the field, where the state belongs to another order of samples. After a state taken
        at the end of an epoch, `set_epoch` of that epoch leaves nothing to iterate; without it the epoch starts afresh.
        """
        if state.get("version") != 1:
            raise ValueError(f"state.version: {state.get('version')!r} is unknown; this release reads version 1")
        for field in ("seed", "shuffle", "dataset_size"):
            mine = getattr(self, field)
            if state.get(field) != mine:
                raise ValueError(f"state.{field}: {state.get(field)!r} is not the sampler's {mine!r}; give the same")
        epoch, position = state.get("epoch"), state.get("position")
        if not isinstance(epoch, int) or not 0 <= epoch < 2**63 - self.seed:
            raise ValueError(f"state.epoch: {epoch!r} is not a whole number from 0 to 2**63 - 1 - seed")
        if not isinstance(position, int) or not 0 <= position <= self.dataset_size:
            raise ValueError(f"state.position: {position!r} is not a whole number from 0 to {self.dataset_size}")
        self.epoch = epoch
        self._position = position
        self._resume_at = position if position < self._end(position) else 0
        self._loaded = True

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the dataset indices of this rank's batches. One iteration at a time: a new one ends the one before.

        Raises RuntimeError where an iteration goes on that another one has ended.
        """
        # A generator: DataLoader calls iter() once more than it draws, and nothing may happen before the first draw.
        schedule = self.schedule
        order = self._order()
        self._abandon()
        self._loaded = False
        self._iteration = mine = object()
        start, end = self._resume_at, self._end(self._resume_at)
        for low in range(start, end, self.global_batch_size):
            if self._iteration is not mine:
                raise RuntimeError(
                    "evenstep: this iteration was ended by a newer one over the same sampler; to look at samples on "
                    "the side, give their loader a sampler of its own"
                )
            high = min(low + self.global_batch_size, end)
            step, sizes = schedule.draw()
            shares = split(high - low, sizes)
            first = low + sum(shares[: self.rank])
            rows = _pick(order, first, first + shares[self.rank]) or _pick(order, low, low + 1)
            self._tickets.append(Ticket(step, len(rows), shares[self.rank], high - low, self.epoch, high))
            if not self.balanced:
                self.finish()
            yield rows
        if start >= end:  # nothing was left of the epoch
            self._resume_at = 0

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """Batch sizes of the step to be trained on next, in rank order."""
        return self.schedule.sizes(self.schedule.consumed)

    @property
    def schedule(self) -> Schedule:
        """The allocations by step; made when rank and world size are first needed."""
        if self._schedule is None:
            self.rank, self.world = _rank_and_world()
            self._schedule = Schedule(_first_sizes(self.global_batch_size, self.world))
        return self._schedule

    def take(self) -> Ticket | None:
        """Give the ticket of the batch that a forward works on: the oldest drawn one. None outside an iteration."""
        if not self._tickets:
            return None
        self._in_hand = True
        return self._tickets[0]

    def finish(self) -> None:
        """Count the oldest drawn batch as trained on."""
        ticket = self._tickets.popleft()
        self._in_hand = False
        self.schedule.consume()
        if ticket.epoch == self.epoch:
            self._position = ticket.position
        self._resume_at = 0

    def _abandon(self) -> None:
        """Forget what the last iteration drew ahead, except a batch between its forward and its backward."""
        while len(self._tickets) > self._in_hand:
            self._tickets.pop()
        self.schedule.abandon(len(self._tickets))
        if not self._tickets:
            self._position = self._resume_at

    def _order(self) -> torch.Tensor | None:
        if not self.shuffle:
            return None
        generator = torch.Generator()
        generator.manual_seed(self.seed + self.epoch)
        return torch.randperm(self.dataset_size, generator=generator)

    def _end(self, start: int) -> int:
        """Where an iteration that starts at `start` ends, in samples."""
        if not self.drop_last:
            return self.dataset_size
        return self.dataset_size - (self.dataset_size - start) % self.global_batch_size


def split(samples: int, sizes: Sequence[int]) -> list[int]:
    """Divide the samples of a step among the ranks in proportion to `sizes`.

    A full batch gives `sizes` itself. In a shorter one every rank gets at least two samples while there are enough,
    then one: the mean loss of no samples is not a number, and batch statistics need two.
    """
    total, world = sum(sizes), len(sizes)
    if samples == total:
        return list(sizes)
    if samples < world:
        return [int(rank < samples) for rank in range(world)]
    least = min(2, samples // world)
    spare = samples - least * world
    bounds = [0, *(spare * upto // total for upto in accumulate(sizes))]
    return [least + high - low for low, high in pairwise(bounds)]


def equal(total: int, parts: int) -> tuple[int, ...]:
    """Deal `total` samples evenly, the remainder to the first ranks."""
    each, rest = divmod(total, parts)
    return tuple(each + (part < rest) for part in range(parts))


def _pick(order: torch.Tensor | None, first: int, last: int) -> list[int]:
    return list(range(first, last)) if order is None else order[first:last].tolist()


def _rank_and_world() -> tuple[int, int]:
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def _first_sizes(total: int, world: int) -> tuple[int, ...]:
    """Sizes of the first steps: EVENSTEP_BATCH_SIZES (comma-separated, in rank order) if it fits, else equal."""
    if total < world:
        raise ValueError(f"global_batch_size: {total} is below the {world} workers; give at least one sample each")
    text = os.environ.get("EVENSTEP_BATCH_SIZES")
    if text is None or world == 1:
        return equal(total, world)
    # int() refuses thousands of digits, and takes more than digits.
    sizes = tuple(int(size) if re.fullmatch("[0-9]{1,18}", size) else 0 for size in text.split(","))
    if len(sizes) == world and sum(sizes) == total and min(sizes) > 0:
        return sizes
    _log.warning(
        "evenstep: EVENSTEP_BATCH_SIZES: %.200r is not %d whole numbers >= 1 that sum to the global batch %d; "
        "starting with equal sizes",
        text,
        world,
        total,
    )
    return equal(total, world)
