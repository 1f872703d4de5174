"""Right-sized batches under Lightning's Trainer, by a callback.

    sampler = evenstep.BalancedBatchSampler(dataset, global_batch_size=1024, seed=0)
    loader  = DataLoader(dataset, batch_sampler=sampler, num_workers=4)
    trainer = Trainer(..., use_distributed_sampler=False, callbacks=[evenstep.lightning.Balance(sampler)])

Lightning says itself where a batch begins and ends and what is differentiated, so no forward is followed: the gradient
of each loss is weighted where its backward begins. That holds for automatic and manual optimization alike, and leaves
the loss and what is logged as they are.

Fabric needs none of this: `evenstep.balance(model, sampler)` behind `fabric.setup`.
"""

import contextlib
import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from evenstep.torch.balance import step
from evenstep.torch.loop import Count, Loop
from evenstep.torch.sampler import BalancedBatchSampler
from evenstep.torch.shares import Shares

# The same framework has two names; a script's callbacks are of the one that its Trainer is of.
if TYPE_CHECKING or "pytorch_lightning" not in sys.modules:
    from lightning.pytorch import Callback
else:
    from pytorch_lightning import Callback

# What Lightning waits for other ranks in, between and inside training steps.
_STRATEGY_WAITS = ("reduce", "all_gather", "broadcast", "barrier")


class Balance(Callback):
    """Keeps the ranks of a Lightning Trainer in step while it fits.

    `sampler` is that of the training's loader, or the loader that `rebatch` gave. `count` is as in `balance`, but gets
    the batch. The position in the epoch is part of the Trainer's checkpoints.
    """

    def __init__(self, sampler: Shares, *, count: Count | None = None) -> None:
        """Raise TypeError, naming the argument, on anything else."""
        if not isinstance(sampler, Shares):
            raise TypeError(f"sampler: {type(sampler).__name__} is not a BalancedBatchSampler, nor from rebatch")
        if count is not None and not callable(count):
            raise TypeError(f"count: {type(count).__name__} is not callable; give a function of a batch")
        self._sampler = sampler
        self._count = count
        self._loop: Loop | None = None
        self._under_way = False  # a batch was begun and has not ended
        self._epoch_over = False  # with the last batch that ended
        # In the place of these methods while it fits. Kept for the next fit: Lightning compares them between two logs.
        self._waits: dict[tuple[Any, str], Callable[..., Any]] = {}

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Raise ValueError where Lightning would put a sampler of its own in the place of ours."""
        ours = isinstance(self._sampler, BalancedBatchSampler) and trainer.world_size > 1
        if stage == "fit" and ours and trainer._accelerator_connector.use_distributed_sampler:
            raise ValueError(
                "use_distributed_sampler: Lightning would put a sampler of its own in the place of Evenstep's; give "
                "Trainer(use_distributed_sampler=False)"
            )

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Meet the other ranks; the model is wrapped, and no batch is drawn."""
        mesh: Any = getattr(trainer.strategy, "device_mesh", None)
        if self._sampler.group is None and "data_parallel" in (getattr(mesh, "mesh_dim_names", None) or ()):
            self._sampler.group = mesh["data_parallel"]  # some ranks train on the same batches
        self._loop = Loop(trainer.strategy.model, self._sampler, self._count, steps_by_hand=True, weighs=True)
        for name in _STRATEGY_WAITS:
            self._leave_out(trainer.strategy, name)
        self._leave_out(trainer.fit_loop.epoch_loop, "_broadcast_sigterm_tensor")  # before each batch

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Begin a batch. Raises ValueError where it is not of the sampler."""
        if self._under_way:  # the module left the rest of the epoch out
            step(self._sampler)
        if self._loop is None:
            return
        if self._sampler.take() is None:
            raise ValueError(
                "sampler: the training's batches are not drawn from it; give DataLoader(..., batch_sampler=sampler), "
                "or the loader that rebatch gave"
            )
        self._loop.begin(batch)
        self._under_way = True

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: torch.Tensor) -> None:
        """Weigh a loss."""
        if self._loop is not None:
            self._loop.weigh(loss)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """End a batch."""
        step(self._sampler)
        self._under_way = False
        self._epoch_over = trainer.is_last_batch or batch_idx + 1 >= trainer.num_training_batches

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Let the model go."""
        if self._loop is not None:
            self._loop.end()
            self._loop = None
        for owner, name in self._waits:
            vars(owner).pop(name, None)

    def state_dict(self) -> dict[str, Any]:
        """Give the position in the epoch; a stream has none."""
        if not isinstance(self._sampler, BalancedBatchSampler):
            return {}
        return {"sampler": self._sampler.state_dict(), "epoch_over": self._epoch_over}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue behind what was trained on."""
        if not state_dict or not isinstance(self._sampler, BalancedBatchSampler):
            return
        self._sampler.load_state_dict(state_dict["sampler"])
        if state_dict["epoch_over"]:  # Lightning draws before it tells of the epoch
            self._sampler.set_epoch(self._sampler.epoch + 1)

    def _leave_out(self, owner: Any, name: str) -> None:
        """Leave the time inside a method of Lightning's, which waits for other ranks, out of this rank's."""
        method: Callable[..., Any] | None = getattr(owner, name, None)
        if method is None:
            return
        if (owner, name) not in self._waits:

            @functools.wraps(method)
            def waiting(*args: Any, **kwargs: Any) -> Any:
                with self._loop.stopwatch.paused() if self._loop is not None else contextlib.nullcontext():
                    return method(*args, **kwargs)

            self._waits[owner, name] = waiting
        setattr(owner, name, self._waits[owner, name])
