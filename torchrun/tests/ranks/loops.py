"""As exactness.py, for loops beyond plain DistributedDataParallel: loops.py CASE...

Prints one JSON line a case on rank 0: the largest relative difference from one process, how many batch sizes each rank
saw at least, and which the sizes were multiples of.
"""

import copy
import itertools
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from exactness import (
    DATA,
    FEATURES,
    GLOBAL_BATCH,
    LABELS,
    PAUSE_SECONDS,
    Net,
    loss_of,
    steps_of,
)
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

import evenstep.torch as evenstep

EPOCHS = 3
Train = Callable[["Loop", torch.Tensor, torch.Tensor], None]


@dataclass
class Loop:
    """What a case trains with."""

    model: nn.Module
    sampler: evenstep.BalancedBatchSampler
    parameters: list[nn.Parameter]
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler = field(default_factory=lambda: torch.amp.GradScaler("cpu", enabled=True))


def plainly(loop: Loop, x: torch.Tensor, y: torch.Tensor) -> None:
    loss_of(loop.model, x, y).backward()
    loop.optimizer.step()


def scaled_and_clipped(loop: Loop, x: torch.Tensor, y: torch.Tensor) -> None:
    loop.scaler.scale(loss_of(loop.model, x, y)).backward()
    loop.scaler.unscale_(loop.optimizer)
    nn.utils.clip_grad_norm_(loop.parameters, 0.1)
    loop.scaler.step(loop.optimizer)
    loop.scaler.update()


def clipped(loop: Loop, x: torch.Tensor, y: torch.Tensor) -> None:
    loss_of(loop.model, x, y).backward()
    nn.utils.clip_grad_norm_(loop.parameters, 0.1)
    loop.optimizer.step()


def in_two_backwards(loop: Loop, x: torch.Tensor, y: torch.Tensor) -> None:
    for _ in range(2):
        loss_of(loop.model, x, y).backward()
    loop.optimizer.step()
    if loop.sampler.steps_by_hand:  # type: ignore[attr-defined]
        evenstep.step(loop.sampler)


def with_some_skipped(loop: Loop, x: torch.Tensor, y: torch.Tensor) -> None:
    loop.calls = getattr(loop, "calls", 0) + 1  # type: ignore[attr-defined]
    if loop.calls % 3:  # type: ignore[attr-defined]
        plainly(loop, x, y)
    evenstep.step(loop.sampler)


def some_skipped(loop: Loop, x: torch.Tensor, y: torch.Tensor) -> None:
    loop.calls = getattr(loop, "calls", 0) + 1  # type: ignore[attr-defined]
    if loop.calls % 3:  # type: ignore[attr-defined]
        plainly(loop, x, y)


def by_hand(loop: Loop, x: torch.Tensor, y: torch.Tensor) -> None:
    evenstep.scale_loss(loss_of(loop.model, x, y)).backward()
    for parameter in loop.parameters:
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()  # type: ignore[operator]
    loop.optimizer.step()
    evenstep.step(loop.sampler)


def in_parts(loop: Loop, x: torch.Tensor, y: torch.Tensor) -> None:
    parts = list(zip(x.split(4), y.split(4), strict=True))
    for at, (px, py) in enumerate(parts):
        loop.model.require_backward_grad_sync = at + 1 == len(parts)  # type: ignore[assignment]
        loss_of(loop.model, px, py).backward()
    loop.optimizer.step()


def in_parts_synced_by_us(loop: Loop, x: torch.Tensor, y: torch.Tensor) -> None:
    for px, py in zip(x.split(4), y.split(4), strict=True):
        loss_of(loop.model, px, py).backward()
    loop.optimizer.step()


def against_themselves(loop: Loop, x: torch.Tensor, y: torch.Tensor) -> None:
    """Train on the samples that the model gets most wrong, which a gradient inside the step finds."""
    x = x.clone().requires_grad_()
    (uphill,) = torch.autograd.grad(loss_of(loop.model, x, y), x)
    plainly(loop, (x + 0.1 * uphill.sign()).detach(), y)


def accumulating(loop: Loop, x: torch.Tensor, y: torch.Tensor) -> None:
    loop.calls = getattr(loop, "calls", 0) + 1  # type: ignore[attr-defined]
    (loss_of(loop.model, x, y) / 2).backward()
    if loop.calls % 2 == 0:  # type: ignore[attr-defined]
        loop.optimizer.step()
        loop.optimizer.zero_grad()


def accumulating_unsynced(loop: Loop, x: torch.Tensor, y: torch.Tensor) -> None:
    loop.calls = getattr(loop, "calls", 0) + 1  # type: ignore[attr-defined]
    last = loop.calls % 2 == 0  # type: ignore[attr-defined]
    if hasattr(loop.model, "set_requires_gradient_sync"):
        loop.model.set_requires_gradient_sync(last)
    (loss_of(loop.model, x, y) / 2).backward()
    if last:
        loop.optimizer.step()
        loop.optimizer.zero_grad()


class FromRows(nn.Module):
    """Takes a batch that is no tensor: a list of rows."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, rows: Any) -> Any:
        return self.inner(torch.stack(list(rows)))


def of_rows(loop: Loop, x: torch.Tensor, y: torch.Tensor) -> None:
    plainly(loop, tuple(x), y)  # type: ignore[arg-type]


def shard(model: nn.Module, mesh: Any = None) -> nn.Module:
    for layer in (model.first, model.side, model.last):
        fully_shard(layer, mesh=mesh)  # type: ignore[arg-type]
    return fully_shard(model, mesh=mesh)  # type: ignore[return-value]


def whole(parameter: torch.Tensor) -> torch.Tensor:
    return parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter  # type: ignore[no-any-return]


def compare(
    wrap: Callable[[nn.Module], nn.Module] = DistributedDataParallel,
    train: Train = plainly,
    reference_train: Train | None = None,
    *,
    balanced: bool = True,
    accumulates: bool = False,
    workers: int = 0,
    steps_by_hand: bool = False,
    count: Callable[..., Any] | None = None,
    **settings: Any,
) -> tuple[float, int, int]:
    torch.manual_seed(0)
    reference = Net().double()
    model = wrap(copy.deepcopy(reference))
    sampler = evenstep.BalancedBatchSampler(DATA, GLOBAL_BATCH, seed=7, **settings)
    sampler.steps_by_hand = steps_by_hand  # type: ignore[attr-defined]
    if balanced:
        evenstep.balance(model, sampler, count=count, steps_by_hand=steps_by_hand)
    alone = evenstep.BalancedBatchSampler(DATA, GLOBAL_BATCH)
    alone.steps_by_hand = False  # type: ignore[attr-defined]
    loops = []
    for m, s in ((model, sampler), (reference, alone)):
        parameters = list(m.parameters())
        loops.append(Loop(m, s, parameters, torch.optim.SGD(parameters, lr=0.1, momentum=0.9)))
    worst, seen, index = 0.0, set(), 0
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        loader = DataLoader(DATA, batch_sampler=sampler, num_workers=workers)
        for (x, y), rows in zip(loader, list(steps_of(epoch)), strict=True):
            time.sleep(PAUSE_SECONDS)
            index += 1
            if len(rows) == GLOBAL_BATCH:
                seen.add(len(x))
            if not accumulates:
                for loop in loops:
                    loop.optimizer.zero_grad()
            train(loops[0], x, y)
            (reference_train or train)(loops[1], FEATURES[rows], LABELS[rows])
            if not accumulates or index % 2 == 0:
                for ours, theirs in zip(loops[0].parameters, loops[1].parameters, strict=True):
                    worst = max(worst, ((whole(ours) - theirs).abs().max() / theirs.abs().max()).item())
        assert sampler.state_dict()["position"] == len(DATA)
    return worst, len(seen), min(n & -n for n in seen)


def group() -> dist.ProcessGroup:
    return dist.distributed_c10d._get_default_group()


def tensor_parallel() -> dict[str, Any]:
    """Ranks in pairs hold the same model and draw the same samples, as under tensor parallelism."""
    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("dp", "tp"))
    return {
        "wrap": partial(DistributedDataParallel, process_group=mesh["dp"].get_group()),
        "group": mesh["dp"],
    }


def halves() -> dict[str, Any]:
    """Each half of the world trains a model of its own, the first with its ranks in a group, the other likewise."""
    half = dist.get_world_size() // 2
    groups = [dist.new_group(list(range(at, at + half))) for at in (0, half)]
    mine = groups[dist.get_rank() // half]
    return {"wrap": partial(DistributedDataParallel, process_group=mine), "group": mine}


def hybrid() -> dict[str, Any]:
    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("replicate", "shard"))
    return {"wrap": partial(shard, mesh=mesh), "group": mesh}


def with_buckets(model: nn.Module) -> nn.Module:
    return DistributedDataParallel(model, bucket_cap_mb=0.0001, gradient_as_bucket_view=True)  # type: ignore[arg-type]


def with_a_buffer(model: nn.Module) -> nn.Module:
    model.register_buffer("seen", torch.zeros(1))  # which ranks broadcast before a forward
    return DistributedDataParallel(model)


CASES: dict[str, Callable[[], dict[str, Any]]] = {
    "scaler_and_clipping": lambda: {"train": scaled_and_clipped},
    "clipping": lambda: {"train": clipped, "reference_train": clipped},
    "accumulation": lambda: {"train": accumulating, "accumulates": True},
    "two_backwards": lambda: {"train": in_two_backwards, "steps_by_hand": True, "workers": 2},
    "skipped": lambda: {"train": with_some_skipped, "reference_train": some_skipped, "workers": 1},
    "by_hand": lambda: {
        "wrap": lambda m: m,
        "train": by_hand,
        "reference_train": plainly,
        "balanced": False,
        "workers": 2,
    },
    "parts": lambda: {"train": in_parts, "reference_train": plainly, "micro_batch_size": 4},
    "parts_synced_by_us": lambda: {
        "wrap": with_a_buffer,
        "train": in_parts_synced_by_us,
        "reference_train": plainly,
        "micro_batch_size": 4,
    },
    "against_themselves": lambda: {"train": against_themselves, "workers": 2},
    "parts_whole": lambda: {"wrap": with_buckets, "micro_batch_size": 4},
    "rows": lambda: {
        "wrap": lambda m: DistributedDataParallel(FromRows(m)),
        "train": of_rows,
        "reference_train": plainly,
        "count": lambda rows: len(rows),
    },
    "group": lambda: {"group": group()},
    "fsdp": lambda: {"wrap": shard},
    "fsdp_clipping": lambda: {"wrap": shard, "train": clipped},
    "fsdp_accumulation": lambda: {
        "wrap": shard,
        "train": accumulating_unsynced,
        "reference_train": accumulating,
        "accumulates": True,
    },
    "tensor_parallel": tensor_parallel,
    "hybrid": hybrid,
    "halves": halves,
}


def main() -> None:
    dist.init_process_group("gloo")
    for name in itertools.chain(sys.argv[1:]):
        worst, sizes, multiple = compare(**CASES[name]())
        news: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(news, (worst, sizes, multiple))
        if dist.get_rank() == 0:
            line = {
                "case": name,
                "difference": max(n[0] for n in news),
                "sizes": min(n[1] for n in news),
                "multiple": min(n[2] for n in news),
            }
            print(json.dumps(line), flush=True)
    dist.destroy_process_group()


main()
