"""What a loader does with the lists that it draws from the sampler: read off the stack when it draws the first.

Frameworks wrap a sampler in samplers of their own, which deal its lists to ranks or drop those trained on before. Each
of them is a caller of the one below.
"""

import sys
from collections.abc import Iterator
from typing import Any

_DEPTH = 24  # callers; a loader is right above, frameworks wrap it a few times


def look(rank: int, world: int, every_rank: bool) -> int:
    """Give how many lists the loader drops before it hands out the first, as it does to resume.

    `every_rank` says that the sampler yields a list for each rank in turn instead of this rank's alone. Raises
    ValueError, naming the setting, where ranks would not get their shares, or not in the order in which they are drawn.
    """
    dealt, dropped = 1, 0
    for caller in _callers():
        kind = type(caller).__name__
        if getattr(caller, "_in_order", True) is False or getattr(caller, "in_order", True) is False:
            raise ValueError(
                "in_order: the loader hands out batches in another order than they are drawn, so the sizes of a step "
                "would not sum to the global batch; leave out in_order=False"
            )
        if kind == "BatchSampler":
            raise ValueError(
                "sampler: the loader would draw several whole batches for each of its own; give the sampler to it as "
                "batch_sampler="
            )
        if kind == "DataLoaderDispatcher":
            raise ValueError(
                "dispatch_batches: accelerate would deal even parts of one rank's batches to all; give "
                "DataLoaderConfiguration(dispatch_batches=False)"
            )
        if kind == "BatchSamplerShard" and caller.num_processes > 1:
            dealt *= caller.num_processes
            if every_rank and (caller.num_processes, caller.process_index) != (world, rank):
                raise ValueError(
                    f"group: accelerate deals to rank {caller.process_index} of {caller.num_processes}, the sampler to "
                    f"rank {rank} of {world}; give the sampler the mesh of those that share the batch"
                )
        elif getattr(caller, "num_replicas", 1) != 1:
            raise ValueError(
                f"sampler: {kind} would deal this rank's batches to all ranks again, so most samples would be left "
                "out; give the sampler to the loader itself"
            )
        dropped += dealt * _dropped(caller, kind)
    if dealt > 1 and not every_rank:
        raise ValueError(
            "view: accelerate would deal this rank's batches to all ranks again, so most samples would be left out; "
            'give BalancedBatchSampler(..., view="global") where the loader goes through accelerator.prepare'
        )
    if every_rank and dealt == 1 and world > 1:
        raise ValueError(
            'view: nobody deals the lists of view="global" to their ranks; pass the loader through '
            'accelerator.prepare, or leave out view="global"'
        )
    return dropped


def is_told_twice() -> bool:
    """Say whether accelerate's loader calls the caller: it tells both a batch sampler and its `sampler` of epochs."""
    frame = sys._getframe(2)
    return type(frame.f_locals.get("self")).__name__ == "DataLoaderShard"


def _dropped(caller: Any, kind: str) -> int:
    """Give how many of the lists that `caller` draws it drops first."""
    if kind == "SkipBatchSampler":
        return int(caller.skip_batches)
    # torchdata's iterator, restored over a sampler that does not continue by itself.
    if hasattr(caller, "_sampler_iter_yielded") and not hasattr(caller._index_sampler, "load_state_dict"):
        return int(caller._sampler_iter_yielded)
    return 0


def _callers() -> Iterator[Any]:
    """Give the objects whose methods called whoever called `look`, the nearest first, each once."""
    frame = sys._getframe(2).f_back
    seen: list[Any] = []
    for _ in range(_DEPTH):
        if frame is None:
            return
        caller = frame.f_locals.get("self")
        if caller is not None and not any(caller is other for other in seen):
            seen.append(caller)
            yield caller
        frame = frame.f_back
