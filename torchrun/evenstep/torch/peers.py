"""The other ranks of a job, as one of them sees them: how they meet, exchange, and what rank 0 tells the core."""

import copy
import itertools
import logging
import os
import uuid
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn

from evenstep import agent
from evenstep.report import Hints, Row
from evenstep.torch.exchange import Exchange, Parcel, new_group
from evenstep.torch.hints import DeviceHints
from evenstep.torch.inputs import DrivingInputs
from evenstep.torch.memory import within
from evenstep.torch.observer import Observer
from evenstep.torch.schedule import Learned
from evenstep.torch.weight import Weight
from evenstep.torch.workload import Device, describe, workload

if TYPE_CHECKING:
    from evenstep.torch.loop import Loop

_log = logging.getLogger("evenstep")
_jobs = itertools.count()
_TINY = torch.finfo(torch.float64).tiny
_START_SECONDS = 2.0  # what the core has to say which sizes a job starts with


@dataclass(frozen=True)
class _Introduction:
    """What each rank tells the others once, when they meet."""

    obstacle: str | None  # why this rank's compute time cannot be measured
    core: str | None
    device: Device
    rank: int  # among those that share the batch
    free: bool  # no batch was drawn, and the user gave no sizes, so a job may start with others


class Peers:
    """The other ranks of the job, and on rank 0 the core."""

    def __init__(self, loop: "Loop") -> None:
        """Meet the other ranks. Keeps no reference to the loop, so that the stream to the core ends with it."""
        sampler = loop.sampler
        self.world = sampler.world
        self._sampler = sampler
        self._schedule = sampler.schedule
        self._stopwatch = loop.stopwatch
        self._device = loop.device
        self._inputs = DrivingInputs()
        self._group = new_group(ranks=sampler.team)
        self._parcel = Parcel(self.world)
        self._parts: list[tuple[int, Sequence[int]]] = []  # of the allocation that rank 0 is sending
        self._given = self._sent = sampler.batch_sizes
        self._memory = loop.memory
        self._limits: tuple[int, ...] = ()
        self._unreported: list[tuple[int, Exchange]] = []
        self._core: Any = None  # this and the next on rank 0
        self._opening: Any = None
        self._observer = Observer() if os.environ.get("EVENSTEP_POLICY") == "observe" else None
        self._hints: DeviceHints | None = None
        introductions = self._introduce(loop)
        # With tensor parallelism several ranks are one worker.
        self._workers = [[at for at, who in enumerate(introductions) if who.rank == r] for r in range(self.world)]
        workers_are_free = all(who.free for who in introductions)
        obstacle = _obstacle(introductions)
        self.balancing = obstacle is None
        if self.balancing and (address := os.environ.get("EVENSTEP_AGENT_ADDR") or agent.find()):
            self._hints = DeviceHints(address, loop.device)
            weakref.finalize(loop, self._hints.close)
        if dist.get_rank(self._group) == 0:
            _warn_of(loop.model, obstacle)
            if self.balancing:
                self._core = self._open(introductions, workload(loop.model), workers_are_free)
                # With the model, or at the end of the process: its hooks are what holds the loop.
                weakref.finalize(loop, self._core.close)
                if self._observer is not None:
                    weakref.finalize(loop, _tell, self._observer, self._core)
        if self.balancing and workers_are_free:
            self._start()
        # The group of the exchanges has one kind of operation, so the counts have their own.
        self._count_group = new_group(loop.device.type, sampler.team) if loop.count is not None else None

    def _start(self) -> None:
        """Start with the sizes that rank 0 hears of from the core, if any."""
        start = [self._core.start(_START_SECONDS) if self._core is not None else None]
        dist.broadcast_object_list(start, src=dist.get_process_group_ranks(self._group)[0], group=self._group)
        if start[0] is not None:
            self._sent = start[0]
            self._schedule.start(start[0])

    def weigh(self, terms: int | torch.Tensor) -> Callable[[], Weight]:
        """Give the weight of a forward whose loss averages over `terms`; the sum over all ranks is on its way."""
        mine = torch.as_tensor(terms).detach().to(self._device, torch.float64)
        total = mine.clone()
        work = dist.all_reduce(total, group=self._count_group, async_op=True)
        assert work is not None

        def weight() -> Weight:
            with self._stopwatch.blocking():
                work.wait()
            return self._group.size() * mine / total.clamp(min=_TINY)  # no rank has terms: the weight is 0, not 0 / 0

        return weight

    def exchange(self, step: int) -> None:
        """Issue the exchange of `step`."""
        if not self.balancing:
            return
        part, sizes = self._next_part()
        samples, seconds = self._stopwatch.read()
        used = torch.cuda.max_memory_allocated(self._device) if self._device.type == "cuda" else 0
        hints = Hints() if self._hints is None else self._hints.read()
        waited = self._stopwatch.read_wait()
        limit = self._memory.limit
        driving = self._inputs.read()

        def send(depth: int) -> Callable[[], Learned]:
            row = Row(depth, samples, seconds, *driving, waited, used, hints, limit)
            exchange = Exchange(self._group, row, part, sizes)
            if self._core is not None:
                self._unreported.append((step, exchange))
            return lambda: self._learn(exchange)

        self._schedule.issue(send)

    def _learn(self, exchange: Exchange) -> Learned:
        """Wait for an exchange."""
        with self._stopwatch.blocking():
            rows = self._by_worker(exchange.rows())
        self._sampler.measured = tuple((row.samples, row.seconds) for row in rows)
        return Learned(max(row.depth for row in rows), self._parcel.receive(*exchange.part()))

    def tell_core(self) -> None:
        """Report the exchanges that are complete; on rank 0."""
        while self._unreported and self._unreported[0][1].done():
            step, exchange = self._unreported.pop(0)
            rows = self._by_worker(exchange.rows())
            self._heed_limits([row.limit for row in rows])
            if self._observer is not None:
                self._observer.see(rows)
            # An answer can travel with the exchange of the step at hand at the earliest.
            self._core.report(step, self._schedule.consumed + self._schedule.depth + 1, rows)

    def _heed_limits(self, found: Sequence[int]) -> None:
        """Send sizes that fit into the memory of all, and have the core stay within it."""
        total, quantum = self._sampler.global_batch_size, self._sampler.micro_batch_size
        limits = tuple(limit or total for limit in found)
        if limits == (self._limits or (total,) * self.world):
            return
        self._limits = limits
        sizes = within(self._sent, limits, quantum)
        if sizes is None:
            _log.warning(
                "evenstep: memory holds only %d rows of the global batch of %d at once; the rest is trained in parts",
                sum(limits),
                total,
            )
            return
        self._sent, self._parts = sizes, self._parcel.cut(sizes)
        opening = copy.deepcopy(self._opening)  # the stream's thread reads the one that it has
        opening.job = f"{self._name}/{next(_jobs)}"
        for worker, limit, size in zip(opening.workers, limits, sizes, strict=True):
            worker.max_batch_size = limit // quantum * quantum
            worker.min_batch_size = min(worker.min_batch_size, worker.max_batch_size, size)
        self._opening = opening
        self._core.reopen(opening)

    def _by_worker(self, rows: Sequence[Row]) -> list[Row]:
        """Give a row for each worker: that of its slowest rank, with the largest look-ahead of all."""
        depth = max(row.depth for row in rows)
        found = []
        for ranks in self._workers:
            mine = [rows[at] for at in ranks]
            limit = min((row.limit for row in mine if row.limit), default=0)
            found.append(replace(max(mine, key=lambda row: row.seconds), depth=depth, limit=limit))
        return found

    def _next_part(self) -> tuple[int, Sequence[int]]:
        if self._core is not None and not self._parts:
            sizes = self._core.newest()
            if sizes is not None and sizes != self._sent:
                self._sent = sizes
                self._parts = self._parcel.cut(sizes)
        return self._parts.pop(0) if self._parts else (0, ())

    def _introduce(self, loop: "Loop") -> list[_Introduction]:
        core = os.environ.get("EVENSTEP_ADDR") or None
        free = self._schedule.drawn == 0 and not os.environ.get("EVENSTEP_BATCH_SIZES")
        mine = _Introduction(unmeasurable(loop), core, describe(loop.device), self._sampler.rank, free)
        everyone: list[_Introduction] = [mine] * self._group.size()
        dist.all_gather_object(everyone, mine, group=self._group)
        return everyone

    def agree(self, loop: "Loop") -> None:
        """Check that the ranks train in step; all of them get here at the same forward. Raises ValueError where not."""
        sampler = self._sampler
        settings = {
            **sampler.settings(),
            "epoch": sampler.epoch,
            "position in the epoch": ticket.place.position if (ticket := sampler.take()) is not None else 0,
            "EVENSTEP_BATCH_SIZES": self._given,
            "count": "not given" if loop.count is None else "given",
            "steps_by_hand": loop.steps_by_hand,
            "weigh": loop.weighs,
        }
        everyone: list[dict[str, Any]] = [settings] * self._group.size()
        dist.all_gather_object(everyone, settings, group=self._group)
        for rank, other in enumerate(everyone):
            for name, value in settings.items():
                if other[name] != value:
                    raise ValueError(
                        f"{name}: rank {rank} has {other[name]!r}, rank {sampler.rank} has {value!r}; "
                        "give the same on all ranks"
                    )

    def _open(self, introductions: Sequence[_Introduction], key: str, choose_start: bool) -> Any:
        from evenstep.core import Core
        from evenstep.v1 import balancer_pb2 as wire

        # Fewer than two rows break batch statistics and recompile a compiled model. The user's sizes may be so, though.
        least = 2 if min(self._sent) >= 2 else 1
        team = "" if self._sampler.team is None else f"-{self._sampler.team[0]}"  # others have jobs of their own
        workers = [introductions[ranks[0]] for ranks in self._workers]
        policy = os.environ.get("EVENSTEP_POLICY", "")
        job = os.environ.get("EVENSTEP_JOB") or f"job-{uuid.uuid4().hex}"
        self._name = f"{job}{team}"
        self._opening = opening = wire.Open(
            job=f"{self._name}/{next(_jobs)}",
            global_batch=self._sampler.global_batch_size,
            quantum=self._sampler.micro_batch_size,
            workers=[
                wire.Worker(
                    node=who.device.node,
                    device_type=who.device.type,
                    device=who.device.id,
                    device_memory_bytes=who.device.memory_bytes,
                    min_batch_size=least,
                )
                for who in workers
            ],
            policy=policy if self._observer is None else "equal",
            workload=key,
            choose_start=choose_start and self._observer is None,
        )
        return Core(introductions[0].core or "", opening, lambda: self._sent)


def _tell(observer: Observer, core: Any) -> None:
    """Say what was observed, at the end; finalizers run before those that were made earlier."""
    _log.warning(observer.line(core.reason.partition("; ")[2]))


def _obstacle(introductions: Sequence[_Introduction]) -> str | None:
    """Say why batch sizes stay as they are, if they do."""
    core = introductions[0].core
    if core is None:
        return (
            "no core. Start with torchrun --rdzv-backend=evenstep (torchrun's --standalone overwrites the backend), "
            "or name a core in EVENSTEP_ADDR"
        )
    # gRPC would take anything else for a host, and speak to it in the clear.
    if not core.startswith("unix:/"):
        return f"EVENSTEP_ADDR: {core!r} is not valid; give unix:/PATH (tcp: is not supported yet)"
    for rank, who in enumerate(introductions):
        if who.obstacle is not None:
            return f"rank {rank}: {who.obstacle}"
    return None


def unmeasurable(loop: "Loop") -> str | None:
    """Say why the compute time of a rank cannot be told from its wait for the others, if so."""
    kinds = {base.__name__ for module in loop.model.modules() for base in type(module).__mro__}
    if "FullyShardedDataParallel" in kinds:
        return "FullyShardedDataParallel waits for the other ranks in forward and backward; fully_shard can be measured"
    if "SyncBatchNorm" in kinds:
        return "SyncBatchNorm waits for the other ranks inside forward and backward"
    if len(loop.replicas) != 1 and not (loop.shards and not loop.replicas):
        remedy = "wrap the module that holds them, once" if loop.replicas else "call balance after it is wrapped"
        return f"the model holds {len(loop.replicas)} DistributedDataParallel modules; {remedy}"
    # The wait for the other ranks' counts would be on the device, between the stopwatch's events.
    if loop.count is not None and loop.device.type == "cuda":
        return "with count= on CUDA, compute cannot be told from the wait for the other ranks' counts"
    return None


def _warn_of(model: nn.Module, obstacle: str | None) -> None:
    if obstacle is not None:
        _log.warning("evenstep: batch sizes stay as they are: %s", obstacle)
    per_rank = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
    if any(isinstance(module, per_rank) for module in model.modules()):
        _log.warning(
            "evenstep: the model has BatchNorm, whose statistics are each rank's own: with uneven batches they differ "
            "from those of equal ones"
        )
