"""What the ranks tell each other at the end of a step, off the critical path.

One asynchronous all-gather of a fixed-size row per rank on a gloo group of its own. One kind of operation, one size,
one place that issues it: gloo aborts a process where two ranks issue operations of different sizes in another order.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from weakref import WeakValueDictionary

import torch
import torch.distributed as dist

from evenstep.report import Hints, Row

# The row: the first fields are every rank's own, the rest is rank 0's part of the newest allocation.
_DEPTH, _SAMPLES, _SECONDS, _CPU, _MEMORY, _WAIT, _USED, _LIMIT, _CLOCK, _CLOCK_MAX, _THROTTLE = range(11)
# Words travel as numbers of six bytes each, which a float holds exactly.
_WORDS_BYTES, _WORD_BYTES = 96, 6
_NO_WORDS = [0.0] * (_WORDS_BYTES // _WORD_BYTES)
_PART = _THROTTLE + _WORDS_BYTES // _WORD_BYTES
# An allocation travels in parts of this many sizes, so that a row stays small with a thousand ranks.
PART_SIZES = 64


class Exchange:
    """An exchange under way."""

    def __init__(self, group: dist.ProcessGroup, row: Row, part: int, sizes: Sequence[int]) -> None:
        """Issue it. `part` says which part of an allocation `sizes` is, from 1; 0 is none. Rank 0's alone is read."""
        # One conversion: a tensor's elements, one by one, cost more than all else here.
        hints = row.hints
        numbers = [row.depth, row.samples, row.seconds, row.cpu, row.memory, row.wait, row.used, row.limit]
        numbers += [hints.clock, hints.clock_max, *(_numbers(hints.throttle) if hints.throttle else _NO_WORDS)]
        numbers += [part, *sizes, *[0.0] * (PART_SIZES - len(sizes))]
        mine = torch.tensor(numbers, dtype=torch.float64)
        self._gathered = mine.new_empty(group.size(), len(mine))
        self._work = dist.all_gather(list(self._gathered.unbind()), mine, group=group, async_op=True)

    def done(self) -> bool:
        """Say whether the rows of all ranks are here."""
        return bool(self._work.is_completed())

    def rows(self) -> list[Row]:
        """Wait for the rows of all ranks. Raises RuntimeError where a rank is gone."""
        self._work.wait()
        return [
            Row(
                int(f[_DEPTH]),
                f[_SAMPLES],
                f[_SECONDS],
                f[_CPU],
                int(f[_MEMORY]),
                f[_WAIT],
                int(f[_USED]),
                Hints(f[_CLOCK], f[_CLOCK_MAX], _words(f[_THROTTLE:])),
                int(f[_LIMIT]),
            )
            for f in self._gathered[:, :_PART].tolist()
        ]

    def part(self) -> tuple[int, list[int]]:
        """Give rank 0's part of an allocation as (part, sizes), padded to PART_SIZES; part 0 is none."""
        self._work.wait()
        part, *sizes = self._gathered[0, _PART:].tolist()
        return int(part), [int(size) for size in sizes]


class Parcel:
    """An allocation cut into parts, and put together again."""

    def __init__(self, world: int) -> None:
        """For allocations over `world` ranks."""
        self._world = world
        self._received: list[int] = []

    def cut(self, sizes: Sequence[int]) -> list[tuple[int, Sequence[int]]]:
        """Give the parts of an allocation, numbered from 1."""
        return [(1 + at // PART_SIZES, sizes[at : at + PART_SIZES]) for at in range(0, self._world, PART_SIZES)]

    def receive(self, part: int, sizes: list[int]) -> tuple[int, ...] | None:
        """Take the next part; give the allocation once it is whole."""
        if part == 0:
            return None
        if part == 1:
            self._received = []
        self._received += sizes
        return tuple(self._received[: self._world]) if len(self._received) >= self._world else None


def _numbers(words: Sequence[str]) -> list[float]:
    """Pack words, as many of them as there is room for."""
    text = b""
    for word in words:
        longer = text + word.encode() + b"\n"
        if len(longer) > _WORDS_BYTES:
            break
        text = longer
    text = text.ljust(_WORDS_BYTES, b"\0")
    return [float(int.from_bytes(text[at : at + _WORD_BYTES], "big")) for at in range(0, len(text), _WORD_BYTES)]


def _words(numbers: Sequence[float]) -> tuple[str, ...]:
    if numbers[0] == 0:
        return ()
    text = b"".join(int(number).to_bytes(_WORD_BYTES, "big") for number in numbers)
    return tuple(text.rstrip(b"\0\n").decode(errors="replace").split("\n"))


def new_group(device: str = "cpu", ranks: Sequence[int] | None = None) -> dist.ProcessGroup:
    """Make a process group over all ranks or those given, for tensors on `device`; all of them call it at one point.

    Its timeout is out of reach, since a group that once timed out is lost: a rank may evaluate or write for hours.
    """
    backend = dist.get_backend() if device == "cuda" else "gloo"
    if ranks is not None:
        return _local_group(tuple(sorted(ranks)), backend)
    group = dist.new_group(backend=backend, timeout=timedelta(days=30))
    assert isinstance(group, dist.ProcessGroup)
    return group


_shared: WeakValueDictionary[tuple[object, ...], dist.ProcessGroup] = WeakValueDictionary()


def shared_group(use: str, device: str = "cpu", ranks: Sequence[int] | None = None) -> dist.ProcessGroup:
    """Give this process's group for one use by all models, whose loops issue in the same order on all ranks.

    A group of each model's own would stay open, with its threads and sockets, when the model is long gone: ranks free
    a model at different times, so none knows when the others have done with its group.
    """
    key = (use, device, None if ranks is None else tuple(sorted(ranks)))
    group = _shared.get(key)
    if group is None or group not in dist.distributed_c10d._world.pg_map:  # destroyed with the default group
        group = _shared[key] = new_group(device, ranks)
    return group


_made: Counter[tuple[int, ...]] = Counter()  # local groups, by their ranks
_COUNTED_APART = 1 << 20  # beyond the groups that a script makes


def _local_group(ranks: tuple[int, ...], backend: str) -> dist.ProcessGroup:
    """Make a group that the others of the world, who may be elsewhere, know nothing of.

    Torch names groups by how many a rank has made, and this one is not made by all. Its name comes from a count of our
    own and torch's stays what it was, or the next group that all ranks make would have another name on some, and hang.
    """
    state = dist.distributed_c10d._world
    before = state.group_count
    state.group_count = _COUNTED_APART + _made[ranks]
    _made[ranks] += 1
    try:
        group = dist.new_group(list(ranks), timedelta(days=30), backend, use_local_synchronization=True)
    finally:
        state.group_count = before
    assert isinstance(group, dist.ProcessGroup)
    return group
