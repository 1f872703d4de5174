"""Who gets which samples.

All ranks walk one seeded permutation of the dataset with one shared cursor: step s takes the next `global_batch_size`
samples, and rank r the slice of them at the prefix sum of that step's batch sizes. So each sample comes exactly once an
epoch whatever the sizes did, and a position in the epoch is one number, the same on all ranks.
"""

import logging
import os
import re
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence, Sized
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
import torch.distributed as dist
from torch.utils.data import Sampler

from evenstep.torch.schedule import Schedule

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    Group: TypeAlias = dist.ProcessGroup | DeviceMesh

# Of a sampler that nothing steps; more than any loader draws ahead.
_MOST_UNSTEPPED = 1024

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

    `group`, a process group or a device mesh, holds the ranks that share the global batch, where they are not the whole
    world: with tensor parallelism mesh["dp"], so that ranks which differ in other dimensions draw the same samples.

    Batch sizes are multiples of `micro_batch_size`, but for a short last batch that is none. Where it is above 1 a
    batch may be trained in parts, `for part in batch.split(micro_batch_size)`, whose shapes then are always the same:
    see `balance`.

    Without `group`, rank and world size are those of the default process group when the first batch is drawn, else
    those of torchrun's environment (RANK, WORLD_SIZE), else one process.
    """

    def __init__(
        self,
        dataset: Sized,
        global_batch_size: int,
        *,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = False,
        group: "Group | None" = None,
        micro_batch_size: int = 1,
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
        if not isinstance(micro_batch_size, int) or micro_batch_size < 1 or global_batch_size % micro_batch_size:
            raise ValueError(
                f"micro_batch_size: {micro_batch_size!r} is not a whole number >= 1 that divides the global batch of "
                f"{global_batch_size}"
            )
        if drop_last and len(dataset) < global_batch_size:
            raise ValueError(
                f"drop_last: the {len(dataset)} samples of the dataset do not fill one global batch of "
                f"{global_batch_size}; give drop_last=False or a smaller global_batch_size"
            )
        self.global_batch_size = global_batch_size
        self.seed = seed
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.group = group
        self.micro_batch_size = micro_batch_size
        self.dataset_size = len(dataset)
        self.epoch = 0
        # Set by `balance`.
        self.balanced = False
        self._taken = False  # someone works on our batches and tells when one is trained on
        self.rank, self.world = 0, 1  # known once `schedule` is, as are the next two
        self.workers: tuple[int, ...] = (0,)  # those that share the batch, as ranks of the world
        self.team: tuple[int, ...] | None = None  # the ranks that train the model, where they are not all of the world
        self.end_step: Callable[[], None] | None = None  # this and the next set by `balance`
        self.loop: weakref.ref[Any] | None = None
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
            "position": self._drawn_position() if self._tickets and not self.stepped else self._position,
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
        if not self.stepped:
            self._drop(keep=0)
        self._resume_at = position if position < self._end(position) else 0
        self._loaded = True

    def __iter__(self) -> "Batches":
        """Yield the dataset indices of this rank's batches. One iteration at a time: a new one ends the one before.

        Raises RuntimeError where an iteration goes on that another one has ended, and ValueError where a loader would
        hand batches out in another order than they are drawn.
        """
        return Batches(self)

    def begin(self, iteration: object) -> range:
        """Begin an iteration and give the positions at which its batches start."""
        _ = self.schedule
        self._abandon()
        self._loaded = False
        self._iteration = iteration
        start = self._resume_at
        if start >= self._end(start):  # nothing is left of the epoch
            self._resume_at = 0
        return range(start, self._end(start), self.global_batch_size)

    def draw(self, iteration: object, low: int, order: torch.Tensor | None) -> list[int]:
        """Hand out this rank's share of the batch that starts at `low`."""
        if self._iteration is not iteration:
            raise RuntimeError(
                "evenstep: this iteration was ended by a newer one over the same sampler; to look at samples on "
                "the side, give their loader a sampler of its own"
            )
        high = min(low + self.global_batch_size, self.dataset_size)
        step, sizes = self.schedule.draw()
        shares = split(high - low, sizes, self.micro_batch_size)
        first = low + sum(shares[: self.rank])
        rows = _pick(order, first, first + shares[self.rank]) or _pick(order, low, low + 1)
        self._tickets.append(Ticket(step, len(rows), shares[self.rank], high - low, self.epoch, high))
        if not self.stepped:
            self._resume_at = 0
            while len(self._tickets) > _MOST_UNSTEPPED:
                self.finish()
        return rows

    @property
    def stepped(self) -> bool:
        """Whether someone tells when a batch is trained on; until then the position is that of the batches drawn."""
        return self.balanced or self._taken

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """Batch sizes of the step to be trained on next, in rank order."""
        return self.schedule.sizes(self.schedule.consumed)

    @property
    def schedule(self) -> Schedule:
        """The allocations by step; made when rank and world size are first needed."""
        if self._schedule is None:
            if self.group is None:
                self.rank, self.world = _rank_and_world()
                self.workers = tuple(range(self.world))
            else:
                self.workers, self.team = _members(self.group)
                self.rank, self.world = self.workers.index(dist.get_rank()), len(self.workers)
            self._schedule = Schedule(_first_sizes(self.global_batch_size, self.world, self.micro_batch_size))
        return self._schedule

    def take(self) -> Ticket | None:
        """Give the ticket of the batch that a forward works on: the oldest drawn one. None outside an iteration."""
        self._taken = True
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

    def skip_to(self, epoch: int, position: int) -> None:
        """Start the next iteration at `position` of `epoch`, whatever was trained on."""
        self.epoch, self._position, self._resume_at = epoch, position, position

    def drawn_position(self) -> int:
        """Give the samples of the epoch up to the last batch drawn, over all ranks."""
        return self._drawn_position() if self._tickets else self._position

    def _drawn_position(self) -> int:
        last = self._tickets[-1]
        return last.position if last.epoch == self.epoch else self._position

    def _abandon(self) -> None:
        """Forget what the last iteration drew ahead, except a batch between its forward and its backward."""
        self._drop(keep=int(self._in_hand))
        if not self._tickets:
            self._position = self._resume_at

    def _drop(self, keep: int) -> None:
        while len(self._tickets) > keep:
            self._tickets.pop()
        if self._schedule is not None:
            self._schedule.abandon(len(self._tickets))

    def order(self) -> torch.Tensor | None:
        """Give the permutation of the epoch; None is that of the dataset."""
        if not self.shuffle:
            return None
        generator = torch.Generator()
        generator.manual_seed(self.seed + self.epoch)
        return torch.randperm(self.dataset_size, generator=generator)

    def _end(self, start: int) -> int:
        """Give where an iteration that starts at `start` ends, in samples."""
        if not self.drop_last:
            return self.dataset_size
        return self.dataset_size - (self.dataset_size - start) % self.global_batch_size


_newest: "weakref.ref[BalancedBatchSampler] | None" = None  # that has drawn


def newest() -> BalancedBatchSampler | None:
    """Give the sampler that a batch was drawn from last."""
    return None if _newest is None else _newest()


class Batches:
    """One iteration over a sampler. Its state is the position handed out, which is what torchdata's loader saves."""

    def __init__(self, sampler: BalancedBatchSampler) -> None:
        """Do nothing yet: a DataLoader calls iter() once more than it draws."""
        self._sampler = sampler
        self._lows: Iterator[int] | None = None
        self._order: torch.Tensor | None = None
        self._state: dict[str, int] | None = None

    def __iter__(self) -> "Batches":
        """Give itself."""
        return self

    def __next__(self) -> list[int]:
        """Draw the next batch."""
        if self._lows is None:
            _refuse_another_order()
            self._order = self._sampler.order()
            self._lows = iter(self._sampler.begin(self))
            global _newest
            _newest = weakref.ref(self._sampler)
        low = next(self._lows)
        rows = self._sampler.draw(self, low, self._order)
        self._state = {"epoch": self._sampler.epoch, "position": self._sampler.drawn_position()}
        return rows

    def state_dict(self) -> dict[str, int]:
        """Give the position up to the last batch drawn."""
        return self._state or {"epoch": self._sampler.epoch, "position": self._sampler.drawn_position()}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue behind the last batch drawn when `state` was taken."""
        self._sampler.skip_to(state["epoch"], state["position"])


def _refuse_another_order() -> None:
    """Raise ValueError where a loader that draws from us hands batches out as they become ready."""
    frame = sys._getframe(2)
    for _ in range(8):  # a loader is right above; some wrap another's iterator
        caller = frame.f_locals.get("self")
        if getattr(caller, "_in_order", True) is False or getattr(caller, "in_order", True) is False:
            raise ValueError(
                "in_order: the loader hands out batches in another order than they are drawn, so the sizes of a step "
                "would not sum to the global batch; leave out in_order=False"
            )
        if frame.f_back is None:
            return
        frame = frame.f_back


def split(samples: int, sizes: Sequence[int], quantum: int = 1) -> list[int]:
    """Divide the samples of a step among the ranks in proportion to `sizes`.

    A full batch gives `sizes` itself. In a shorter one every rank gets at least two samples while there are enough,
    then one: the mean loss of no samples is not a number, and batch statistics need two. Shares are multiples of
    `quantum` where there is one for each rank, but for the rest that is none.
    """
    total, world = sum(sizes), len(sizes)
    if samples == total:
        return list(sizes)
    if quantum > 1 and samples >= quantum * world:
        quanta, rest = divmod(samples, quantum)
        shares = [quantum * share for share in split(quanta, [size // quantum for size in sizes])]
        shares[-1] += rest
        return shares
    if samples < world:
        return [int(rank < samples) for rank in range(world)]
    least = min(2, samples // world)
    spare = samples - least * world
    bounds = [0, *(spare * upto // total for upto in accumulate(sizes))]
    return [least + high - low for low, high in pairwise(bounds)]


def equal(total: int, parts: int, quantum: int = 1) -> tuple[int, ...]:
    """Deal `total` samples evenly in multiples of `quantum`, the remainder to the first ranks."""
    each, rest = divmod(total // quantum, parts)
    return tuple(quantum * (each + (part < rest)) for part in range(parts))


def _members(group: "Group") -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """Give those of a group or mesh that share the batch, and all that train the model, as ranks of the world.

    The latter are None where they are the whole world. Those of a mesh are all of the mesh that it was sliced from.
    Raises ValueError where this process is in neither.
    """
    if not hasattr(group, "mesh") and not isinstance(group, dist.ProcessGroup):
        # What torch gives those that are not in a group that they made.
        raise ValueError(f"group: rank {dist.get_rank()} is none of its ranks")
    if isinstance(group, dist.ProcessGroup):
        team = workers = tuple(dist.get_process_group_ranks(group))
    else:
        root = group._get_root_mesh() if hasattr(group, "_get_root_mesh") else group
        workers, team = (tuple(mesh.mesh.flatten().tolist()) for mesh in (group, root))
    if dist.get_rank() not in workers:
        raise ValueError(f"group: rank {dist.get_rank()} is none of its ranks {list(workers)}")
    return workers, None if len(team) == dist.get_world_size() else team


def _pick(order: torch.Tensor | None, first: int, last: int) -> list[int]:
    return list(range(first, last)) if order is None else order[first:last].tolist()


def _rank_and_world() -> tuple[int, int]:
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def _first_sizes(total: int, world: int, quantum: int) -> tuple[int, ...]:
    """Give the sizes of the first steps: EVENSTEP_BATCH_SIZES (in rank order, with commas) if it fits, else equal."""
    if total < world * quantum:
        each = "sample" if quantum == 1 else f"micro-batch of {quantum}"
        raise ValueError(f"global_batch_size: {total} is below the {world} workers; give at least one {each} each")
    text = os.environ.get("EVENSTEP_BATCH_SIZES")
    if text is None or world == 1:
        return equal(total, world, quantum)
    # int() refuses thousands of digits, and takes more than digits.
    sizes = tuple(int(size) if re.fullmatch("[0-9]{1,18}", size) else 0 for size in text.split(","))
    if len(sizes) == world and sum(sizes) == total and min(sizes) > 0 and not any(n % quantum for n in sizes):
        return sizes
    _log.warning(
        "evenstep: EVENSTEP_BATCH_SIZES: %.200r is not %d whole numbers >= 1 that sum to the global batch %d%s; "
        "starting with equal sizes",
        text,
        world,
        total,
        "" if quantum == 1 else f", in multiples of {quantum}",
    )
    return equal(total, world, quantum)
