"""What holds already in one process, without torchrun."""

import copy
import gc
import io
import weakref
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
from evenstep.torch.loop import Loop
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


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("wrap", [lambda model: model, DistributedDataParallel])
def test_a_model_and_a_sampler_that_are_let_go_are_freed(group: None, wrap: Any, num_workers: int) -> None:
    def train() -> list[weakref.ref[Any]]:
        sampler = evenstep.BalancedBatchSampler(DATA, 4)
        loader = DataLoader(DATA, batch_sampler=sampler, num_workers=num_workers)
        model = evenstep.balance(wrap(nn.Linear(1, 1)), sampler)
        for done, (x,) in enumerate(loader):
            if done == 1:
                break
            model(x).mean().backward()
        return [weakref.ref(each) for each in (sampler, loader, model, *model.parameters())]

    left = train()
    gc.collect()
    assert [each() for each in left] == [None] * 5


def test_the_last_of_all_gradients_ends_the_compute() -> None:
    model = nn.Sequential(nn.Linear(1, 2), nn.Linear(2, 1))
    sampler = evenstep.BalancedBatchSampler(DATA, 4)
    evenstep.balance(model, sampler)
    assert sampler.loop is not None
    loop = cast(Loop, sampler.loop())
    seen: list[str] = []
    loop.stopwatch.last_gradient = lambda: seen.append("last")  # type: ignore[method-assign]
    for name, parameter in model.named_parameters():
        parameter.register_hook(lambda _, name=name: seen.append(name))  # type: ignore[misc]
    for (x,) in DataLoader(DATA, batch_sampler=sampler):
        seen.clear()
        model(x).mean().backward()
        assert len(seen) == 5
        # A parameter's own hooks come in the order in which they were registered: ours is the first.
        assert seen.index("last") == 3


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
