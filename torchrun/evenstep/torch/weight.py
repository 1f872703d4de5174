"""What each rank's gradient counts for.

Data parallelism averages the ranks' gradients, each the mean over that rank's terms. The mean over all terms of the
global batch needs rank i weighted by W * n_i / N. The forward's outputs pass through an identity whose backward
multiplies by that weight. This sits in front of everything that a backward does, so it is exact with gradient
accumulation, collectives inside the backward, a communication hook of the user's, AMP and FSDP alike, and it leaves the
values of outputs and loss as they are.
"""

import dataclasses
from collections.abc import Callable
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
        grad, weight = grads[0], ctx.weight()
        # What counts for nothing adds nothing, be it the gradient of a mean over no terms, which is not a number.
        if isinstance(weight, torch.Tensor):
            weight = weight.to(grad.device)
            return (grad * weight).masked_fill(weight == 0, 0), None
        if weight == 0:
            return torch.zeros_like(grad), None
        return (grad if weight == 1 else grad * weight), None


def weighted(outputs: Any, weight: Callable[[], Weight]) -> Any:
    """Give `outputs` with every differentiable tensor in it passed through the weighted identity.

    Reaches into what torch's pytree knows (dict, list, tuple, registered classes) and into dataclasses.
    """

    def one(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return _Weighted.apply(leaf, weight) if leaf.requires_grad else leaf
        if dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
            fields = {f.name: weighted(getattr(leaf, f.name), weight) for f in dataclasses.fields(leaf) if f.init}
            return dataclasses.replace(leaf, **fields)
        return leaf

    return pytree.tree_map(one, outputs)


def rows(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
    """Count the rows of a batch: the leading dimension of the first tensor that has one. None where there is none."""
    for leaf in pytree.tree_leaves((args, kwargs)):
        if isinstance(leaf, torch.Tensor) and leaf.dim() > 0:
            return leaf.shape[0]
    return None
