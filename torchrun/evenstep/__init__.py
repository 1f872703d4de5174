"""Evenstep keeps the uneven workers of a distributed training in step.

`Client` is for loops of any framework, `evenstep.torch` is what a PyTorch script imports. `evenstep.rendezvous` is what
`torchrun --rdzv-backend=evenstep` loads, `evenstep.v1` the generated wire.
"""

from typing import Any

__version__ = "0.1.0"

__all__ = ["Client"]


def __getattr__(name: str) -> Any:
    # What torchrun and workers load needs no gRPC for it.
    if name == "Client":
        from evenstep.client import Client

        return Client
    raise AttributeError(f"module 'evenstep' has no attribute {name!r}")
