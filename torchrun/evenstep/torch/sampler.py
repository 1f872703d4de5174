"""Who gets which samples.

All ranks walk one seeded permutation of the dataset with one shared cursor: step s takes the next `global_batch_size`
samples, and rank r the slice of them at the prefix sum of that step's batch sizes. So each sample comes exactly once an
epoch whatever the sizes did, and a position in the epoch is one number, the same on all ranks.
"""

import logging
from collections import deque
from collections.abc import Iterator, Sized
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch.utils.data import Sampler

from evenstep.torch.epochs import Counter, EpochCount
from evenstep.torch.loader import is_told_twice, look
from evenstep.torch.shares import Place, Shares, Ticket, check_seed, split

if TYPE_CHECKING:
    from evenstep.torch.shares import Group


_log = logging.getLogger("evenstep")


class BalancedBatchSampler(Shares, Sampler[list[int]]):
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

    `view` is "global" for a loader that goes through accelerate's `prepare`, which deals lists to ranks itself: a step
    then is a list for each rank in turn, and `len` counts lists.

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
        view: Literal["rank", "global"] = "rank",
    ) -> None:
        """Raise TypeError or ValueError, naming the argument, where one is out of range."""
        if not hasattr(dataset, "__len__"):
            raise TypeError(f"dataset: {type(dataset).__name__} has no length; give a map-style dataset")
        super().__init__(global_batch_size, group=group, micro_batch_size=micro_batch_size)
        check_seed(seed)
        if len(dataset) < 1:
            raise ValueError("dataset: it is empty; give at least one sample")
        if drop_last and len(dataset) < global_batch_size:
            raise ValueError(
                f"drop_last: the {len(dataset)} samples of the dataset do not fill one global batch of "
                f"{global_batch_size}; give drop_last=False or a smaller global_batch_size"
            )
        if view not in ("rank", "global"):
            raise ValueError(
                f'view: {view!r} is unknown; give "rank", or "global" for a loader that accelerate prepares'
            )
        self.view = view
        self.seed = seed
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.dataset_size = len(dataset)
        # The next iteration starts here in `epoch`, which is the next one's too. 0, but where a state is continued.
        self._start = 0
        self._loaded = False  # no iteration has begun since load_state_dict
        self._iteration: Batches | None = None  # the one under way
        self._count = EpochCount()
        self._told_of_left_out = False

    def __len__(self) -> int:
        """Give the number of steps in an epoch, or of their lists; it does not depend on the batch sizes."""
        full, rest = divmod(self.dataset_size, self.global_batch_size)
        return (full + (rest > 0 and not self.drop_last)) * self.lists

    @property
    def lists(self) -> int:
        """How many lists a step has."""
        if self.view == "rank":
            return 1
        _ = self.schedule
        return self.world

    @property
    def sampler(self) -> Counter:
        """Whom frameworks tell of epochs, as they count them."""
        return Counter(self)

    def set_epoch(self, epoch: int) -> None:
        """Choose the permutation of the next iteration; call it before each epoch, as with DistributedSampler.

        What goes on of an iteration that has begun keeps its own.
        """
        if not isinstance(epoch, int) or not 0 <= epoch < 2**63 - self.seed:
            raise ValueError(f"epoch: {epoch!r} is not a whole number from 0 to 2**63 - 1 - seed")
        if is_told_twice():  # by one process alone, whose loader draws from us; we are to hear it as a count
            return
        if epoch != self.epoch:
            self.epoch, self._start = epoch, 0
        elif self._loaded and epoch == self._trained.epoch:
            self._start = self._trained.position  # nothing is left of an epoch that was finished

    def count_epoch(self, number: int) -> None:
        """Choose the permutation of the epoch that has this number in a framework's count."""
        finished = self.epoch == self._trained.epoch and self._is_over(self._trained.position)
        self.set_epoch(self._count.epoch(number, self.epoch, finished))

    def state_dict(self) -> dict[str, int | bool]:
        """Give the position up to what was trained on: the same on all ranks, without communication.

        Batches that a loader has prefetched are not in it, so a restart from it repeats and skips none. It holds for
        any world size and any batch sizes.
        """
        self._check_window()
        return {
            "version": 1,
            "seed": self.seed,
            "shuffle": self.shuffle,
            "dataset_size": self.dataset_size,
            **self.place(drawn=not self.stepped)._asdict(),
        }

    def place(self, drawn: bool) -> Place:
        """Give the place up to what was drawn or what was trained on, or the next epoch's start once it is chosen."""
        place = self._drawn if drawn else self._trained
        if place.epoch != self.epoch and (place.position == 0 or self._is_over(place.position)):
            return Place(self.epoch, 0)
        return place

    def _is_over(self, position: int) -> bool:
        """Say whether nothing is left of an epoch behind a position."""
        return position >= self._end(position)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue at `state`: the next iteration starts behind the samples that were trained on.

        Raises ValueError, naming the field, where the state belongs to another order of samples. After a state taken
        at the end of an epoch, `set_epoch` of that epoch leaves nothing to iterate; without it the epoch starts afresh.
        """
        self._check_state(state, "sampler", "seed", "shuffle", "dataset_size")
        epoch, position = state.get("epoch"), state.get("position")
        if not isinstance(epoch, int) or not 0 <= epoch < 2**63 - self.seed:
            raise ValueError(f"state.epoch: {epoch!r} is not a whole number from 0 to 2**63 - 1 - seed")
        if not isinstance(position, int) or not 0 <= position <= self.dataset_size:
            raise ValueError(f"state.position: {position!r} is not a whole number from 0 to {self.dataset_size}")
        self.skip_to(Place(epoch, position))
        if self._is_over(position):
            self._start = 0
        if not self.stepped:
            self._drop(keep=0)
        self._loaded = True
        self._count.load()

    def __iter__(self) -> "Batches":
        """Yield the dataset indices of this rank's batches. One iteration at a time: a new one ends the one before.

        Raises RuntimeError where an iteration goes on that another one has ended, and ValueError where a loader would
        hand batches out in another order than they are drawn.
        """
        return Batches(self)

    def begin(self, iteration: "Batches", dropped: int) -> range:
        """Begin an iteration, behind the first `dropped` batches, and give the positions at which its batches start."""
        self._abandon()
        self._loaded = False
        self._count.begin()
        self._iteration = iteration
        start = self._start
        behind = min(dropped * self.global_batch_size, self._end(0))
        if dropped and start not in (0, behind):
            raise ValueError(
                f"load_state_dict: the sampler continues behind {start} samples, the loader behind {dropped} batches, "
                f"which are {behind}; let one of the two do it"
            )
        if self._is_over(start):
            self._start = 0
        if dropped:
            start = behind
            self._trained = self._trained._replace(position=behind)
        return range(start, self._end(start), self.global_batch_size)

    def draw(self, iteration: "Batches", low: int) -> list[list[int]]:
        """Hand out the batch that starts at `low`: this rank's share of it, or every rank's."""
        if self._iteration is not iteration:
            raise RuntimeError(
                "evenstep: this iteration was ended by a newer one over the same sampler; to look at samples on "
                "the side, give their loader a sampler of its own"
            )
        high = min(low + self.global_batch_size, self.dataset_size)
        step, sizes = self.schedule.draw()
        shares = split(high - low, sizes, self.micro_batch_size)
        bounds = list(accumulate(shares, initial=low))
        ranks = range(self.world) if self.view == "global" else (self.rank,)
        order = iteration.order
        rows = [_pick(order, bounds[r], bounds[r + 1]) or _pick(order, low, low + 1) for r in ranks]
        mine = shares[self.rank]
        if not self.stepped:
            self._start = 0
        self._hand_out(Ticket(step, max(mine, 1), mine, lambda: high - low, Place(iteration.epoch, high)))
        return rows

    def settings(self) -> dict[str, Any]:
        """Give what must be the same on all ranks, under the names that users know."""
        return {
            **super().settings(),
            "seed": self.seed,
            "shuffle": self.shuffle,
            "drop_last": self.drop_last,
            "dataset size": self.dataset_size,
        }

    def drawn(self, count: int) -> list[Ticket]:
        """Give the tickets of the next `count` batches to be trained on, as far as they are drawn."""
        return list(islice(self._tickets, count))

    def finish(self) -> None:
        """Count the oldest drawn batch as trained on."""
        super().finish()
        self._start = 0

    def skip_to(self, place: Place) -> None:
        """Start the next iteration at `place`, whatever was trained on."""
        self._trained = place
        self.epoch, self._start = place

    def _abandon(self) -> None:
        """Forget what was drawn ahead, and be where the next iteration starts."""
        last = self._tickets[-1] if self._tickets else None
        super()._abandon()
        if not self._tickets:
            self._trained = Place(self.epoch, self._start)
        if self._taken and last is not None and last not in self._tickets and self._is_over(last.place.position):
            self._tell_of_left_out()

    def _tell_of_left_out(self) -> None:
        if self._told_of_left_out:
            return
        self._told_of_left_out = True
        _log.warning(
            "evenstep: rank %d: the last batches of an epoch had no forward when the next iteration began, so they "
            "count as left out; where a prefetcher is to train on them yet, begin the next epoch behind their forward",
            self.rank,
        )

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


class Batches:
    """One iteration over a sampler. Its state is the position handed out, which is what torchdata's loader saves."""

    def __init__(self, sampler: BalancedBatchSampler) -> None:
        """Do nothing yet: a DataLoader calls iter() once more than it draws."""
        self.epoch = 0  # this and the next since the first draw
        self.order: torch.Tensor | None = None
        self._sampler = sampler
        self._lows: Iterator[int] | None = None  # where the batches to come start; None before the first draw
        self._lists: deque[list[int]] = deque()  # drawn but not handed out
        self._place: Place | None = None  # up to the last batch drawn; None before there is one

    def __iter__(self) -> "Batches":
        """Give itself."""
        return self

    def __next__(self) -> list[int]:
        """Draw the next batch."""
        if self._lows is None:
            self._lows = self._begin()
        if not self._lists:
            self._lists.extend(self._sampler.draw(self, next(self._lows)))
            self._place = self._sampler.place(drawn=True)
        return self._lists.popleft()

    def _begin(self) -> Iterator[int]:
        """Begin the iteration, and give the positions at which batches start."""
        sampler = self._sampler
        _ = sampler.schedule  # with which its rank is known
        dropped = look(sampler.rank, sampler.world, sampler.view == "global")
        steps, rest = divmod(dropped, sampler.lists)
        if rest:
            raise ValueError(
                f"skip_first_batches: {dropped} lists are no whole number of steps of {sampler.lists} lists; call it "
                "on the loader that accelerator.prepare gave"
            )
        self.epoch, self.order = sampler.epoch, sampler.order()
        lows = iter(sampler.begin(self, steps))
        # What is dropped may be anything; nothing is drawn for it.
        self._lists.extend([[0]] * min(dropped, len(sampler)))
        return lows

    def state_dict(self) -> dict[str, int]:
        """Give the position up to the last batch drawn."""
        return (self._place or self._sampler.place(drawn=True))._asdict()

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue behind the last batch drawn when `state` was taken."""
        self._sampler.skip_to(Place(state["epoch"], state["position"]))


def _pick(order: torch.Tensor | None, first: int, last: int) -> list[int]:
    return list(range(first, last)) if order is None else order[first:last].tolist()
