"""What a script calls: balance a model, or weigh its losses and end its steps by hand."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import nn

from evenstep.torch.loop import Count, Hook, Loop
from evenstep.torch.shares import Shares, newest

Model = TypeVar("Model", bound=nn.Module)


def balance(
    model: Model,
    sampler: Shares,
    *,
    count: Count | None = None,
    steps_by_hand: bool = False,
    weigh: bool = True,
) -> Model:
    """Keep the ranks that train `model` in step, and return `model`.

    Call it after the model is wrapped (DistributedDataParallel, fully_shard, torch.compile). From then on each gradient
    counts for the samples that its rank processed, so it equals that of one process on the whole batch, for losses that
    are means over samples. Compute times are measured, and under `torchrun --rdzv-backend=evenstep` the sampler's batch
    sizes follow them. The model's own communication hook stays free. `sampler` is a BalancedBatchSampler, a Feed, or
    what `rebatch` gave.

    Where the loss averages over something else than the rows of the batch (tokens, rows that the collate keeps, the
    parts of a batch that is no tensor), `count` gets what the model's forward gets and returns how many terms the loss
    averages over, a number or a tensor. Where it is a sum that the script divides by what all ranks count already, such
    as the tokens of the global batch, `weigh` is False: nothing is left to be weighted.

    One backward per batch ends a step. With the sampler's `micro_batch_size` above 1 a batch may be trained in parts,
    one forward and backward each: every part counts for its own rows, so nothing is to be divided, and the backward of
    the last one ends the step. With `steps_by_hand` only `step(sampler)` does, after any number of backwards.

    Raises TypeError or ValueError, naming the argument, on anything else than a module and a sampler that balances no
    model yet.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model: {type(model).__name__} is not a torch.nn.Module")
    if not isinstance(sampler, Shares):
        raise TypeError(f"sampler: {type(sampler).__name__} is not a BalancedBatchSampler, a Feed or from rebatch")
    if count is not None and not callable(count):
        raise TypeError(f"count: {type(count).__name__} is not callable; give a function of what forward gets")
    if sampler.balanced:
        raise ValueError(
            "sampler: it balances a model already; models that train on one batch, as in a GAN, go into one module, "
            "balanced with steps_by_hand=True; models that train on batches of their own need a sampler each"
        )
    for inner in model.modules():
        if any(isinstance(hook, Hook) for hook in inner._forward_hooks.values()):
            raise ValueError(
                f"model: its {type(inner).__name__} is balanced already, and would be weighted twice; call balance once"
            )
    if count is not None and not weigh:
        raise ValueError("count: it is for weighting, which weigh=False leaves out; give one of the two")
    if count is not None and sampler.micro_batch_size > 1:
        raise ValueError(
            "count: it cannot be combined with micro_batch_size, whose parts count for rows; leave out one"
        )
    for inner in model.modules():
        _leave_former_loop(inner)
    Loop(model, sampler, count, steps_by_hand, weigh).follow_forwards()
    return model


def _leave_former_loop(inner: nn.Module) -> None:
    """End the loop of what `inner` was wrapped in before, as who unfreezes a part wraps the model anew."""
    for hook in list(inner._forward_pre_hooks.values()):
        owner = getattr(hook.call, "__self__", None) if isinstance(hook, Hook) else None
        if isinstance(owner, Loop):
            owner.end()


def scale_loss(loss: torch.Tensor, sampler: Shares | None = None) -> torch.Tensor:
    """Give the loss of this rank's batch times W n / N, for loops that `balance` is not for: no model, or no hooks.

    The gradients' mean over the W ranks then is that of the whole batch. `sampler` is by default the one that a batch
    was drawn from last. Call `step(sampler)` when the batch is done. Raises ValueError where `balance` weighs already,
    and RuntimeError where no batch was drawn, or batches are never done.
    """
    sampler = sampler if sampler is not None else newest()
    ticket = None if sampler is None else sampler.take()
    if sampler is None or ticket is None:
        raise RuntimeError("scale_loss: no batch was drawn that is still to be trained on; is step() called too often?")
    if sampler.balanced:
        raise ValueError("sampler: it balances a model, whose gradients are weighted already; leave out one of the two")
    sampler.check_steps()
    return loss * (sampler.world * ticket.weight / ticket.total)


def step(sampler: Shares) -> None:
    """Say that the oldest drawn batch is done, trained on or skipped; all ranks do at the same point.

    For loops where nothing marks the end of a step: those that weigh by `scale_loss`, and those of
    `balance(..., steps_by_hand=True)`. Others may call it once a batch, which ends those that had no backward. Raises
    RuntimeError where no batch was drawn.
    """
    if sampler.end_step is not None:
        sampler.end_step()
    elif sampler.take() is None:
        raise RuntimeError("step: no batch was drawn that is not done yet")
    else:
        sampler.finish()


def train_within_memory(model: nn.Module, sampler: Shares, train: Callable[..., Any], *batch: torch.Tensor) -> None:
    """Call `train(*batch)`, which does forward, loss and backward, so that running out of memory costs no step.

    Where the batch does not fit, `train` is called with parts of its rows instead, and the worker's batches are that
    small from then on. The loss is not to be divided: each part counts for its rows. Once after each new largest batch
    `train` gets two rows more, which count for nothing, so it should do nothing else than said. All ranks call this.

    Raises RuntimeError where not even one row fits, or where the model waits for other ranks in forward, as with FSDP.
    """
    loop = sampler.loop() if sampler.loop is not None else None
    if not isinstance(loop, Loop) or loop.model is not model:
        raise ValueError("model: it is not the one that `balance` was given with this sampler")
    if loop.count is not None:
        raise ValueError("count: it cannot be combined with train_within_memory, whose parts count for their rows")
    loop.train_within_memory(train, batch)
