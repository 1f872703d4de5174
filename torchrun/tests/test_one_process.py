"""What holds already in one process, without torchrun."""

import copy
import io
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

import evenstep.torch as evenstep
from evenstep.torch.balance import Loop
from evenstep.torch.peers import unmeasurable

DATA = TensorDataset(torch.arange(10.0).unsqueeze(1))


@pytest.fixture
def group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_a_script_runs_in_one_process_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    sampler = evenstep.BalancedBatchSampler(DATA, 4)
    model = evenstep.balance(nn.Linear(1, 1), sampler)
    alone = copy.deepcopy(model)
    positions = []
    for (x,) in DataLoader(DATA, batch_sampler=sampler):
        for each in (model, alone):
            each.zero_grad()
            each(x).mean().backward()
        assert model.weight.grad is not None
        assert model.weight.grad.equal(cast(torch.Tensor, alone.weight.grad))
        positions.append(sampler.state_dict()["position"])
    assert positions == [4, 8, 10]
    assert caplog.messages == []


def test_a_copy_and_a_pickle_of_the_model_are_without_our_hooks(group: None) -> None:
    sampler = evenstep.BalancedBatchSampler(DATA, 4)
    model = evenstep.balance(DistributedDataParallel(nn.Linear(1, 1)), sampler)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    batches = iter(sampler)
    next(batches)
    for other in (torch.load(file, weights_only=False), copy.deepcopy(model.module)):
        other(torch.ones(4, 1)).mean().backward()
    next(batches)
    assert len(sampler._tickets) == 2
    model(torch.ones(4, 1)).mean().backward()
    assert len(sampler._tickets) == 1


class Recomputed(nn.Module):
    """Layers that are computed again inside nested backwards."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=True)
        return x


def test_a_step_lasts_until_the_last_of_nested_backwards() -> None:
    sampler = evenstep.BalancedBatchSampler(DATA, 4)
    model = evenstep.balance(Recomputed(), sampler)
    left: list[int] = []
    model.layers[0].bias.register_hook(lambda _: left.append(len(sampler._tickets)))  # type: ignore[union-attr, arg-type]
    for (x,) in DataLoader(DATA, batch_sampler=sampler):
        model(x.requires_grad_()).mean().backward()
    assert left == [1, 1, 1]
    assert sampler.state_dict()["position"] == 10


def test_a_model_that_is_refused_leaves_the_sampler_free() -> None:
    sampler = evenstep.BalancedBatchSampler(DATA, 4)
    with pytest.raises(ValueError, match=r"^model: it has no parameter that requires a gradient"):
        evenstep.balance(nn.ReLU(), sampler)
    evenstep.balance(nn.Linear(1, 1), sampler)
    with pytest.raises(ValueError, match=r"^sampler: it balances a model already; .* in a GAN, go into one module"):
        evenstep.balance(nn.Linear(1, 1), sampler)


@pytest.mark.parametrize(
    ("device", "count", "measurable"), [("cuda", len, False), ("cuda", None, True), ("cpu", len, True)]
)
def test_count_on_cuda_keeps_the_sizes(device: str, count: Any, measurable: bool) -> None:
    loop = SimpleNamespace(model=nn.Linear(1, 1), replicas=[None], device=torch.device(device), count=count)
    assert (unmeasurable(cast(Loop, loop)) is None) is measurable
