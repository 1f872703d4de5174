"""Right-sized batches under transformers' Trainer, in one line.

    trainer = Trainer(model, args, train_dataset=dataset, data_collator=collate)
    evenstep.torch.hf.balance(trainer)

Trainer knows two kinds of losses. Some are sums that are divided by `num_items_in_batch`, which Trainer counts over all
ranks and the whole accumulation window: they are right with uneven batches as they are. Others are the mean of a batch,
and count for what they average over: the labels that are not ignored, or rows where there are no labels. Many models
take `num_items_in_batch` and ignore it, so which kind a loss is of is tried, once, on the first batch. Trainer gets the
weighted loss, so the mean over ranks that it logs is that of the global batch.
"""

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler

from evenstep.torch.balance import balance as balance_model
from evenstep.torch.sampler import BalancedBatchSampler
from evenstep.torch.weight import rows

_IGNORED = -100  # the label of what no loss counts
_TINY = torch.finfo(torch.float64).tiny
# What a loader of ours takes over from Trainer's.
_LOADER = (
    "collate_fn",
    "num_workers",
    "pin_memory",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "generator",
    "prefetch_factor",
    "persistent_workers",
    "in_order",
)


def balance(trainer: Any, *, count: Callable[[Any], int | torch.Tensor] | None = None) -> Any:
    """Keep the ranks of a transformers Trainer in step, and return it. Call it before `trainer.train()`.

    The global batch of a forward is `per_device_train_batch_size` times the ranks, as ever; samples come in an order of
    Evenstep's own, seeded by `data_seed`, else `seed`. All else is as the TrainingArguments say.

    Where the loss is the mean of a batch over something else than its labels that are not -100, such as rows of many
    labels or their class weights, `count` gets the batch and returns what it averages over, a number or a tensor.

    Raises TypeError on what is no Trainer, and ValueError, naming the setting, on what uneven batches exclude.
    """
    if not all(hasattr(trainer, name) for name in ("get_train_dataloader", "get_batch_samples", "accelerator")):
        raise TypeError(f"trainer: {type(trainer).__name__} is not a Trainer of transformers 4.57 or newer")
    if isinstance(getattr(trainer.compute_loss, "__self__", None), _Balanced):
        raise ValueError("trainer: it is balanced already")
    if count is not None and not callable(count):
        raise TypeError(f"count: {type(count).__name__} is not callable; give a function of a batch")
    if trainer.args.auto_find_batch_size:
        raise ValueError("auto_find_batch_size: it would change the global batch; leave it out")
    for name in ("split_batches", "dispatch_batches"):
        if getattr(trainer.accelerator, name, None):
            raise ValueError(f"accelerator_config.{name}: it deals even batches to the ranks; leave it out")
    for kind in ("tp", "cp", "sp"):
        if (size := getattr(trainer, f"get_{kind}_size", lambda: 1)()) > 1:
            raise ValueError(f"{kind}_size: with {size} ranks to a batch Trainer cannot be balanced; give 1")
    _Balanced(trainer, count)
    return trainer


class _Balanced:
    """Stands in front of the trainer's own methods that give batches and losses."""

    def __init__(self, trainer: Any, count: Callable[[Any], int | torch.Tensor] | None) -> None:
        self._trainer = trainer
        self._count = count
        self._own_loader = trainer.get_train_dataloader
        self._own_samples = trainer.get_batch_samples
        self._own_loss = trainer.compute_loss
        self._sampler: BalancedBatchSampler | None = None
        self._model: Any = None  # the one that it balances
        # The loss, by num_items_in_batch; None before it was tried. One that `count` is of is a mean.
        self._divides: bool | None = None if count is None else False
        # By step, in the window at hand: what a loss counts for that is a batch's mean, and what one that is divided.
        self._weights: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        trainer.get_train_dataloader = self.loader
        trainer.get_batch_samples = self.samples
        trainer.compute_loss = self.loss

    def loader(self) -> Any:
        """Give the trainer's loader, over a sampler of ours."""
        from accelerate.data_loader import prepare_data_loader

        own = self._own_loader()
        sampler = self._make_sampler(own)
        kept = {name: getattr(own, name) for name in _LOADER if hasattr(own, name)}
        accelerator = self._trainer.accelerator
        return prepare_data_loader(
            DataLoader(own.dataset, batch_sampler=sampler, **kept),
            accelerator.device,
            num_processes=1,  # the sampler deals to the ranks
            process_index=0,
            put_on_device=True,
            rng_types=list(accelerator.rng_types or ()),
            dispatch_batches=False,
            non_blocking=getattr(accelerator, "non_blocking", False),
        )

    def _make_sampler(self, own: Any) -> BalancedBatchSampler:
        args = self._trainer.args
        if self._sampler is None or self._trainer.model_wrapped is not self._model:
            self._sampler = BalancedBatchSampler(
                own.dataset,
                args.train_batch_size * args.world_size,
                seed=args.seed if args.data_seed is None else args.data_seed,
                shuffle=_shuffles(own),
                drop_last=args.dataloader_drop_last,
            )
        elif self._sampler.dataset_size != len(own.dataset):
            raise ValueError("train_dataset: its size changed after training began; give a new Trainer the new one")
        return self._sampler

    def samples(self, *args: Any) -> Any:
        """Give what the trainer draws for an optimizer step, and note what each batch counts for."""
        sampler, model = self._sampler, self._trainer.model_wrapped
        assert sampler is not None
        if model is not self._model:
            self._model = balance_model(model, sampler, weigh=False)
        batches, items = self._own_samples(*args)
        if sampler.world > 1 and batches:
            self._weigh(sampler, batches)
        return batches, items

    def _weigh(self, sampler: BalancedBatchSampler, batches: Sequence[Any]) -> None:
        """Find out what each batch of the window counts for, by what all ranks have."""
        tickets = sampler.drawn(len(batches))
        terms = torch.stack([self._terms(batch, ticket.rows) for batch, ticket in zip(batches, tickets, strict=True)])
        # A row that is repeated because there were too few for all ranks is counted by Trainer, and is not to be.
        real = torch.tensor([float(ticket.weight > 0) for ticket in tickets], dtype=terms.dtype, device=terms.device)
        loop = sampler.loop() if sampler.loop is not None else None
        with loop.stopwatch.paused() if loop is not None else contextlib.nullcontext():
            everywhere = self._trainer.accelerator.reduce(torch.stack([terms, terms * real]), reduction="sum")
        counted, wanted = everywhere
        if not getattr(self._trainer.args, "average_tokens_across_devices", False):
            counted = sampler.world * terms  # each rank divides by its own
        of_means = sampler.world * terms * real / wanted.clamp(min=_TINY)
        of_sums = counted.sum() / wanted.sum().clamp(min=_TINY) * real
        self._weights = {t.step: (mean, summed) for t, mean, summed in zip(tickets, of_means, of_sums, strict=True)}

    def _terms(self, batch: Any, rows_drawn: int) -> torch.Tensor:
        """Count what the loss of a batch averages over."""
        found: Any
        labels = batch.get("shift_labels", batch.get("labels"))
        if self._count is not None:
            found = self._count(batch)
        elif not isinstance(labels, torch.Tensor):
            found = rows((), dict(batch))
            found = rows_drawn if found is None else found
        else:
            if getattr(self._trainer, "_loss_shifts_labels", False) and "shift_labels" not in batch:
                labels = labels[..., 1:]
            found = labels.ne(_IGNORED).sum()
        return torch.as_tensor(found, device=self._trainer.args.device).double()

    def loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Give the trainer's loss, in training times what it counts for."""
        ticket = self._sampler.take() if self._sampler is not None and torch.is_grad_enabled() else None
        weights = self._weights.get(ticket.step) if ticket is not None else None
        if weights is None:
            return self._own_loss(model, inputs, *args, **kwargs)
        items = kwargs.get("num_items_in_batch")
        if items is not None and self._divides is None:
            self._divides = self._try(model, inputs, *args, **kwargs)
        found = self._own_loss(model, inputs, *args, **kwargs)
        weight = weights[items is not None and bool(self._divides)]
        if isinstance(found, tuple):
            return (_times(found[0], weight), *found[1:])
        return _times(found, weight)

    def _try(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> bool | None:
        """Say whether the loss is divided by num_items_in_batch, the same on all ranks; None where this batch is mute.

        A model that ignores it gives the same loss when it is doubled.
        """
        losses = []
        model.eval()  # without dropout, and without a trace in batch statistics
        devices = [self._trainer.args.device] if self._trainer.args.device.type == "cuda" else []
        for factor in (1, 2):
            more = {**kwargs, "num_items_in_batch": kwargs["num_items_in_batch"] * factor}
            with torch.no_grad(), torch.random.fork_rng(devices):
                found = self._own_loss(model, dict(inputs), *args, **more)
            losses.append(float(found[0] if isinstance(found, tuple) else found))
        model.train()
        one, two = losses
        speaks = math.isfinite(one) and one != 0
        votes = torch.tensor([speaks and abs(one - 2 * two) < abs(one - two), speaks], dtype=torch.float64)
        yes, all_votes = self._trainer.accelerator.reduce(votes.to(self._trainer.args.device), reduction="sum").tolist()
        return bool(2 * yes > all_votes) if all_votes else None


def _times(loss: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    # The mean over no terms is not a number; it counts for nothing.
    return torch.where(weight == 0, torch.zeros_like(loss), loss * weight.to(loss.dtype))


def _shuffles(loader: Any) -> bool:
    """Say whether a loader shuffles. Raises ValueError where its order is neither random nor that of the dataset."""
    if isinstance(loader.dataset, IterableDataset):
        raise ValueError("train_dataset: a stream has no samples to choose from; give a map-style dataset")
    batches: Any = getattr(loader, "batch_sampler", None)
    while hasattr(batches, "batch_sampler"):  # accelerate's
        batches = batches.batch_sampler
    order = getattr(batches, "sampler", None)
    if isinstance(order, RandomSampler) and not order.replacement and order.num_samples == len(loader.dataset):
        return True
    if isinstance(order, SequentialSampler):
        return False
    raise ValueError(
        f'train_sampling_strategy: a {type(order).__name__} chooses samples by itself; give "random" or "sequential"'
    )
