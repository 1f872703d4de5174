"""The step loop of one model: measure, tell, learn, weigh.

draw n samples -> forward, backward -> weighted all-reduce -> optimizer
     ^                    | compute time
     | allocation         v
exchange among the ranks (in the background) <-> rank 0 <-> the core
"""

import logging
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.autograd.graph import register_multi_grad_hook
from torch.nn.parallel import DistributedDataParallel

from evenstep.torch.collectives import issued, sharded, watch
from evenstep.torch.compiles import Compiles
from evenstep.torch.memory import Fitting, Memory
from evenstep.torch.parts import Parts
from evenstep.torch.peers import Peers
from evenstep.torch.shares import Shares, Ticket
from evenstep.torch.stopwatch import CudaClock, HostClock, Stopwatch
from evenstep.torch.told import Told, watch_optimizers
from evenstep.torch.weight import Leaves, Weight, rows, times, weighted

_log = logging.getLogger("evenstep")

Count = Callable[..., int | torch.Tensor]


class Hook:
    """A module's hook that ends with the module: a copy and a pickle of it, which nothing trains, get an empty one."""

    def __init__(self, call: Callable[..., Any] | None = None) -> None:
        """Do `call` in the hook."""
        self._call = call

    # Dynamo must step over the hooks: a clock or a collective inside a compiled graph would break it.
    @torch.compiler.disable  # type: ignore[untyped-decorator, unused-ignore]
    def __call__(self, *args: Any) -> Any:
        """Be called by torch."""
        return None if self._call is None else self._call(*args)

    def __reduce__(self) -> tuple[type["Hook"], tuple[()]]:
        """Give an empty one."""
        return Hook, ()


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
        parameters = [p for p in model.parameters() if p.requires_grad]
        if not parameters:
            raise ValueError("model: it has no parameter that requires a gradient")
        self._ticket: Ticket | None = None  # of the batch between its first forward and the end of its backward
        self._weight: Callable[[], Weight] | None = None  # what the backward of the forward under way is to ask
        self._ending = False  # the backward under way has been told to end the step
        self.reduces = True  # the backward to come ends with the all-reduce
        self._peers: Peers | None = None  # None alone, and before they are met
        self._told = Told(sampler)
        self._parts = Parts(sampler, self.replicas, bool(self.shards), steps_by_hand)
        self._ended_itself = False  # a backward ended the last step
        self._compiles = Compiles()
        self.memory = Memory()
        self._fitting = Fitting(self.memory, sampler, self.replicas, parameters)
        self._counts = True  # what has a forward; else its gradient weighs nothing
        self._leaves = Leaves([] if self.shards else parameters)  # in FSDP's backward others stand for the parameters
        self._drawn = 0  # batches drawn when the last forward began
        self.device = parameters[0].device
        self.stopwatch = Stopwatch(CudaClock() if self.device.type == "cuda" else HostClock(), self._collectives())
        self._started = False  # a batch had its first forward
        if self.replicas or self.shards:
            self._meet()

        end_step = weakref.WeakMethod(self.step)
        sampler.end_step = lambda: (end_step() or sampler.finish)()
        sampler.loop = weakref.ref(self)
        sampler.balanced = True
        for module in self.shards:
            watch(module, self.stopwatch, Hook)
        self._hooks: list[Any] = [inner.register_forward_pre_hook(Hook(self._before_inner_forward))]
        if not self.shards:  # FSDP's parameters get their gradients behind its collectives
            # Torch frees neither what such a hook holds nor its parameters while it is there.
            last = weakref.WeakMethod(self._last_gradient)
            self._hooks.append(register_multi_grad_hook(parameters, lambda grads: (last() or (lambda _: None))(grads)))
            weakref.finalize(self, self._hooks[-1].remove)
        watch_optimizers(sampler)

    def _collectives(self) -> Callable[[], int]:
        """Give what counts the collectives that the script may wait in."""
        if not (self.replicas or self.shards):
            return lambda: 0
        groups = {dist.group.WORLD, *(replica.process_group for replica in self.replicas)}
        groups.update(*(mesh.get_all_groups() for mesh in self._meshes()))
        return issued([group for group in groups if group is not None])

    def _meshes(self) -> set[Any]:
        return {p.device_mesh for module in self.shards for p in module.parameters() if hasattr(p, "device_mesh")}

    def follow_forwards(self) -> None:
        """Take each forward of the model for a batch's, and weigh what it returns."""
        # Fabric calls methods of the model past the module that it gives.
        outer = getattr(self.model, "_forward_module", self.model)
        # Before FSDP's own, which waits.
        outer.register_forward_pre_hook(Hook(self._before_forward), with_kwargs=True, prepend=True)
        outer.register_forward_hook(Hook(self._after_forward))

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
        self._parts.sync_again()
        if not torch.is_grad_enabled():
            return
        ticket = self.sampler.take()
        if ticket is None:
            if self._peers is not None and self.weighs:
                self._weight = self._begin_backward_of_no_batch
            return
        if not self._started:
            self._start()
        self.stopwatch.end_stretch()
        self.stopwatch.pause()
        if self.steps_by_hand:
            self.sampler.check_steps()
        drawn = self.sampler.schedule.drawn
        if self._ticket is not None and drawn != self._drawn and not self.steps_by_hand:
            self._parts.check_whole(ticket)
            self._told.fault("a batch had a forward but no backward through its outputs, so the next is taken for it")
        if self._ticket is not ticket:
            self._parts.begin()
        self._ticket, self._drawn, self._ending, self._ended_itself = ticket, drawn, False, False
        self.reduces = all(replica.require_backward_grad_sync for replica in self.replicas)
        weight = self._weigh(ticket, args, kwargs)
        self._weight = lambda: self._begin_backward(weight)
        self._parts.check(ticket)
        self._parts.leave_to_the_last(ticket)

    def _weigh(self, ticket: Ticket, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], Weight]:
        if not self._counts:
            return lambda: 0.0
        found = rows(args, kwargs)
        forwarded = self._parts.forward(found, ticket)
        part = self._parts.allowed and ticket.weight > 0
        # A part weighs among the parts of its rank too, so it does with a single rank.
        terms = forwarded if part else ticket.weight
        if self._peers is None:
            return lambda: self.sampler.world * terms / ticket.total if part and self.weighs else 1.0
        self._peers.tell_core()
        if not self.weighs:
            return lambda: 1.0
        if kwargs.get("num_items_in_batch") is not None:
            self._told.counted_already()
        if self.count is not None:
            return self._peers.weigh(0 if ticket.weight == 0 else self.count(*args, **kwargs))
        if found not in (None, forwarded):
            self._told.rows(found, ticket)
        return lambda: self.sampler.world * terms / self._total(ticket)

    def _total(self, ticket: Ticket) -> int:
        with self.stopwatch.blocking():
            return ticket.total

    @property
    def training(self) -> bool:
        """Whether the model is in training mode."""
        return self.model.training and self.inner.training

    def _before_inner_forward(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        if self._ticket is not None:
            self.stopwatch.resume()

    def _after_forward(self, module: nn.Module, args: tuple[Any, ...], outputs: Any) -> Any:
        self._parts.sync_again()
        weight, self._weight = self._weight, None
        if weight is None:
            return outputs
        self.stopwatch.begin_stretch()
        # A gradient that is taken inside the step, of an input for a penalty, is no backward of the step's.
        outputs, found = weighted(outputs, lambda: weight() if self._leaves.reached() else 1.0, self._leaves.own)
        if found == 0:
            kind = type(outputs).__name__
            self._told.fault(f"the model returned a {kind} without a tensor to differentiate, so nothing is weighted")
        return outputs

    def _begin_backward(self, weight: Callable[[], Weight]) -> Weight:
        if not self._ending:
            self._ending = True
            self.stopwatch.end_stretch()
            _queue_callback(self._end_backward)
        return weight()

    def _begin_backward_of_no_batch(self) -> Weight:
        self._told.fault("a backward has no batch of its own, so its gradient is not weighted")
        return self._begin_backward(lambda: 1.0)

    def _last_gradient(self, grads: Sequence[torch.Tensor | None]) -> None:
        if not self._ending and self._peers is not None:
            self._told.fault(
                "the model's parameters got a gradient past the outputs of its forward, which no weight is on"
            )
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
        if self._parts.done(ticket):
            self._finish(ticket)
            self._ended_itself = True
        _queue_callback(self.stopwatch.released)  # behind DDP's

    def train_within_memory(self, train: Callable[..., Any], batch: Sequence[torch.Tensor]) -> None:
        """Train one batch, in parts where it does not fit."""
        if self.shards:
            self._fitting.train_whole(train, batch)
            return
        with self._parts.of_any_size():
            reduced = self._fitting.train(train, batch, self._parts, self.stopwatch)
            if not reduced and self.replicas:  # an all-reduce of what is there
                self._counts = False
                try:
                    self._fitting.train_whole(train, [tensor[:2] for tensor in batch])
                finally:
                    self._counts = True
        ticket = self._ticket
        if ticket is not None and not self.steps_by_hand:
            self._finish(ticket)
            self._ended_itself = True

    def step(self) -> None:
        """End the step, unless the backward has."""
        if self._ended_itself:
            self._ended_itself = False
            return
        ticket = self.sampler.take()
        if ticket is None:
            raise RuntimeError("step: no batch was drawn that is not done yet")
        self.reduces = True
        if self._ticket is ticket and (fault := self._parts.fault(ticket)) is not None:
            self._told.fault(fault)
        self._finish(ticket)

    def _finish(self, ticket: Ticket) -> None:
        self._ticket = None
        if self._compiles.any() or ticket.weight == 0:
            self.stopwatch.spoil()
        self.stopwatch.finish(ticket.rows)
        if self._peers is not None and self.reduces:
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
        found += [mesh.mesh.flatten().tolist() for mesh in self._meshes()]
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


def _queue_callback(callback: Callable[[], None]) -> None:
    """Have `callback` run after the backward under way, behind those that were queued before."""
    torch.autograd.Variable._execution_engine.queue_callback(callback)
