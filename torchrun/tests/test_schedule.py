"""Ranks that draw ahead by different and changing depths agree on the batch sizes of every step, and none hangs."""

import itertools
import random
import threading
from collections import deque
from collections.abc import Callable
from functools import partial

import pytest

from evenstep.torch.exchange import PART_SIZES, Parcel
from evenstep.torch.schedule import Learned, Schedule

RANKS, STEPS, DEADLINE = 3, 150, 20.0


class Exchanges:
    """Exchanges among threads: complete once every rank has issued its row. Rank 0's brings an allocation at times."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._rows: dict[int, dict[int, int]] = {}
        self._sizes: dict[int, tuple[int, ...] | None] = {}
        self._complete = threading.Condition()

    def issue(self, at: int, rank: int, depth: int) -> "Wait":
        with self._complete:
            self._rows.setdefault(at, {})[rank] = depth
            if rank == 0 and self._chance.random() < 0.4:
                self._sizes[at] = tuple(self._chance.randint(1, 50) for _ in range(RANKS))
            self._complete.notify_all()
        return Wait(self, at)

    def wait(self, at: int) -> Learned:
        with self._complete:
            if not self._complete.wait_for(lambda: len(self._rows[at]) == RANKS, DEADLINE):
                raise AssertionError(f"exchange {at} never completed: {self._rows[at]}")
            return Learned(max(self._rows[at].values()), self._sizes.get(at))


class Wait:
    def __init__(self, exchanges: Exchanges, at: int) -> None:
        self._exchanges, self._at = exchanges, at

    def __call__(self) -> Learned:
        return self._exchanges.wait(self._at)


def train(rank: int, seed: int, exchanges: Exchanges, barrier: threading.Barrier, used: list[tuple[int, ...]]) -> None:
    """One rank: a loader whose look-ahead changes now and then, steps of which about two in three end in a barrier."""
    chance, synced = random.Random(f"{seed} {rank}"), random.Random(seed)
    schedule = Schedule((10,) * RANKS)
    loaded: deque[tuple[int, tuple[int, ...]]] = deque()
    look_ahead = chance.randint(0, 5)
    for step in range(STEPS):
        if chance.random() < 0.05:
            look_ahead = chance.randint(0, 12)
        if synced.random() < 0.03:  # all ranks leave the epoch and start over
            loaded.clear()
            schedule.abandon(0)
        while len(loaded) <= look_ahead:
            loaded.append(schedule.draw())
        drawn, sizes = loaded.popleft()
        assert drawn == step
        used.append(sizes)
        if synced.random() < 0.66:
            schedule.issue(partial(exchanges.issue, step, rank))
            barrier.wait(DEADLINE)
        schedule.consume()


def test_a_draw_on_another_thread_sees_an_exchange_whole() -> None:
    schedule = Schedule((4, 4))
    drawn = threading.Thread(target=lambda: [schedule.draw() for _ in range(9)], daemon=True)

    def send(depth: int) -> Callable[[], Learned]:
        drawn.start()
        drawn.join(0.2)
        assert schedule.drawn == 0, "it drew further than its row says"
        return lambda: Learned(depth, (6, 2))

    schedule.issue(send)
    drawn.join(DEADLINE)
    assert schedule.sizes(2) == (6, 2)


@pytest.mark.parametrize("seed", range(10))
def test_ranks_agree(seed: int) -> None:
    exchanges, barrier = Exchanges(seed), threading.Barrier(RANKS)
    used: list[list[tuple[int, ...]]] = [[] for _ in range(RANKS)]
    threads = [
        threading.Thread(target=train, args=(rank, seed, exchanges, barrier, used[rank]), daemon=True)
        for rank in range(RANKS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * DEADLINE)
    assert [len(sizes) for sizes in used] == [STEPS] * RANKS
    assert used[0] == used[1] == used[2]
    assert len(set(used[0])) > 5, "the sizes did not change, so nothing was tested"


def test_without_look_ahead_an_allocation_holds_two_steps_later() -> None:
    schedule = Schedule((4, 4))
    used = []
    for step in range(5):
        used.append(schedule.draw()[1])
        sizes = (6, 2) if step == 1 else None
        schedule.issue(lambda depth, sizes=sizes: lambda: Learned(depth, sizes))
        schedule.consume()
    assert used == [(4, 4), (4, 4), (4, 4), (6, 2), (6, 2)]


@pytest.mark.parametrize("world", [1, PART_SIZES - 1, PART_SIZES, PART_SIZES + 1, 1000])
def test_an_allocation_arrives_whole_whatever_the_number_of_ranks(world: int) -> None:
    sizes = tuple(range(1, world + 1))
    sender, receiver = Parcel(world), Parcel(world)
    arrived = []
    # The first allocation is cut off by a second one, as when rank 0 starts over.
    for part, piece in itertools.chain(sender.cut(sizes[::-1])[:-1], sender.cut(sizes)):
        padded = [*piece, *[0] * (PART_SIZES - len(piece))]
        arrived.append(receiver.receive(part, padded))
        assert receiver.receive(0, [0] * PART_SIZES) is None
    assert [a for a in arrived if a is not None] == [sizes]
