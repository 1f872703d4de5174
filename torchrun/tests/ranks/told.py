"""Trains in ways that are warned of or refused, and in some that are not: told.py ADDRESS, which is a core's.

Prints one JSON line a case and rank: what was said, and either the error or the last step's gradient and the position.
"""

import gc
import json
import logging
import os
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset, default_collate

import evenstep.torch as evenstep

SAMPLES, GLOBAL_BATCH = 32, 8
DATA = TensorDataset(torch.ones(SAMPLES, 4))


def step(model: nn.Module, x: torch.Tensor) -> None:
    model.zero_grad()
    model(x).mean().backward()


def step_twice(model: nn.Module, x: torch.Tensor) -> None:
    step(model, x)
    step(model, x)


def step_in_eval_mode(model: nn.Module, x: torch.Tensor) -> None:
    if model.calls > 0:  # type: ignore[operator]
        model.eval()
    step(model, x)


def skip_one(model: nn.Module, x: torch.Tensor) -> None:
    if model.calls == 1:
        model(x)
    else:
        step(model, x)


def forward_twice(model: nn.Module, x: torch.Tensor) -> None:
    model(x)
    step(model, x)


def step_in_parts(model: nn.Module, x: torch.Tensor) -> None:
    for part in x.split(2):
        model(part).mean().backward()


def step_in_parts_of_triplets(model: nn.Module, x: torch.Tensor) -> None:
    for part in x.split(2):
        sum(model(part + far).mean() for far in range(3)).backward()  # type: ignore[union-attr]


def step_on_rank_0_terms(model: nn.Module, x: torch.Tensor) -> None:
    """The loss is a mean over rank 0's rows: over none on rank 1, so not a number there."""
    model.zero_grad()
    mask = torch.full((len(x), 1), float(dist.get_rank() == 0))
    ((model(x) * mask).sum() / mask.sum()).backward()


def step_and_average(model: nn.Module, x: torch.Tensor) -> None:
    step(model, x)
    for parameter in model.layer.parameters():  # type: ignore[union-attr]
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()


def step_optimizer(model: nn.Module, x: torch.Tensor) -> None:
    step(model, x)
    torch.optim.SGD(model.parameters(), lr=0.0).step()


def step_in_time(model: nn.Module, x: torch.Tensor) -> None:
    """Two moments of each row, and moments lead the shape."""
    model.zero_grad()
    model(torch.stack((x, x))).mean().backward()


def step_apart(model: nn.Module, x: torch.Tensor) -> None:
    """Train what the model holds without the model's own forward."""
    for part in model.carried:  # type: ignore[union-attr]
        step(part, x)
    model.layer.weight.grad = torch.ones(1, 4)  # type: ignore[union-attr]
    evenstep.step(model.sampler)  # type: ignore[arg-type]


def drop_one(samples: list[Any]) -> Any:
    return default_collate(samples[1:])


class Carrier(nn.Module):
    """A linear layer, and modules that it only carries along."""

    def __init__(self, *carried: nn.Module) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)
        self.carried = nn.ModuleList(carried)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)  # type: ignore[no-any-return]


def train(
    wrap: Callable[[nn.Module], nn.Module] = DistributedDataParallel,
    *,
    carried: tuple[nn.Module, ...] = (),
    one: Callable[[nn.Module, torch.Tensor], None] = step,
    count: Callable[..., Any] | None = None,
    collate: Callable[[list[Any]], Any] | None = None,
    made: tuple[nn.Module, evenstep.BalancedBatchSampler] | None = None,
    seed: int = 0,
    micro_batch_size: int = 1,
    later: Callable[[nn.Module], nn.Module] = lambda model: model,
) -> dict[str, Any]:
    """Train an epoch of rows of four ones, whose mean gradient is four ones; give the last step's and the position."""
    if made is None:
        sampler = evenstep.BalancedBatchSampler(DATA, GLOBAL_BATCH, seed=seed, micro_batch_size=micro_batch_size)
        model = evenstep.balance(wrap(Carrier(*carried)), sampler, count=count)
    else:
        model, sampler = made
    model = later(model)
    model.calls = 0  # type: ignore[assignment]
    model.sampler = sampler  # type: ignore[assignment]
    for (x,) in DataLoader(DATA, batch_sampler=sampler, collate_fn=collate):
        one(model, x)
        model.calls += 1  # type: ignore[operator]
    gradient = next(model.parameters()).grad
    gradient = getattr(gradient, "full_tensor", lambda: gradient)()
    return {"gradient": gradient.flatten().tolist(), "position": sampler.state_dict()["position"]}


def under(name: str, value: str | None, **kwargs: Any) -> dict[str, Any]:
    """Train with a variable of the environment changed."""
    before = os.environ.pop(name, None)
    if value is not None:
        os.environ[name] = value
    try:
        return train(**kwargs)
    finally:
        os.environ.pop(name, None)
        if before is not None:
            os.environ[name] = before


def cases() -> dict[str, Callable[[], dict[str, Any]]]:
    # Before the process group is there: a batch drawn then is this process's own.
    early = evenstep.BalancedBatchSampler(DATA, GLOBAL_BATCH)
    bare = Carrier()
    early_model = evenstep.balance(bare, early)
    launched = {name: os.environ.pop(name) for name in ("RANK", "WORLD_SIZE")}
    drawn = evenstep.BalancedBatchSampler(DATA, GLOBAL_BATCH)
    next(iter(drawn))
    os.environ.update(launched)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    drawn_model = evenstep.balance(DistributedDataParallel(Carrier()), drawn)
    another = evenstep.BalancedBatchSampler(DATA, GLOBAL_BATCH)
    _ = evenstep.balance(DistributedDataParallel(Carrier()), another)
    return {
        "plain": train,
        "another": lambda: train(one=step_optimizer, made=(DistributedDataParallel(Carrier()), another)),
        "inner": lambda: train(lambda m: m, later=DistributedDataParallel),
        "apart": lambda: train(
            lambda m: m, carried=tuple(DistributedDataParallel(Carrier()) for _ in range(2)), one=step_apart
        ),
        "no_core": lambda: under("EVENSTEP_ADDR", None),
        "tcp": lambda: under("EVENSTEP_ADDR", "tcp:localhost:7000"),
        "lopsided": lambda: under("EVENSTEP_BATCH_SIZES", "7,1"),
        "rows": lambda: train(collate=drop_one),
        "rows_counted": lambda: train(collate=drop_one, count=lambda x: torch.tensor(len(x))),
        "no_terms": lambda: train(count=lambda x: 0),
        "rank_0_terms": lambda: train(one=step_on_rank_0_terms, count=lambda x: len(x) * (rank == 0)),
        "batch_norm": lambda: train(carried=(nn.BatchNorm1d(4, affine=False),)),
        "sync_batch_norm": lambda: train(lambda m: m, carried=(nn.SyncBatchNorm(4),), one=step_and_average),
        "fsdp": lambda: train(fully_shard),
        "no_replica": lambda: train(made=(early_model, early), one=step_and_average),
        "twice": lambda: train(one=step_twice),
        "eval_mode": lambda: train(one=step_in_eval_mode),
        "skipped": lambda: train(one=skip_one),
        "two_forwards": lambda: train(one=forward_twice),
        "parts_of_shards": lambda: train(fully_shard, one=step_in_parts, micro_batch_size=2),
        "parts_in_time": lambda: train(one=step_in_time, micro_batch_size=2),
        "parts_of_triplets": lambda: train(one=step_in_parts_of_triplets, micro_batch_size=2),
        "other_seed": lambda: train(seed=rank),
        "other_world": lambda: train(made=(drawn_model, drawn)),
    }


def main(address: str) -> None:
    said: list[str] = []
    listener = logging.Handler()
    listener.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("evenstep").addHandler(listener)
    os.environ["EVENSTEP_ADDR"] = address
    for name, run in cases().items():
        os.environ["EVENSTEP_JOB"] = name
        said.clear()
        line: dict[str, Any] = {"case": name, "rank": dist.get_rank()}
        try:
            line |= run()
        except (ValueError, RuntimeError) as error:
            line["error"] = str(error)
        gc.collect()
        sys.stdout.write(json.dumps({**line, "said": said}) + "\n")
        sys.stdout.flush()
    dist.destroy_process_group()


main(sys.argv[1])
