"""What each rank's gradient counts for.

Data parallelism averages the ranks' gradients, each the mean over that rank's terms. The mean over all terms of the
global batch needs rank i weighted by W * n_i / N. The forward's outputs pass through an identity whose backward
multiplies by that weight. This sits in front of everything that a backward does, so it is exact with gradient
accumulation, collectives inside the backward, a communication hook of the user's, AMP and FSDP alike, and it leaves the
values of outputs and loss as they are.
"""

import copy
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from types import ModuleType
from typing import Any

import torch
from torch.autograd.graph import get_gradient_edge
from torch.utils import _pytree as pytree

Weight = float | torch.Tensor


class _Weighted(torch.autograd.Function):
    """The identity; its backward multiplies by the weight, asked for as late as then."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, weight: Callable[[], Weight], leaf: torch.Tensor) -> torch.Tensor:
        ctx.weight = weight
        # Not a view: autograd forbids what changes a custom function's view in place, as users do to outputs.
        return tensor.detach()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return times(grads[0], ctx.weight()), None, None


def times(grad: torch.Tensor, weight: Weight) -> torch.Tensor:
    """Multiply a gradient by what it counts for."""
    # What counts for nothing adds nothing, be it the gradient of a mean over no terms, which is not a number.
    if isinstance(weight, torch.Tensor):
        weight = weight.to(grad.device)
        return (grad * weight).masked_fill(weight == 0, 0)
    if weight == 0:
        return torch.zeros_like(grad)
    return grad if weight == 1 else grad * weight


class Leaves:
    """Tells a backward, which reaches every leaf, from a gradient that is taken of some: an input's, for a penalty."""

    def __init__(self, parameters: Sequence[torch.Tensor]) -> None:
        """Watch `parameters`, and a leaf that only a backward reaches."""
        self.own = torch.zeros((), requires_grad=True)
        self._node = get_gradient_edge(self.own).node
        # Not their nodes, which would keep the model from ever being freed.
        self._parameters = parameters

    def reached(self) -> bool:
        """Say, inside a backward, whether it reaches one."""
        try:
            return torch._C._will_engine_execute_node(self._node) or any(
                torch._C._will_engine_execute_node(get_gradient_edge(leaf).node) for leaf in self._parameters
            )
        except RuntimeError:  # what torch says where a gradient of the leaf itself is taken
            return True


def weighted(outputs: Any, weight: Callable[[], Weight], leaf: torch.Tensor) -> tuple[Any, int]:
    """Give `outputs` with every differentiable tensor in it passed through the weighted identity, and their number.

    Reaches into what torch's pytree knows (dict, list, tuple, registered classes), into mappings, and into the
    attributes of other objects, which are copied. `leaf` gets no gradient, but a backward reaches it.
    """
    found = 0
    seen: set[int] = set()  # objects that may hold each other

    def one(value: Any) -> Any:
        nonlocal found
        if isinstance(value, torch.Tensor):
            if not value.requires_grad:
                return value
            found += 1
            return _Weighted.apply(value, weight, leaf)
        if id(value) in seen:
            return value
        seen.add(id(value))
        if isinstance(value, Mapping):
            return _replaced(value, dict(value), {key: inner(each) for key, each in value.items()}, operator.setitem)
        attributes = _attributes(value)
        if attributes and not callable(value) and not isinstance(value, (type, ModuleType)):
            new = {name: inner(each) for name, each in attributes.items()}
            # object.__setattr__ reaches frozen dataclasses too; their __init__ is not run again.
            return _replaced(value, attributes, new, object.__setattr__)
        return value

    def inner(value: Any) -> Any:
        return pytree.tree_map(one, value)

    return inner(outputs), found


def _attributes(owner: Any) -> dict[str, Any]:
    """Give what an object holds, those with slots as far as they are dataclasses."""
    slots = [each.name for each in fields(owner)] if is_dataclass(owner) and not isinstance(owner, type) else []
    return {**{name: getattr(owner, name) for name in slots if hasattr(owner, name)}, **getattr(owner, "__dict__", {})}


def _replaced(owner: Any, old: dict[Any, Any], values: dict[Any, Any], put: Callable[[Any, Any, Any], None]) -> Any:
    """Give a shallow copy of `owner`, which holds `old`, with `values` put into it; itself where none is new."""
    new = {key: value for key, value in values.items() if value is not old[key]}
    if not new:
        return owner
    copied = copy.copy(owner)
    for key, value in new.items():
        put(copied, key, value)
    return copied


def rows(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
    """Count the rows of a batch: the leading dimension of the first tensor that has one. None where there is none.

    Reaches into what torch's pytree knows, into mappings and dataclasses.
    """
    seen: set[int] = set()

    def first(values: Any) -> int | None:
        for leaf in pytree.tree_leaves(values):
            found = None
            if isinstance(leaf, torch.Tensor):
                found = leaf.shape[0] if leaf.dim() > 0 else None
            elif (isinstance(leaf, Mapping) or is_dataclass(leaf)) and id(leaf) not in seen:
                seen.add(id(leaf))
                found = first(list(leaf.values()) if isinstance(leaf, Mapping) else list(_attributes(leaf).values()))
            if found is not None:
                return found
        return None

    return first((args, kwargs))
