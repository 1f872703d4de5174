"""Trains in a part of the world, rightly and wrongly. Prints one JSON line a case and rank: what became of it."""

import json
import sys
from collections.abc import Callable
from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import evenstep.torch as evenstep

DATA = TensorDataset(torch.ones(32, 4))


def train(wrap: Callable[[nn.Module], nn.Module], group: object = None) -> str:
    sampler = evenstep.BalancedBatchSampler(DATA, 8, group=group)  # type: ignore[arg-type]
    model = evenstep.balance(wrap(nn.Linear(4, 1)), sampler)
    for (x,) in DataLoader(DATA, batch_sampler=sampler):
        model(x).mean().backward()
    return f"trained {sampler.state_dict()['position']}"


def in_a_part() -> str:
    """Two of three ranks train, twice; then all make a group, whose name torch takes from how many there were."""
    part = dist.new_group([0, 1])
    if dist.get_rank() < 2:
        for _ in range(2):
            train(partial(DistributedDataParallel, process_group=part), part)
    everyone = dist.new_group()
    dist.barrier(everyone)
    return "met"


def not_a_member() -> str:
    part = dist.new_group([0, 1])
    return "spared" if dist.get_rank() < 2 else train(nn.Sequential, part)


def replicas_without_group() -> str:
    part = dist.new_group([0, 1])
    return train(partial(DistributedDataParallel, process_group=part)) if dist.get_rank() < 2 else "spared"


def shards_without_group() -> str:
    mesh = init_device_mesh("cpu", (dist.get_world_size(), 1), mesh_dim_names=("outer", "inner"))
    return train(partial(fully_shard, mesh=mesh["inner"]))  # type: ignore[arg-type]


def main() -> None:
    dist.init_process_group("gloo")
    for case in (in_a_part, not_a_member, replicas_without_group, shards_without_group):
        try:
            result = case()
        except ValueError as error:
            result = str(error)
        line = {"case": case.__name__, "rank": dist.get_rank(), "result": result}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
        dist.barrier()
    dist.destroy_process_group()


main()
