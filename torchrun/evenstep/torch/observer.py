"""What equal batch sizes cost, and what balanced ones would have, for `policy=observe`."""

from collections.abc import Sequence

from evenstep.report import Row


class Observer:
    """Adds up the steps that were measured on all ranks."""

    def __init__(self) -> None:
        """Start before the first."""
        self._steps = 0
        self._took = 0.0  # seconds of compute until the last rank was done
        self._balanced = 0.0  # until all would have been done together, at the speeds of the same step
        self._per_row: list[float] = []  # seconds, in sum, by rank
        self._hints: dict[int, str] = {}

    def see(self, rows: Sequence[Row]) -> None:
        """Take a step's rows, in rank order; one that was not measured everywhere is left out."""
        if not all(row.seconds > 0 and row.samples > 0 for row in rows):
            return
        self._steps += 1
        self._took += max(row.seconds for row in rows)
        self._balanced += sum(row.samples for row in rows) / sum(row.samples / row.seconds for row in rows)
        self._per_row = self._per_row or [0.0] * len(rows)
        for rank, row in enumerate(rows):
            self._per_row[rank] += row.seconds / row.samples
            if row.hints.throttle:
                self._hints[rank] = ", ".join(row.hints.throttle)

    def line(self, why: str) -> str:
        """Say in one line what balancing would have saved, which rank was slow, and why.

        `why` is what the core said last of a slow rank; it holds where it is of the same one.
        """
        if self._steps == 0:
            return "evenstep: observed no step that was measured on all ranks"
        saved = 1 - self._balanced / self._took
        slowest = max(range(len(self._per_row)), key=self._per_row.__getitem__)
        times = self._per_row[slowest] / min(self._per_row)
        about, _, reason = why.partition(": ")
        if about.split()[:2] != ["rank", str(slowest)] or not reason:
            reason = self._hints.get(slowest, "no clock or throttling of its device explains it")
        return (
            f"evenstep: observed {self._steps} steps of {self._took:.1f} s compute; balanced, they would have taken "
            f"{self._balanced:.1f} s, {saved:.0%} less; the slowest, rank {slowest}, took {times:.1f} times as long "
            f"per sample as the fastest: {reason}"
        )
