"""Epochs by the numbers of frameworks, which begin at 0 in each process and may leave some out."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evenstep.torch.sampler import BalancedBatchSampler


class Counter:
    """Stands where frameworks look for a sampler that wants to be told of epochs."""

    def __init__(self, sampler: "BalancedBatchSampler") -> None:
        """Pass on to `sampler`."""
        self._sampler = sampler

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch that has this number in the framework's count."""
        self._sampler.count_epoch(epoch)


class EpochCount:
    """Says which epoch a framework means by a number.

    It is the number plus the epochs that the framework did not count. Those are found out anew at the first number
    after a state was loaded, which is that of the epoch loaded, or of the next one where nothing is left of it, unless
    it is higher. Three things make a count fall behind later: the loader that skips the first batches after a load is
    another one than that of the epochs to come, accelerate does not count an epoch that was left early, and each loader
    that Fabric sets up counts from 0.
    """

    def __init__(self) -> None:
        """Start where both count alike."""
        self._uncounted = 0  # epochs before the framework's number 0, or left out since
        self._resumed = False  # a state was loaded, once
        self._recount = False  # no number came since a state was loaded
        self._last: int | None = None  # the number that came last
        self._begun = False  # an iteration began since it came

    def load(self) -> None:
        """Note that a state was loaded."""
        self._resumed, self._recount, self._uncounted = True, True, 0

    def begin(self) -> None:
        """Note that an iteration begins."""
        self._begun = True

    def epoch(self, number: int, now: int, finished: bool) -> int:
        """Give the epoch of `number`, where the sampler is in epoch `now`, or has `finished` it."""
        behind = self._resumed and finished and number + self._uncounted <= now
        if self._recount or behind:
            self._uncounted = max(0, now + finished - number)
            self._recount = False
        elif number == self._last and self._begun:
            self._uncounted += 1
        self._last, self._begun = number, False
        return number + self._uncounted
