"""Right-sized batches for a PyTorch training script, in three lines.

    import evenstep.torch as evenstep
    sampler = evenstep.BalancedBatchSampler(dataset, global_batch_size=1024, seed=0)
    loader  = DataLoader(dataset, batch_sampler=sampler, num_workers=4)
    model   = evenstep.balance(DistributedDataParallel(model), sampler)

Each file holds one idea: `shares` how many rows are a rank's, `sampler` which samples of a dataset, `epochs` which
epoch a framework means, `loader` what a loader does with them, `feed` which rows that a script fetches itself,
`rebatch` which rows of a stream, `chunks` what they are made of, `schedule` which batch sizes hold at which step,
`weight` what each rank's gradient counts for, `parts` how much of a batch was trained, `stopwatch` how long a rank
computed, `collectives` and `compiles` what is not counted, `inputs` and `hints` what it had to compute with, `memory`
what does not fit, `observer` what balancing would save, `exchange` what the ranks tell each other, `peers` how they
meet, `loop` the step loop that joins them, `told` what it warns of, `balance` what a script calls, and `evenstep.core`
is the stream to the core. `hf` is for transformers' Trainer, `lightning` for Lightning's; they are loaded when they are
first used, and their frameworks with them.
"""

import importlib
from typing import Any

from evenstep.lifeline import end_with_agent
from evenstep.torch.balance import balance, scale_loss, step, train_within_memory
from evenstep.torch.feed import Feed
from evenstep.torch.rebatch import rebatch
from evenstep.torch.sampler import BalancedBatchSampler

__all__ = ["BalancedBatchSampler", "Feed", "balance", "rebatch", "scale_loss", "step", "train_within_memory"]

end_with_agent()


def __getattr__(name: str) -> Any:
    if name in ("hf", "lightning"):
        return importlib.import_module(f"evenstep.torch.{name}")
    raise AttributeError(f"module 'evenstep.torch' has no attribute {name!r}")
