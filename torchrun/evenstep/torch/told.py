"""What a user is told of a step loop: each thing once."""

import logging
import weakref
from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook

from evenstep.torch.shares import Shares, Ticket

_log = logging.getLogger("evenstep")


class Told:
    """The warnings of one loop."""

    def __init__(self, sampler: Shares) -> None:
        """Name the rank of `sampler`."""
        self._sampler = sampler
        self._kinds: set[str] = set()  # of what was told

    def fault(self, fault: str) -> None:
        """Tell of what a script does that the loop does not follow."""
        supported = (
            "train each batch with forwards and one backward through their outputs, or give "
            "balance(..., steps_by_hand=True)"
        )
        self._tell(fault, "evenstep: rank %d: %s; %s", self._sampler.rank, fault, supported)

    def counted_already(self) -> None:
        """Tell that the loss may be divided by what all ranks count."""
        self._tell(
            "counted already",
            "evenstep: the model gets num_items_in_batch, so its loss may be divided by what all ranks count already, "
            "and weighting it is wrong then; give balance(..., weigh=False), under Trainer evenstep.torch.hf.balance",
        )

    def rows(self, found: int | None, ticket: Ticket) -> None:
        """Tell that the model got other rows than were handed out."""
        self._tell(
            "rows",
            "evenstep: rank %d: the model got %d rows where the sampler handed out %d; its gradient counts for %d. "
            "If the loss averages over the rows that the model gets, give balance(..., count=) a function of them",
            self._sampler.rank,
            found,
            ticket.rows,
            ticket.weight,
        )

    def _tell(self, kind: str, text: str, *args: Any) -> None:
        if kind not in self._kinds:
            self._kinds.add(kind)
            _log.warning(text, *args)


def watch_optimizers(sampler: Shares) -> None:
    """Say once where optimizers step on batches of `sampler` and the balanced model, which may be gone, is not run."""
    found = weakref.ref(sampler)
    seen: set[int] = set()  # how many batches were drawn at such steps

    def after_step(*_: Any) -> None:
        sampler = found()
        if sampler is None or not sampler.ignored or len(seen) > 1:
            return
        seen.add(sampler.schedule.drawn)
        if len(seen) > 1:  # the first may be to make the optimizer's state
            _log.warning(
                "evenstep: rank %d: batches are drawn and an optimizer steps, but the balanced model had no forward, "
                "so nothing is weighted; call balance with the model that is trained",
                sampler.rank,
            )

    weakref.finalize(sampler, register_optimizer_step_post_hook(after_step).remove)
