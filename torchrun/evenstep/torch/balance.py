"""The step loop: measure, tell, learn, weigh.

draw n samples -> forward, backward -> weighted all-reduce -> optimizer
     ^                    | compute time
     | allocation         v
exchange among the ranks (in the background) <-> rank 0 <-> the core
"""

import contextlib
import logging
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.autograd.graph import register_multi_grad_hook
from torch.nn.parallel import DistributedDataParallel

from evenstep.torch.collectives import sharded, watch
from evenstep.torch.compiles import Compiles
from evenstep.torch.memory import Memory, is_out_of_memory, put_back
from evenstep.torch.peers import Peers
from evenstep.torch.shares import Shares, Ticket, newest
from evenstep.torch.stopwatch import CudaClock, HostClock, Stopwatch
from evenstep.torch.weight import Leaves, Weight, rows, times, weighted

_log = logging.getLogger("evenstep")

Model = TypeVar("Model", bound=nn.Module)
Count = Callable[..., int | torch.Tensor]


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
            "sampler: it balances a model already; models that train on one batch, as in a GAN, go into one module that "
            "is balanced, with steps_by_hand=True; models that train on batches of their own need a sampler each"
        )
    for inner in model.modules():
        if any(isinstance(hook, _Hook) for hook in inner._forward_hooks.values()):
            raise ValueError(
                f"model: its {type(inner).__name__} is balanced already, and would be weighted twice; call balance once"
            )
    if count is not None and not weigh:
        raise ValueError("count: it is for weighting, which weigh=False leaves out; give one of the two")
    if count is not None and sampler.micro_batch_size > 1:
        raise ValueError("count: it cannot be combined with micro_batch_size, whose parts count for their rows")
    Loop(model, sampler, count, steps_by_hand, weigh).follow_forwards()
    return model


def scale_loss(loss: torch.Tensor, sampler: Shares | None = None) -> torch.Tensor:
    """Give the loss of this rank's batch times W n / N, for loops that `balance` is not for: no model, or no hooks.

    The gradients' mean over the W ranks then is that of the whole batch. `sampler` is by default the one that a batch
    was drawn from last. Call `step(sampler)` when the batch is done. Raises ValueError where `balance` weighs already,
    and RuntimeError where no batch was drawn.
    """
    sampler = sampler if sampler is not None else newest()
    ticket = None if sampler is None else sampler.take()
    if sampler is None or ticket is None:
        raise RuntimeError("scale_loss: no batch was drawn that is still to be trained on; is step() called too often?")
    if sampler.balanced:
        raise ValueError("sampler: it balances a model, whose gradients are weighted already; leave out one of the two")
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


class _Hook:
    """A module's hook that ends with the module: a copy and a pickle of it, which nothing trains, get an empty one."""

    def __init__(self, call: Callable[..., Any] | None = None) -> None:
        self._call = call

    # Dynamo must step over the hooks: a clock or a collective inside a compiled graph would break it.
    @torch.compiler.disable  # type: ignore[untyped-decorator, unused-ignore]
    def __call__(self, *args: Any) -> Any:
        return None if self._call is None else self._call(*args)

    def __reduce__(self) -> tuple[type["_Hook"], tuple[()]]:
        return _Hook, ()


class Loop:
    """One model's step loop, driven by the hooks of its forward, or by a framework that says what begins and ends."""

    def __init__(
        self, model: nn.Module, sampler: Shares, count: Count | None, steps_by_hand: bool, weighs: bool
    ) -> None:
        """Meet the other ranks, if the model says that there are any."""
        self.model = model
        self.sampler = sampler
        self.count = count
        self.steps_by_hand = steps_by_hand
        self.weighs = weighs
        self.shards = sharded(model)
        self.replicas = [m for m in model.modules() if isinstance(m, DistributedDataParallel)]
        self.inner = inner = self.replicas[0].module if self.replicas else model
        parameters = [p for p in inner.parameters() if p.requires_grad]
        if not parameters:
            raise ValueError("model: it has no parameter that requires a gradient")
        self._ticket: Ticket | None = None  # of the batch between its first forward and the end of its backward
        self._weight: Callable[[], Weight] | None = None  # what the backward of the forward under way is to ask
        self._ending = False  # the backward under way has been told to end the step
        self._reduces = True  # the backward to come ends with the all-reduce
        self._peers: Peers | None = None
        self._told: set[str] = set()
        self._rows = 0  # of the batch that had a forward
        self._parted = False  # one of its forwards had a part of its rows
        self._unsynced: list[DistributedDataParallel] = []  # by us, while a part's forward is under way
        self._ended_itself = False  # a backward ended the last step
        self._compiles = Compiles()
        self.memory = Memory()
        self._holds = False  # the step goes on, whatever had a backward
        self._counts = True  # what has a forward
        self._parameters = parameters
        self._leaves = Leaves([] if self.shards else parameters)  # in FSDP's backward others stand for the parameters
        self._drawn = 0  # batches drawn when the last forward began
        self.device = parameters[0].device
        self.stopwatch = Stopwatch(CudaClock() if self.device.type == "cuda" else HostClock())
        self._started = False
        if self.replicas or self.shards:
            self._meet()

        end_step = weakref.WeakMethod(self.step)
        sampler.end_step = lambda: (end_step() or sampler.finish)()
        sampler.loop = weakref.ref(self)
        sampler.balanced = True
        for module in self.shards:
            watch(module, self.stopwatch, _Hook)
        self._hooks: list[Any] = [inner.register_forward_pre_hook(_Hook(self._before_inner_forward))]
        if not self.shards:  # FSDP's parameters get their gradients behind its collectives
            self._hooks.append(register_multi_grad_hook(parameters, self._last_gradient))

    def follow_forwards(self) -> None:
        """Take each forward of the model for a batch's, and weigh what it returns."""
        # Fabric calls methods of the model past the module that it gives.
        outer = getattr(self.model, "_forward_module", self.model)
        # Before FSDP's own, which waits.
        outer.register_forward_pre_hook(_Hook(self._before_forward), with_kwargs=True, prepend=True)
        outer.register_forward_hook(_Hook(self._after_forward))

    def begin(self, batch: Any) -> None:
        """Begin to train on the oldest drawn batch, for which no forward is followed."""
        self._before_forward(self.model, (batch,), {})
        if not self.replicas:  # nobody waits before the forward, nor says when it begins
            self.stopwatch.resume()

    def weigh(self, loss: torch.Tensor) -> None:
        """Weigh the backward to come from `loss`, which is of the batch that was begun."""
        if (weight := self._weight) is None:
            return

        def hook(grad: torch.Tensor) -> torch.Tensor:
            handle.remove()  # of a second backward from the same loss we are told again
            return times(grad, weight())

        handle = loss.register_hook(hook)  # type: ignore[no-untyped-call, unused-ignore]

    def end(self) -> None:
        """Let the model go."""
        for hook in self._hooks:
            hook.remove()

    def _before_forward(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._weight = None
        self._sync_again()
        if not torch.is_grad_enabled():
            return
        ticket = self.sampler.take()
        if ticket is None:
            if self._peers is not None:
                self._weight = self._begin_backward_of_no_batch
            return
        if not self._started:
            self._start()
        self.stopwatch.pause()
        drawn = self.sampler.schedule.drawn
        if self._ticket is not None and drawn != self._drawn and not self.steps_by_hand:
            self._tell_once("a batch had a forward but no backward through its outputs, so the next is taken for it")
        if self._ticket is not ticket:
            self._rows, self._parted = 0, False
        self._ticket, self._drawn, self._ending, self._ended_itself = ticket, drawn, False, False
        self._reduces = all(replica.require_backward_grad_sync for replica in self.replicas)
        weight = self._weigh(ticket, args, kwargs)
        self._weight = lambda: self._begin_backward(weight)
        if self._cuts:
            self._check_parts(ticket)
            if self._rows < ticket.rows:
                self._leave_to_the_last_part()

    def _weigh(self, ticket: Ticket, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], Weight]:
        if not self._counts:
            return lambda: 0.0
        found = rows(args, kwargs)
        forwarded = self._forwarded(found, ticket)
        part = self._in_parts and ticket.weight > 0
        # A part weighs among the parts of its rank too, so it does with a single rank.
        terms = forwarded if part else ticket.weight
        self._rows += forwarded
        self._parted = self._parted or forwarded < ticket.rows
        if self._peers is None:
            return lambda: self.sampler.world * terms / ticket.total if part and self.weighs else 1.0
        self._peers.tell_core()
        if not self.weighs:
            return lambda: 1.0
        if kwargs.get("num_items_in_batch") is not None:
            self._tell_twice()
        if self.count is not None:
            return self._peers.weigh(0 if ticket.weight == 0 else self.count(*args, **kwargs))
        if found not in (None, forwarded):
            self._tell_of_rows(found, ticket)
        return lambda: self.sampler.world * terms / self._total(ticket)

    def _total(self, ticket: Ticket) -> int:
        with self.stopwatch.blocking():
            return ticket.total

    @property
    def training(self) -> bool:
        """Whether the model is in training mode."""
        return self.model.training and self.inner.training

    def _tell_twice(self) -> None:
        if "twice" in self._told:
            return
        self._told.add("twice")
        _log.warning(
            "evenstep: the model gets num_items_in_batch, so its loss may be divided by what all ranks count already, "
            "and weighting it is wrong then; give balance(..., weigh=False), under Trainer evenstep.torch.hf.balance"
        )

    def _forwarded(self, found: int | None, ticket: Ticket) -> int:
        """Give how many rows of the batch a forward is of: all, unless it got as many as a part may have."""
        if found is None or not self._in_parts:
            return ticket.rows
        fits = self._holds or found % self.sampler.micro_batch_size == 0 or found == ticket.rows - self._rows
        return found if fits and found <= ticket.rows else ticket.rows

    @property
    def _in_parts(self) -> bool:
        return self.sampler.micro_batch_size > 1 or self._holds

    @property
    def _cuts(self) -> bool:
        """Whether the script trains the batch in parts, the last of which ends the step."""
        return self._in_parts and not (self._holds or self.steps_by_hand)

    def _check_parts(self, ticket: Ticket) -> None:
        """Raise RuntimeError where ranks, whose numbers of parts differ, could not go on together."""
        if self._parted and self._rows > ticket.rows:
            raise RuntimeError(
                f"evenstep: rank {self.sampler.rank}: parts of a batch of {ticket.rows} rows had forwards of "
                f"{self._rows}, so which is the last is not known; give balance(..., steps_by_hand=True), and call "
                "evenstep.step(sampler) when a batch is done"
            )
        if self._parted and self.shards:
            raise RuntimeError(
                f"evenstep: rank {self.sampler.rank}: with fully_shard ranks wait for each other in each forward, and "
                "their numbers of parts differ; train each batch whole"
            )

    def _leave_to_the_last_part(self) -> None:
        """Leave out the all-reduce of the part whose forward begins: there is one a step, however many parts."""
        self._unsynced = [replica for replica in self.replicas if replica.require_backward_grad_sync]
        for replica in self._unsynced:
            replica.require_backward_grad_sync = False

    def _sync_again(self) -> None:
        for replica in self._unsynced:
            replica.require_backward_grad_sync = True
        self._unsynced = []

    def _before_inner_forward(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        if self._ticket is not None:
            self.stopwatch.resume()

    def _after_forward(self, module: nn.Module, args: tuple[Any, ...], outputs: Any) -> Any:
        self._sync_again()  # DDP has read it
        weight, self._weight = self._weight, None
        if weight is None:
            return outputs
        # A gradient that is taken inside the step, of an input for a penalty, is no backward of the step's.
        outputs, found = weighted(outputs, lambda: weight() if self._leaves.reached() else 1.0, self._leaves.own)
        if found == 0:
            kind = type(outputs).__name__
            self._tell_once(f"the model returned a {kind} without a tensor to differentiate, so nothing is weighted")
        return outputs

    def _begin_backward(self, weight: Callable[[], Weight]) -> Weight:
        if not self._ending:
            self._ending = True
            _queue_callback(self._end_backward)
        return weight()

    def _begin_backward_of_no_batch(self) -> Weight:
        self._tell_once("a backward has no batch of its own, so its gradient is not weighted")
        return 1.0

    def _last_gradient(self, grads: Sequence[torch.Tensor | None]) -> None:
        if self._ticket is not None:
            self.stopwatch.last_gradient()

    def _end_backward(self) -> None:
        """End the step. Queued as the backward began, so it runs before DDP's wait for the all-reduce."""
        self._ending = False
        ticket = self._ticket
        if ticket is None:
            return
        if self.shards:
            self.stopwatch.last_gradient()
        if not (self.steps_by_hand or self._holds or (self._in_parts and self._rows < ticket.rows)):
            self._finish(ticket)
            self._ended_itself = True
        _queue_callback(self.stopwatch.released)  # behind DDP's

    def train_within_memory(self, train: Callable[..., Any], batch: Sequence[torch.Tensor]) -> None:
        """Train one batch, in parts where it does not fit."""
        if self.shards:
            self._train_part(train, batch)
            return
        rows, done = len(batch[0]), 0
        part = min(rows, self.memory.limit or rows)
        self._holds, unsynced = True, False
        try:
            while done < rows:
                piece = [tensor[done : done + part] for tensor in batch]
                last = done + part >= rows
                if last and len(piece[0]) <= self.memory.fits:
                    self._train_part(train, piece)
                    unsynced = False
                elif not self._try_part(train, piece):
                    part = self.memory.fail(len(piece[0]))
                    continue
                else:
                    unsynced = True
                done += part
            if unsynced and self.replicas:  # an all-reduce of what is there
                self._counts = False
                self._train_part(train, [tensor[:2] for tensor in batch])
        finally:
            self._holds, self._counts = False, True
        ticket = self._ticket
        if ticket is not None and not self.steps_by_hand:
            self._finish(ticket)
            self._ended_itself = True

    def _train_part(self, train: Callable[..., Any], batch: Sequence[torch.Tensor]) -> None:
        try:
            train(*batch)
        except (RuntimeError, MemoryError) as error:
            if is_out_of_memory(error):
                raise RuntimeError(self._out_of_memory(len(batch[0]))) from error
            raise

    def _try_part(self, train: Callable[..., Any], batch: Sequence[torch.Tensor]) -> bool:
        """Train a part without communication; False where it does not fit, as if it had not been tried."""
        counted, number = self._rows, len(batch[0])
        with contextlib.ExitStack() as stack:
            for replica in self.replicas:
                stack.enter_context(replica.no_sync())
            try:
                with put_back(self._parameters):
                    train(*batch)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                if number == 1:
                    raise RuntimeError(self._out_of_memory(1)) from error
            else:
                self.memory.fits = max(self.memory.fits, number)
                return True
        for replica in self.replicas:  # the others have passed DDP's broadcast of buffers, once
            replica.require_forward_param_sync = False
        self._rows = counted
        self.stopwatch.spoil()
        _log.warning("evenstep: rank %d: %d rows do not fit into memory; trying fewer", self.sampler.rank, number)
        return False

    def _out_of_memory(self, number: int) -> str:
        what = "one row does" if number == 1 else f"{number} rows do"
        return (
            f"evenstep: rank {self.sampler.rank}: {what} not fit into memory, and no smaller part can be tried; give a "
            "smaller global batch or a smaller model"
        )

    def step(self) -> None:
        """End the step, unless the backward has."""
        if self._ended_itself:
            self._ended_itself = False
            return
        ticket = self.sampler.take()
        if ticket is None:
            raise RuntimeError("step: no batch was drawn that is not done yet")
        self._reduces = True
        self._finish(ticket)

    def _finish(self, ticket: Ticket) -> None:
        self._ticket = None
        if self._compiles.any() or ticket.weight == 0:
            self.stopwatch.spoil()
        self.stopwatch.finish(ticket.rows)
        if self._peers is not None and self._reduces:
            self._peers.exchange(ticket.step)
        self.sampler.finish()

    def _meet(self) -> None:
        """Meet the other ranks, best before the first draw; all of them get here, since each has wrapped the model."""
        _ = self.sampler.schedule  # with which its world is known
        if self.sampler.world > 1 and (self.sampler.group is not None or self.sampler.world == dist.get_world_size()):
            self._check_group()
            self._peers = Peers(self)

    def _check_group(self) -> None:
        """Raise ValueError where gradients are not averaged over all that share the batch."""
        found = [dist.get_process_group_ranks(replica.process_group) for replica in self.replicas]
        meshes = {p.device_mesh for module in self.shards for p in module.parameters() if hasattr(p, "device_mesh")}
        found += [mesh.mesh.flatten().tolist() for mesh in meshes]
        for ranks in found:
            if not set(self.sampler.workers) <= set(ranks):
                raise ValueError(
                    f"group: the ranks {list(self.sampler.workers)} share the batch, but the model averages gradients "
                    f"over {ranks}; give the sampler the model's group"
                )

    def _start(self) -> None:
        """Meet the other ranks, where they have not; all of them get here at the same forward."""
        self._started = True
        if not (dist.is_available() and dist.is_initialized()):
            if self.sampler.world > 1:
                _log.warning("evenstep: no process group: gradients are not weighted, batch sizes stay equal")
            return
        if self.sampler.group is None and self.sampler.world != dist.get_world_size():
            raise RuntimeError(
                f"evenstep: the first batch was drawn for {self.sampler.world} workers, the process group has "
                f"{dist.get_world_size()}; call init_process_group before the first batch is drawn"
            )
        if self.sampler.world > 1:
            self._peers = self._peers or Peers(self)
            self._peers.agree(self)

    def _tell_of_rows(self, found: int | None, ticket: Ticket) -> None:
        if "rows" in self._told:
            return
        self._told.add("rows")
        _log.warning(
            "evenstep: rank %d: the model got %d rows where the sampler handed out %d; its gradient counts for %d. "
            "If the loss averages over the rows that the model gets, give balance(..., count=) a function of them",
            self.sampler.rank,
            found,
            ticket.rows,
            ticket.weight,
        )

    def _tell_once(self, fault: str) -> None:
        if fault not in self._told:
            self._told.add(fault)
            supported = (
                "train each batch with forwards and one backward through their outputs, or give "
                "balance(..., steps_by_hand=True)"
            )
            _log.warning("evenstep: rank %d: %s; %s", self.sampler.rank, fault, supported)


def _queue_callback(callback: Callable[[], None]) -> None:
    """Have `callback` run after the backward under way, behind those that were queued before."""
    torch.autograd.Variable._execution_engine.queue_callback(callback)
