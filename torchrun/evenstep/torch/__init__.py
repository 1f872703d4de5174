"""Right-sized batches for a PyTorch training script, in three lines.

    import evenstep.torch as evenstep
    sampler = evenstep.BalancedBatchSampler(dataset, global_batch_size=1024, seed=0)
    loader  = DataLoader(dataset, batch_sampler=sampler, num_workers=4)
    model   = evenstep.balance(DistributedDataParallel(model), sampler)

Each file holds one idea: `sampler` who gets which samples, `loader` what a loader does with them, `schedule` which
batch sizes hold at which step, `weight` what each rank's gradient counts for, `stopwatch` how long a rank computed,
`collectives` and `compiles` what is not counted, `inputs` and `hints` what it had to compute with, `memory` what does
not fit, `observer` what balancing would save, `exchange` what the ranks tell each other, `balance` the step loop that
joins them and `evenstep.core`, the stream to the core. `hf` is for transformers' Trainer; it is loaded when it is first
used, and the framework with it.
"""

import importlib
from typing import Any

from evenstep.lifeline import end_with_agent
from evenstep.torch.balance import balance, scale_loss, step, train_within_memory
from evenstep.torch.sampler import BalancedBatchSampler

__all__ = ["BalancedBatchSampler", "balance", "scale_loss", "step", "train_within_memory"]

end_with_agent()


def __getattr__(name: str) -> Any:
    if name == "hf":
        return importlib.import_module("evenstep.torch.hf")
    raise AttributeError(f"module 'evenstep.torch' has no attribute {name!r}")
