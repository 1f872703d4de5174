"""What each rank's gradient counts for.

Data parallelism averages the ranks' gradients, each the mean over that rank's terms. The mean over all terms of the
global batch needs rank i weighted by W * n_i / N. The forward's outputs pass through an identity whose backward
multiplies by that weight. This sits in front of everything that a backward does, so it is exact with gradient
accumulation, collectives inside the backward, a communication hook of the user's, AMP and FSDP alike, and it leaves the
values of outputs and loss as they are.
"""

import copy
import operator
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import torch
from torch.utils import _pytree as pytree

Weight = float | torch.Tensor


class _Weighted(torch.autograd.Function):
    """The identity; its backward multiplies by the weight, asked for as late as then."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, weight: Callable[[], Weight]) -> torch.Tensor:
        ctx.weight = weight
        # Not a view: autograd forbids what changes a custom function's view in place, as users do to outputs.
        return tensor.detach()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return times(grads[0], ctx.weight()), None


def times(grad: torch.Tensor, weight: Weight) -> torch.Tensor:
    """Multiply a gradient by what it counts for."""
    # What counts for nothing adds nothing, be it the gradient of a mean over no terms, which is not a number.
    if isinstance(weight, torch.Tensor):
        weight = weight.to(grad.device)
        return (grad * weight).masked_fill(weight == 0, 0)
    if weight == 0:
        return torch.zeros_like(grad)
    return grad if weight == 1 else grad * weight


def weighted(outputs: Any, weight: Callable[[], Weight]) -> tuple[Any, int]:
    """Give `outputs` with every differentiable tensor in it passed through the weighted identity, and their number.

    Reaches into what torch's pytree knows (dict, list, tuple, registered classes), into mappings, and into the
    attributes of other objects, which are copied.
    """
    found = 0
    seen: set[int] = set()  # objects that may hold each other

    def one(leaf: Any) -> Any:
        nonlocal found
        if isinstance(leaf, torch.Tensor):
            if not leaf.requires_grad:
                return leaf
            found += 1
            return _Weighted.apply(leaf, weight)
        if id(leaf) in seen:
            return leaf
        seen.add(id(leaf))
        if isinstance(leaf, Mapping):
            return _replaced(leaf, {key: inner(value) for key, value in leaf.items()}, operator.setitem)
        if hasattr(leaf, "__dict__") and not callable(leaf) and not isinstance(leaf, (type, ModuleType)):
            # object.__setattr__ reaches frozen dataclasses too; their __init__ is not run again.
            return _replaced(leaf, {name: inner(value) for name, value in vars(leaf).items()}, object.__setattr__)
        return leaf

    def inner(value: Any) -> Any:
        return pytree.tree_map(one, value)

    return inner(outputs), found


def _replaced(owner: Any, values: dict[Any, Any], put: Callable[[Any, Any, Any], None]) -> Any:
    """Give a shallow copy of `owner` with `values` put into it; `owner` itself where none is new."""
    old = owner if isinstance(owner, Mapping) else vars(owner)
    new = {key: value for key, value in values.items() if value is not old[key]}
    if not new:
        return owner
    copied = copy.copy(owner)
    for key, value in new.items():
        put(copied, key, value)
    return copied


def rows(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
    """Count the rows of a batch: the leading dimension of the first tensor that has one. None where there is none."""
    for leaf in pytree.tree_leaves((args, kwargs)):
        if isinstance(leaf, torch.Tensor) and leaf.dim() > 0:
            return leaf.shape[0]
    return None
