"""`torchrun --rdzv-backend=evenstep`: torch's own c10d rendezvous, and a core that each round's workers can reach.

torch loads this module in every process that imports its rendezvous, so it imports nothing until a handler is wanted.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.distributed.elastic.rendezvous import (
        RendezvousHandler,
        RendezvousHandlerCreator,
        RendezvousParameters,
    )


def get_creator() -> "RendezvousHandlerCreator":
    """Return what makes a handler from torchrun's parameters: the entry point of the group `torchrun.handlers`."""
    return _create


def _create(params: "RendezvousParameters") -> "RendezvousHandler":
    from evenstep.rendezvous.handler import create_handler

    return create_handler(params)
