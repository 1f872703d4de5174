"""The parts of a batch, where a script trains it in several of them.

With `micro_batch_size` every forward gets so many rows, the last the rest. How many rows had a forward says which part
is the last: its backward ends the step, and has the step's only all-reduce, since ranks differ in their numbers of
parts. A forward that got any other number of rows is taken for one of the whole batch.
"""

import contextlib
from collections.abc import Iterator, Sequence

from torch.nn.parallel import DistributedDataParallel

from evenstep.torch.shares import Shares, Ticket


class Parts:
    """How much of the batch at hand had a forward."""

    def __init__(
        self, sampler: Shares, replicas: Sequence[DistributedDataParallel], shards: bool, steps_by_hand: bool
    ) -> None:
        """Know of no batch. `shards` says that ranks wait for each other in each forward."""
        self._sampler = sampler
        self._replicas = replicas
        self._shards = shards
        self._steps_by_hand = steps_by_hand
        self.rows = 0  # that had a forward; above those of the batch where it had several
        self._parted = False  # a forward had a part of the rows
        self._any_size = False  # parts have any number of rows, and none of them ends the step
        self._unsynced: list[DistributedDataParallel] = []  # by us, while a part's forward is under way

    def begin(self) -> None:
        """Begin a batch."""
        self.rows, self._parted = 0, False

    @contextlib.contextmanager
    def of_any_size(self) -> Iterator[None]:
        """Take any number of rows for a part, and end the step at none."""
        self._any_size = True
        try:
            yield
        finally:
            self._any_size = False

    @property
    def allowed(self) -> bool:
        """Whether a forward may be of a part."""
        return self._sampler.micro_batch_size > 1 or self._any_size

    @property
    def _by_script(self) -> bool:
        """Whether the script trains the batch in parts, the last of which ends the step."""
        return self.allowed and not (self._any_size or self._steps_by_hand)

    def forward(self, found: int | None, ticket: Ticket) -> int:
        """Give how many rows of the batch a forward is of that got `found`, and count them."""
        rows = ticket.rows
        if found is not None and self.allowed:
            fits = self._any_size or found % self._sampler.micro_batch_size == 0 or found == ticket.rows - self.rows
            rows = found if fits and found <= ticket.rows else ticket.rows
        self.rows += rows
        self._parted = self._parted or rows < ticket.rows
        return rows

    def done(self, ticket: Ticket) -> bool:
        """Say whether a backward now ends the step."""
        return not (self._steps_by_hand or self._any_size or (self.allowed and self.rows < ticket.rows))

    def check(self, ticket: Ticket) -> None:
        """Raise RuntimeError where ranks, whose numbers of parts differ, could not go on together."""
        if not (self._by_script and self._parted):
            return
        if self.rows > ticket.rows:
            raise RuntimeError(
                f"evenstep: rank {self._sampler.rank}: parts of a batch of {ticket.rows} rows had forwards of "
                f"{self.rows}, so which is the last is not known; give balance(..., steps_by_hand=True), and call "
                "evenstep.step(sampler) when a batch is done"
            )
        if self._shards:
            raise RuntimeError(
                f"evenstep: rank {self._sampler.rank}: with fully_shard ranks wait for each other in each forward, and "
                "their numbers of parts differ; train each batch whole"
            )

    def check_whole(self, ticket: Ticket) -> None:
        """Raise RuntimeError where the other ranks would wait for parts that do not come."""
        if self._by_script and self._parted and self.rows < ticket.rows:
            raise RuntimeError(f"evenstep: rank {self._sampler.rank}: {self._missing(ticket)}")

    def fault(self, ticket: Ticket) -> str | None:
        """Say what is wrong with a batch that the script ends, if parts of it are missing."""
        return self._missing(ticket) if self._parted and self.rows % ticket.rows else None

    def _missing(self, ticket: Ticket) -> str:
        return (
            f"a batch of {ticket.rows} rows had forwards of {self.rows}, and then another was drawn; with "
            "micro_batch_size train all parts of a batch, and have rows lead the shape of what the model gets"
        )

    def leave_to_the_last(self, ticket: Ticket) -> None:
        """Leave out the all-reduce of a part whose forward begins, unless it is the last."""
        if self._by_script and self.rows < ticket.rows:
            self._unsynced = [replica for replica in self._replicas if replica.require_backward_grad_sync]
            for replica in self._unsynced:
                replica.require_backward_grad_sync = False

    def sync_again(self) -> None:
        """Have the script's own setting again: DDP has read it in this forward, or there was none."""
        for replica in self._unsynced:
            replica.require_backward_grad_sync = True
        self._unsynced = []
