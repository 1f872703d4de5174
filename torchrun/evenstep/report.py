"""What is known of one worker's step, as it goes to the core."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Hints:
    """What is known of a device; zeros and nothing where it is not."""

    clock: float = 0.0  # of its processors, in MHz
    clock_max: float = 0.0  # the greatest
    throttle: tuple[str, ...] = ()  # why it runs slower than it could, in words


_UNKNOWN = Hints()


@dataclass(frozen=True)
class Row:
    """One rank's news; of what it does not know, zeros."""

    depth: int  # its look-ahead in steps
    samples: float  # of its newest measured steps, a mean
    seconds: float  # compute time of so many
    cpu: float = 0.0  # cores available to it
    memory: int = 0  # bytes of host memory available to it
    wait: float = 0.0  # seconds from its last gradient to the release of the barrier, a mean
    used: int = 0  # bytes of device memory that it uses at most
    hints: Hints = _UNKNOWN  # of its device
    limit: int = 0  # the largest batch that its memory holds
