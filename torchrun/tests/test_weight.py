"""The weighted identity reaches a model's outputs in whatever they come, and changes no value."""

import dataclasses
from collections import OrderedDict, UserDict, namedtuple
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from evenstep.torch.weight import Leaves, rows, weighted

Pair = namedtuple("Pair", ["logits", "note"])
LEAF = torch.zeros((), requires_grad=True)


class Mine(dict):  # type: ignore[type-arg]
    pass


class Plain:
    def __init__(self, logits: torch.Tensor) -> None:
        self.logits = logits
        self.me = self  # a cycle


@dataclasses.dataclass(frozen=True)
class Frozen:
    logits: torch.Tensor
    scale: dataclasses.InitVar[float]
    late: torch.Tensor | None = dataclasses.field(default=None, init=False)

    def __post_init__(self, scale: float) -> None:
        object.__setattr__(self, "logits", self.logits * scale)
        object.__setattr__(self, "late", self.logits + 1)


@dataclasses.dataclass(slots=True)
class Slots:
    logits: torch.Tensor
    note: str = ""


CASES: dict[str, tuple[Callable[[torch.Tensor], Any], Callable[[Any], torch.Tensor]]] = {
    "tensor": (lambda x: x, lambda o: o),
    "nested": (lambda x: {"a": [None, (x, 3)]}, lambda o: o["a"][1][0]),
    "named tuple": (lambda x: Pair(x, "n"), lambda o: o.logits),
    "ordered": (lambda x: OrderedDict(a=x), lambda o: o["a"]),
    "a dict of mine": (lambda x: Mine(a=x), lambda o: o["a"]),
    "UserDict": (lambda x: UserDict(a=x), lambda o: o["a"]),
    "namespace": (lambda x: SimpleNamespace(a=[x]), lambda o: o.a[0]),
    "object": (Plain, lambda o: o.logits),
    "frozen dataclass": (lambda x: Frozen(x, 1.0), lambda o: o.logits),
    "dataclass with slots": (Slots, lambda o: o.logits),
    "late field": (lambda x: Frozen(x, 1.0), lambda o: o.late),
    "distribution": (lambda x: torch.distributions.Normal(x, 1.0), lambda o: o.log_prob(torch.zeros(3))),
}


@pytest.mark.parametrize("case", CASES)
def test_any_output_is_weighted_once_and_keeps_its_value(case: str) -> None:
    make, take = CASES[case]
    grads, values = [], []
    for weigh in (False, True):
        x = torch.tensor([1.0, -2.0, 3.0], requires_grad=True)
        outputs = make(x * 1)
        if weigh:
            outputs, found = weighted(outputs, lambda: 0.25, LEAF)
            assert found >= 1
        taken = take(outputs)
        taken.square().sum().backward()  # type: ignore[no-untyped-call]
        grads.append(x.grad)
        values.append(taken.detach())
    assert torch.equal(values[0], values[1])
    assert torch.equal(grads[0] * 0.25, grads[1])


def test_what_cannot_be_reached_is_counted_as_none() -> None:
    x = torch.ones(1, requires_grad=True)
    for outputs in (lambda: x, torch.ones(1), None, "text", x.detach()):
        same, found = weighted(outputs, lambda: 2.0, LEAF)
        assert same is outputs
        assert found == 0


def test_outputs_may_be_changed_in_place() -> None:
    x = torch.tensor([1.0, -2.0], requires_grad=True)
    y, _ = weighted(x * 1, lambda: 3.0, LEAF)
    y /= 2
    y.relu_()
    y.sum().backward()
    assert torch.equal(x.grad, torch.tensor([1.5, 0.0]))


@pytest.mark.parametrize("weight", [0.0, torch.zeros((), dtype=torch.float64)])
def test_what_counts_for_nothing_adds_nothing(weight: float | torch.Tensor) -> None:
    x = torch.ones(3, requires_grad=True)
    y, _ = weighted(x * 1, lambda: weight, LEAF)
    (y[:0].mean() + y.sum()).backward()  # the mean of no terms is not a number
    assert torch.equal(x.grad, torch.zeros(3))


def test_rows_are_counted_in_whatever_a_batch_comes() -> None:
    x, scalar = torch.zeros(4, 3), torch.zeros(())
    for args, kwargs in [
        ((x,), {}),
        ((), {"scale": scalar, "x": [None, "a", x]}),
        ((UserDict(ids=x),), {}),
        ((Slots(x),), {}),
        ((Frozen(x, 1.0), torch.zeros(9)), {}),
    ]:
        assert rows(args, kwargs) == 4
    loop = Mine()
    loop["me"] = loop
    assert rows((loop, "text", scalar, object()), {}) is None


def test_a_backward_is_told_from_a_gradient_of_an_input() -> None:
    w, x = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
    leaves, reached = Leaves([w]), []

    def ask() -> float:
        reached.append(leaves.reached())
        return 1.0

    def forward() -> torch.Tensor:
        return weighted(w * x, ask, leaves.own)[0]  # type: ignore[no-any-return]

    torch.autograd.grad(forward().sum(), x)
    torch.autograd.grad(forward().sum(), x, create_graph=True)
    forward().sum().backward(inputs=[x])
    forward().sum().backward()
    forward().sum().backward(inputs=[w])
    torch.autograd.grad(forward().sum(), [x, w])
    assert reached == [False, False, False, True, True, True]
    assert leaves.own.grad is None
