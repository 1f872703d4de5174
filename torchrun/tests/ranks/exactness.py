"""Trains under uneven, changing batch sizes and compares with one process on the whole batch, in float64.

Prints one JSON line a case on rank 0: the largest relative difference of the parameters over all steps and ranks.
"""

import contextlib
import copy
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset, default_collate

import evenstep.torch as evenstep

SAMPLES, GLOBAL_BATCH, EPOCHS = 203, 32, 5  # the last batch has 11 samples
PAUSE_SECONDS = 0.003  # a step that leaves the core time to answer
FEATURES = torch.randn(SAMPLES, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
LABELS = torch.arange(SAMPLES) % 5
DATA = TensorDataset(FEATURES, LABELS)


class Net(nn.Module):
    """A small net with a branch that every third forward leaves out."""

    def __init__(self, skip: bool = False) -> None:
        super().__init__()
        self.first, self.side, self.last = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 5)
        self.skip = skip
        self.calls = 0

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        self.calls += 1
        hidden = torch.tanh(self.first(x))
        if not (self.skip and self.calls % 3 == 0):
            hidden = hidden + torch.tanh(self.side(hidden))
        return {"logits": self.last(hidden)}


def loss_of(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    logits = model(x)["logits"]
    logits /= 2  # in place, as users do
    return nn.functional.cross_entropy(logits, y)


def double_some(samples: list[Any]) -> Any:
    """A collate that gives the rows of label 3 twice."""
    return default_collate([sample for sample in samples for _ in range(1 + (sample[1] == 3))])


def doubled(order: torch.Tensor) -> torch.Tensor:
    return order.repeat_interleave(1 + (LABELS[order] == 3).long())


def steps_of(epoch: int) -> Iterator[torch.Tensor]:
    """The samples of each step, as one process would take them."""
    order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(7 + epoch))
    yield from order.split(GLOBAL_BATCH)


def difference(model: nn.Module, reference: nn.Module) -> float:
    pairs = zip(model.parameters(), reference.parameters(), strict=True)
    return max(((a - b).abs().max() / b.abs().max()).item() for a, b in pairs)


def compare(
    wrap: Callable[[nn.Module], nn.Module],
    *,
    skip: bool = False,
    window: int = 1,
    count: Callable[..., Any] | None = None,
    collate: Callable[[list[Any]], Any] | None = None,
    workers: int = 0,
) -> tuple[float, int]:
    """Give the largest difference from one process, and how many distinct batch sizes this rank saw."""
    torch.manual_seed(0)
    local = Net(skip).double()
    reference = copy.deepcopy(local)
    sampler = evenstep.BalancedBatchSampler(DATA, GLOBAL_BATCH, seed=7)
    loader = DataLoader(DATA, batch_sampler=sampler, num_workers=workers, collate_fn=collate)
    model = evenstep.balance(wrap(local), sampler, count=count)
    ours = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    theirs = torch.optim.SGD(reference.parameters(), lr=0.1, momentum=0.9)
    worst, seen = 0.0, set()
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        steps = list(steps_of(epoch))
        for index, (x, y) in enumerate(loader):
            time.sleep(PAUSE_SECONDS)
            last = (index + 1) % window == 0 or index + 1 == len(steps)
            seen.add(len(x))
            with contextlib.nullcontext() if last else model.no_sync():
                (loss_of(model, x, y) / window).backward()
            whole = doubled(steps[index]) if collate else steps[index]
            (loss_of(reference, FEATURES[whole], LABELS[whole]) / window).backward()
            if last:
                for optimizer in (ours, theirs):
                    optimizer.step()
                    optimizer.zero_grad()
                worst = max(worst, difference(local, reference))
    return worst, len(seen)


def hooked(model: nn.Module) -> nn.Module:
    ddp = DistributedDataParallel(model)
    ddp.register_comm_hook(None, fp16_compress_hook)
    return ddp


def by_hand(x: torch.Tensor) -> int:
    return len(x)


def as_tensor(x: torch.Tensor) -> torch.Tensor:
    return x.new_ones(len(x)).sum()


CASES: dict[str, dict[str, Any]] = {
    "plain": {"wrap": DistributedDataParallel},
    "loader_workers": {"wrap": DistributedDataParallel, "workers": 2},
    "buckets": {"wrap": lambda m: DistributedDataParallel(m, bucket_cap_mb=0.0001, gradient_as_bucket_view=True)},
    "find_unused_parameters": {"wrap": lambda m: DistributedDataParallel(m, find_unused_parameters=True), "skip": True},
    "static_graph": {"wrap": lambda m: DistributedDataParallel(m, static_graph=True)},
    "compiled": {"wrap": lambda m: DistributedDataParallel(torch.compile(m, backend="eager"))},
    "compiled_outside": {"wrap": lambda m: torch.compile(DistributedDataParallel(m), backend="eager")},
    "no_sync": {"wrap": DistributedDataParallel, "window": 3},
    "count": {"wrap": DistributedDataParallel, "collate": double_some, "count": by_hand},
    "count_no_sync": {"wrap": DistributedDataParallel, "collate": double_some, "count": by_hand, "window": 3},
    "count_tensor": {"wrap": DistributedDataParallel, "collate": double_some, "count": as_tensor},
    "fp16_hook": {"wrap": hooked},
}


def main() -> None:
    dist.init_process_group("gloo")
    for name in sys.argv[1:] or CASES:
        worst, sizes = compare(**CASES[name])
        news: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(news, (worst, sizes))
        if dist.get_rank() == 0:
            line = {"case": name, "difference": max(n[0] for n in news), "sizes": min(n[1] for n in news)}
            print(json.dumps(line), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
