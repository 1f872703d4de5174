"""Shares of a stream: rows are cut to this rank's batch size when they are consumed, however they come.

Each rank reads a stream of its own, whose length nobody knows. So the ranks add up what each of them has for a step, in
the background, for the backward to wait for. A rank whose stream is over repeats a row that counts for nothing until
all are: no row is lost, and none counts twice.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist

from evenstep.torch import chunks
from evenstep.torch.exchange import new_group
from evenstep.torch.shares import Place, Shares, Ticket


def rebatch(
    loader: Iterable[Any], global_batch_size: int, *, collate: Callable[[list[Any]], Any] | None = None
) -> "Rebatch":
    """Give a loader whose batches are as large as the allocation of each step says, over one of small chunks.

        loader = evenstep.rebatch(DataLoader(stream, batch_size=8, num_workers=4), global_batch_size=1024)
        model  = evenstep.balance(DistributedDataParallel(model), loader)

    `loader` is anything that gives this rank's chunks of rows in each iteration: tensors, arrays, lists of text, or
    dicts, lists and tuples of these. Each iteration ends when the streams of all ranks have; all ranks iterate alike.

    Rows of different shapes, as of text that is padded to the longest, cannot be put together. For those let the
    loader give lists of samples (`collate_fn=list`), and `collate` makes a batch of one.

    There is no length, and no state to continue from. Raises TypeError or ValueError, naming the argument.
    """
    if not hasattr(loader, "__iter__"):
        raise TypeError(f"loader: {type(loader).__name__} cannot be iterated over; give a loader of small batches")
    if collate is not None and not callable(collate):
        raise TypeError(f"collate: {type(collate).__name__} is not callable; give a function of a list of samples")
    return Rebatch(loader, global_batch_size, collate)


class Rebatch(Shares):
    """What `rebatch` gives: iterate over it as over the loader."""

    def __init__(self, loader: Iterable[Any], global_batch_size: int, collate: Callable[[list[Any]], Any] | None):
        """Raise ValueError, naming the argument, where one is out of range."""
        super().__init__(global_batch_size)
        self._loader = loader
        self._collate = collate
        self._spare: Any = None  # a row to repeat
        self._group: dist.ProcessGroup | None = None
        self._iteration: object | None = None  # the one under way

    def __iter__(self) -> Iterator[Any]:
        """Yield this rank's batches. One iteration at a time: a new one ends the one before.

        Raises ValueError where a chunk has no definite number of rows, and RuntimeError where a stream has no row at
        all, or an iteration goes on that another one has ended.
        """
        self._begin()
        self._iteration = mine = object()
        rows = _Rows(iter(self._loader), as_samples=self._collate is not None)
        while (batch := self._draw(rows)) is not None:
            yield batch if self._collate is None else self._collate(list(batch))
            if self._iteration is not mine:
                raise RuntimeError("evenstep: this iteration was ended by a newer one over the same rebatched loader")

    def _begin(self) -> None:
        self._abandon()
        _ = self.schedule  # with which the world is known
        if self.world == 1 or self._group is not None:
            return
        if not (dist.is_available() and dist.is_initialized()):
            raise RuntimeError(
                f"evenstep: rebatch: {self.world} workers and no process group; call init_process_group before the "
                "first batch is drawn"
            )
        self._group = new_group()

    def _draw(self, rows: "_Rows") -> Any:
        """Hand out the next batch; None where the streams of all ranks are over."""
        step, sizes = self.schedule.draw()
        batch, number = rows.take(sizes[self.rank])
        summed = self._sum(number)
        if number:
            self._spare = chunks.cut(batch, 0, 1)
        elif summed() == 0:
            self._drop(keep=len(self._tickets))  # nothing came of the step
            return None
        elif self._spare is None:
            raise RuntimeError(
                f"evenstep: rebatch: rank {self.rank} has no row to train on while others have; give each rank, and "
                "each of its loader's workers, a part of the stream"
            )
        else:
            batch = self._spare
        self._hand_out(Ticket(step, max(number, 1), number, summed, Place(self.epoch, 0)))
        return batch

    def _sum(self, number: int) -> Callable[[], int]:
        """Begin to add up what the ranks have for a step; all of them do for each."""
        if self._group is None:
            return lambda: number
        total = torch.tensor([number])
        work = dist.all_reduce(total, group=self._group, async_op=True)
        assert work is not None

        def summed() -> int:
            work.wait()
            return int(total)

        return summed


class _Rows:
    """Chunks as they come, and what of them is not taken yet."""

    def __init__(self, source: Iterator[Any], as_samples: bool) -> None:
        self._source = source
        self._as_samples = as_samples
        self._chunks: deque[tuple[Any, int]] = deque()
        self._number = 0

    def take(self, number: int) -> tuple[Any, int]:
        """Give that many rows in one chunk, fewer at the end of the stream, and how many."""
        while self._number < number and self._read():
            pass
        taken: list[Any] = []
        got = 0
        while got < number and self._chunks:
            chunk, rows = self._chunks.popleft()
            if rows > number - got:
                rest = number - got
                self._chunks.appendleft((chunks.cut(chunk, rest, rows), rows - rest))
                chunk, rows = chunks.cut(chunk, 0, rest), rest
            taken.append(chunk)
            got += rows
        self._number -= got
        return chunks.join(taken) if taken else None, got

    def _read(self) -> bool:
        for chunk in self._source:
            if self._as_samples:
                chunk = chunks.Samples(chunk)
            try:
                rows = chunks.count(chunk)
            except ValueError as error:
                raise ValueError(
                    f"evenstep: rebatch: the loader gave {error}; give it a batch_size, and where its rows cannot be "
                    "put together collate_fn=list, and rebatch the function as collate="
                ) from None
            if rows:
                self._chunks.append((chunk, rows))
                self._number += rows
                return True
        return False
