"""How many rows of each global batch are this rank's, and which of the batches handed out is trained on.

What a source of batches has in common with any other, whatever its rows are: indices of a dataset (`sampler`), rows
that a script fetches itself (`feed`), rows of a stream (`rebatch`). Each batch that is handed out leaves a ticket, and
they are taken in order, as batches are trained in the order in which they come.
"""

import logging
import os
import re
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import torch.distributed as dist

from evenstep.torch.schedule import Schedule

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    Group: TypeAlias = dist.ProcessGroup | DeviceMesh

# Of a source that nothing steps; more than any loader draws ahead.
_MOST_UNSTEPPED = 1024

_log = logging.getLogger("evenstep")


class Place(NamedTuple):
    """How far training or drawing has come, the same on all ranks."""

    epoch: int
    position: int  # samples of the epoch, over all ranks; batches of a Feed


@dataclass(frozen=True)
class Ticket:
    """One drawn batch of this rank, until it is trained on."""

    step: int
    rows: int  # handed out on this rank
    weight: int  # rows that count: all, or 0 where a row is repeated because there were too few for all ranks
    summed: Callable[[], int]  # the weights over all ranks
    place: Place  # up to and including this step

    @property
    def total(self) -> int:
        """Sum of the weights over all ranks. May wait until they have drawn this step too."""
        return self.summed()


class Shares:
    """A source of batches, each rank's as large as the allocation of that step says.

    Without `group`, rank and world size are those of the default process group when the first batch is drawn, else
    those of torchrun's environment (RANK, WORLD_SIZE), else one process.
    """

    def __init__(self, global_batch_size: int, *, group: "Group | None" = None, micro_batch_size: int = 1) -> None:
        """Raise ValueError, naming the argument, where one is out of range."""
        if not isinstance(global_batch_size, int) or isinstance(global_batch_size, bool) or global_batch_size < 1:
            raise ValueError(f"global_batch_size: {global_batch_size!r} is not a whole number >= 1")
        if not isinstance(micro_batch_size, int) or micro_batch_size < 1 or global_batch_size % micro_batch_size:
            raise ValueError(
                f"micro_batch_size: {micro_batch_size!r} is not a whole number >= 1 that divides the global batch of "
                f"{global_batch_size}"
            )
        self.global_batch_size = global_batch_size
        self.group = group
        self.micro_batch_size = micro_batch_size
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
        self._trained = Place(0, 0)  # up to the last batch trained on
        self._tickets: deque[Ticket] = deque()
        self._in_hand = False  # the first ticket's forward has begun
        self._drawn_when_taken = 0  # batches, when it was taken last
        self._overtaken = 0  # how often it was taken again after others were drawn
        self._schedule: Schedule | None = None

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """Batch sizes of the step to be trained on next, in rank order."""
        return self.schedule.sizes(self.schedule.consumed)

    @property
    def stepped(self) -> bool:
        """Whether someone tells when a batch is trained on; until then the position is that of the batches drawn."""
        return self.balanced or self._taken

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

    def settings(self) -> dict[str, Any]:
        """Give what must be the same on all ranks, under the names that users know."""
        return {"global_batch_size": self.global_batch_size, "micro_batch_size": self.micro_batch_size}

    def take(self) -> Ticket | None:
        """Give the ticket of the batch that a forward works on: the oldest drawn one. None outside an iteration."""
        self._taken = True
        if not self._tickets:
            return None
        drawn = self.schedule.drawn
        self._overtaken = self._overtaken + (drawn != self._drawn_when_taken) if self._in_hand else 0
        self._in_hand, self._drawn_when_taken = True, drawn
        return self._tickets[0]

    def check_steps(self) -> None:
        """Raise RuntimeError where the script is to call `step` and does not: the batch in hand is never done."""
        if self._overtaken > 1:  # once it is by a batch that is fetched ahead
            raise RuntimeError(
                "step: a batch is not done, and others were drawn and trained on behind it; call "
                "evenstep.step(sampler) once a batch, when it is done"
            )

    @property
    def ignored(self) -> bool:
        """Whether batches are drawn and none was ever taken."""
        return bool(self._tickets) and not self._taken

    def finish(self) -> None:
        """Count the oldest drawn batch as trained on."""
        ticket = self._tickets.popleft()
        self._in_hand = False
        self.schedule.consume()
        self._trained = ticket.place

    @property
    def _drawn(self) -> Place:
        """Up to the last batch drawn."""
        last = self._tickets[-1] if self._tickets else None
        return self._trained if last is None else last.place

    def _check_window(self) -> None:
        """Say so where a state is taken with gradients that no checkpoint holds."""
        loop = None if self.loop is None else self.loop()
        if loop is not None and not loop.reduces:
            _log.warning(
                "evenstep: the state is taken inside an accumulation window, and the gradients of its batches are in "
                "no checkpoint; save behind an optimizer step"
            )

    def _check_state(self, state: dict[str, Any], whose: str, *fields: str) -> None:
        """Raise ValueError, naming the field, where a state to continue from is not of this source's settings."""
        if not isinstance(state, dict):
            raise ValueError(
                f"state: {state!r} is no state of a {whose}; give what state_dict() returned, and a stateful loader as "
                "many ranks as have saved its state"
            )
        if state.get("version") != 1:
            raise ValueError(f"state.version: {state.get('version')!r} is unknown; this release reads version 1")
        for field in fields:
            mine = getattr(self, field)
            if state.get(field) != mine:
                raise ValueError(f"state.{field}: {state.get(field)!r} is not the {whose}'s {mine!r}; give the same")

    def _hand_out(self, ticket: Ticket) -> None:
        global _newest
        _newest = weakref.ref(self)
        self._tickets.append(ticket)
        while not self._taken and len(self._tickets) > _MOST_UNSTEPPED:
            self.finish()

    def _abandon(self) -> None:
        """Forget what was drawn ahead, except a batch between its forward and its backward."""
        self._drop(keep=int(self._in_hand))

    def _drop(self, keep: int) -> None:
        while len(self._tickets) > keep:
            self._tickets.pop()
        if self._schedule is not None:
            self._schedule.abandon(len(self._tickets))


_newest: "weakref.ref[Shares] | None" = None  # that has drawn


def newest() -> Shares | None:
    """Give the source that a batch was drawn from last."""
    return None if _newest is None else _newest()


def check_seed(seed: int) -> None:
    """Raise ValueError where a seed is out of range."""
    if not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise ValueError(f"seed: {seed!r} is not a whole number from 0 to 2**63 - 1")


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
