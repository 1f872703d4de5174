"""Evenstep keeps the uneven workers of a distributed training in step.

`evenstep.torch` is what a training script imports. `evenstep.rendezvous` is what `torchrun
--rdzv-backend=evenstep` loads. `evenstep.v1` is the generated wire.
"""

__version__ = "0.1.0"
