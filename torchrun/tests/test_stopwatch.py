"""The arithmetic of the stopwatch, on a clock that is set by hand."""

from typing import cast

import pytest

from evenstep.torch.stopwatch import Stopwatch


class Clock:
    """Seconds as floats. Marks later than `reached` are still to come, as events of a device are."""

    def __init__(self) -> None:
        self.now = 0.0
        self.issued = 0  # collectives
        self.reached = float("inf")

    def mark(self) -> float:
        return self.now

    def seconds(self, start: object, end: object) -> float | None:
        return cast(float, end) - cast(float, start) if cast(float, end) <= self.reached else None


def step(watch: Stopwatch, clock: Clock, before: float, inside: float) -> None:
    """A step of `before` and `inside` seconds of compute, and 100 seconds of waits that are not."""
    clock.now += before
    watch.pause()
    clock.now += 50  # DDP broadcasts buffers
    watch.resume()
    clock.now += inside
    watch.last_gradient()
    clock.now += 50  # the others
    watch.finish(8)
    watch.released()


def test_compute_is_what_lies_before_the_forward_and_up_to_the_last_gradient() -> None:
    clock = Clock()
    watch = Stopwatch(clock)
    step(watch, clock, 1, 2)
    assert watch.read() == (0, 0), "when the first step's work began is not known"
    step(watch, clock, 1, 2)
    assert watch.read() == (8, 3)
    assert watch.read() == (0, 0)
    step(watch, clock, 1, 2)
    step(watch, clock, 3, 4)
    assert watch.read() == (8, 5)


def test_the_wait_is_what_lies_between_the_last_gradient_and_the_release() -> None:
    clock = Clock()
    watch = Stopwatch(clock)
    assert watch.read_wait() == 0
    step(watch, clock, 1, 2)
    clock.reached = clock.now
    step(watch, clock, 1, 2)
    assert watch.read_wait() == 50, "that of the second step is still to come"
    assert watch.read_wait() == 0
    clock.reached = clock.now
    assert watch.read_wait() == 50


def test_host_seconds_blocked_since_the_last_barrier_are_taken_out() -> None:
    clock = Clock()
    watch = Stopwatch(clock)
    step(watch, clock, 1, 2)
    watch.blocked(0.25)
    watch.blocked(0.5)
    step(watch, clock, 1, 2)
    assert watch.read() == (8, 2.25)
    step(watch, clock, 1, 2)
    assert watch.read() == (8, 3)
    watch.blocked(7)
    step(watch, clock, 1, 2)
    assert watch.read() == (8, 0)


def test_several_forwards_and_the_last_of_several_gradients_count() -> None:
    clock = Clock()
    watch = Stopwatch(clock)
    watch.released()
    for _ in range(2):
        clock.now += 1
        watch.pause()
        clock.now += 50
        watch.resume()
    for _ in range(2):
        clock.now += 1
        watch.last_gradient()
    watch.finish(8)
    assert watch.read() == (8, 4)


def test_of_a_step_of_several_backwards_each_wait_for_the_others_is_taken_out() -> None:
    clock = Clock()
    watch = Stopwatch(clock)
    watch.released()
    for _ in range(3):
        for _ in range(2):  # each backward reduces
            clock.now += 1
            watch.last_gradient()
            clock.now += 50
            watch.released()
        clock.now += 3  # the optimizer, before the script says that the step is over: the next one's
        watch.finish(8)
        assert watch.read_wait() == 50
    assert watch.read() == (8, (2 + 5 + 5) / 3)


@pytest.mark.parametrize("communicates", [False, True])
def test_a_stretch_of_the_scripts_own_counts_unless_it_communicates(communicates: bool) -> None:
    clock = Clock()
    watch = Stopwatch(clock, lambda: clock.issued)
    step(watch, clock, 1, 2)
    for _ in range(2):  # what lies before the forward, and what lies between forward and backward
        clock.now += 4
        with watch.paused():
            clock.now += 50
            clock.issued += 1
        watch.blocked(1)
        clock.issued += communicates
        clock.now += 3
        watch.end_stretch()
        watch.pause()
        watch.resume()
        clock.now += 2
        watch.begin_stretch()
    watch.end_stretch()
    watch.last_gradient()
    watch.finish(8)
    assert watch.read() == (8, 4 if communicates else 2 * (4 + 3 - 1 + 2))


def test_a_stretch_goes_on_where_the_script_ends_a_step_inside_it() -> None:
    clock = Clock()
    watch = Stopwatch(clock, lambda: clock.issued)
    for _ in range(2):
        watch.end_stretch()
        watch.pause()
        watch.resume()
        clock.now += 2
        watch.last_gradient()
        clock.now += 50
        watch.released()
        clock.now += 3
        watch.finish(8)
        clock.now += 4
        clock.issued += 1
    watch.end_stretch()
    watch.last_gradient()
    watch.finish(8)
    assert watch.read() == (8, (2 + 0) / 2)


def test_a_step_that_is_spoilt_is_left_out() -> None:
    clock = Clock()
    watch = Stopwatch(clock)
    step(watch, clock, 1, 2)
    watch.spoil()
    step(watch, clock, 100, 200)
    step(watch, clock, 1, 2)
    assert watch.read() == (8, 3)


def test_a_mark_that_the_device_has_not_reached_is_waited_for_by_nobody() -> None:
    clock = Clock()
    watch = Stopwatch(clock)
    step(watch, clock, 1, 2)
    step(watch, clock, 1, 2)
    clock.reached = clock.now
    step(watch, clock, 1, 4)
    assert watch.read() == (8, 3)
    assert watch.read() == (0, 0)
    clock.reached = clock.now
    assert watch.read() == (8, 5)


def test_a_step_without_a_last_gradient_is_not_measured() -> None:
    clock = Clock()
    watch = Stopwatch(clock)
    watch.released()
    watch.pause()
    watch.resume()
    watch.finish(8)
    watch.released()
    assert watch.read() == (0, 0)
