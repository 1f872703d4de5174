"""Who gets which samples.

All ranks walk one seeded permutation of the dataset with one shared cursor: step s takes the next `global_batch_size`
samples, and rank r the slice of them at the prefix sum of that step's batch sizes. So each sample comes exactly once an
epoch whatever the sizes did, and a position in the epoch is one number, the same on all ranks.
"""

from collections import deque
from collections.abc import Iterator, Sized
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch.utils.data import Sampler

from evenstep.torch.loader import look
from evenstep.torch.shares import Shares, Ticket, check_seed, split

if TYPE_CHECKING:
    from evenstep.torch.shares import Group


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
        self._resume_at = 0  # where the next iteration starts; not 0 only after load_state_dict
        self._loaded = False  # no iteration has begun since load_state_dict
        self._recount = False  # no framework told of an epoch since load_state_dict
        self._epochs_before = 0  # of a loop that counts its epochs from 0 again, or not all of them
        self._count: int | None = None  # what a framework told last
        self._begun = False  # an iteration since then
        self._iteration: object | None = None  # the one under way

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
    def sampler(self) -> "Counter":
        """Whom frameworks tell of epochs, as they count them."""
        return Counter(self)

    def set_epoch(self, epoch: int) -> None:
        """Choose the permutation of the next iteration; call it before each epoch, as with DistributedSampler."""
        if not isinstance(epoch, int) or not 0 <= epoch < 2**63 - self.seed:
            raise ValueError(f"epoch: {epoch!r} is not a whole number from 0 to 2**63 - 1 - seed")
        if epoch != self.epoch:
            self.epoch, self._resume_at, self._position = epoch, 0, 0
        elif self._loaded:
            self._resume_at = self._position  # nothing is left of an epoch that was finished

    def count_epoch(self, count: int) -> None:
        """Choose the permutation of an epoch that a framework numbers, which may begin at 0 in each process.

        The first number after load_state_dict is that of the epoch loaded, or of the next one where nothing is left of
        it, unless it is higher. The same number once more is that of the next epoch: accelerate does not count one that
        was left early, and each loader that Fabric sets up counts from 0.
        """
        if self._recount:
            finished = self._position >= self._end(self._position)
            self._epochs_before = max(0, self.epoch + finished - count)
            self._recount = False
        elif count == self._count and self._begun:
            self._epochs_before += 1
        self._count, self._begun = count, False
        self.set_epoch(count + self._epochs_before)

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
            "position": self._position if self.stepped else self.drawn_position(),
        }

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
        self.epoch = epoch
        self._position = position
        self._recount, self._epochs_before = True, 0
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

    def begin(self, iteration: object, dropped: int) -> range:
        """Begin an iteration, behind the first `dropped` batches, and give the positions at which its batches start."""
        self._abandon()
        self._loaded = False
        self._begun = True
        self._iteration = iteration
        start = self._resume_at
        behind = min(dropped * self.global_batch_size, self._end(0))
        if dropped and start not in (0, behind):
            raise ValueError(
                f"load_state_dict: the sampler continues behind {start} samples, the loader behind {dropped} batches, "
                f"which are {behind}; let one of the two do it"
            )
        if start >= self._end(start):  # nothing is left of the epoch
            self._resume_at = 0
        if dropped:
            start = self._position = behind
        return range(start, self._end(start), self.global_batch_size)

    def draw(self, iteration: object, low: int, order: torch.Tensor | None) -> list[list[int]]:
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
        rows = [_pick(order, bounds[r], bounds[r + 1]) or _pick(order, low, low + 1) for r in ranks]
        mine = shares[self.rank]
        if not self.stepped:
            self._resume_at = 0
        self._hand_out(Ticket(step, max(mine, 1), mine, lambda: high - low, self.epoch, high))
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
        self._resume_at = 0

    def skip_to(self, epoch: int, position: int) -> None:
        """Start the next iteration at `position` of `epoch`, whatever was trained on."""
        self.epoch, self._position, self._resume_at = epoch, position, position

    def _abandon(self) -> None:
        super()._abandon()
        if not self._tickets:
            self._position = self._resume_at

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


class Counter:
    """Stands where frameworks look for a sampler that wants to be told of epochs."""

    def __init__(self, sampler: BalancedBatchSampler) -> None:
        """Pass on to `sampler`."""
        self._sampler = sampler

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch that has this number in the framework's count."""
        self._sampler.count_epoch(epoch)


class Batches:
    """One iteration over a sampler. Its state is the position handed out, which is what torchdata's loader saves."""

    def __init__(self, sampler: BalancedBatchSampler) -> None:
        """Do nothing yet: a DataLoader calls iter() once more than it draws."""
        self._sampler = sampler
        self._lows: Iterator[int] | None = None
        self._lists: deque[list[int]] = deque()  # drawn but not handed out
        self._order: torch.Tensor | None = None
        self._state: dict[str, int] | None = None

    def __iter__(self) -> "Batches":
        """Give itself."""
        return self

    def __next__(self) -> list[int]:
        """Draw the next batch."""
        if self._lows is None:
            self._lows = self._begin()
        if not self._lists:
            self._lists.extend(self._sampler.draw(self, next(self._lows), self._order))
            self._state = {"epoch": self._sampler.epoch, "position": self._sampler.drawn_position()}
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
        self._order = sampler.order()
        lows = iter(sampler.begin(self, steps))
        # What is dropped may be anything; nothing is drawn for it.
        self._lists.extend([[0]] * min(dropped, len(sampler)))
        return lows

    def state_dict(self) -> dict[str, int]:
        """Give the position up to the last batch drawn."""
        return self._state or {"epoch": self._sampler.epoch, "position": self._sampler.drawn_position()}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue behind the last batch drawn when `state` was taken."""
        self._sampler.skip_to(state["epoch"], state["position"])


def _pick(order: torch.Tensor | None, first: int, last: int) -> list[int]:
    return list(range(first, last)) if order is None else order[first:last].tolist()
