"""Where a rank waits for others, so that the stopwatch can leave it out: what was issued, and where FSDP2 waits.

Each module that `fully_shard` was called on gathers its parameters before its forward and before its backward, and
scatters its gradients after the backward, in hooks of its own. Hooks of ours around them mark both ends:

    pause | FSDP gathers | resume, forward, | output's gradient: pause, FSDP gathers, resume | backward |
    gradient of what FSDP hands to the module: pause | FSDP scatters | gradient of the input: resume

What is scattered behind a module without an input to differentiate comes after the step's last gradient.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils import _pytree as pytree

from evenstep.torch.stopwatch import Stopwatch

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]


def sharded(model: nn.Module) -> list[nn.Module]:
    """Give the modules that FSDP2's `fully_shard` was called on."""
    return [m for m in model.modules() if any(base.__name__ == "FSDPModule" for base in type(m).__mro__)]


def _number(group: dist.ProcessGroup) -> int:
    return group._get_sequence_number_for_group()  # type: ignore[attr-defined, no-any-return, unused-ignore]


def issued(groups: Sequence[dist.ProcessGroup]) -> Callable[[], int]:
    """Give what counts the collectives that were issued on `groups` so far; always 0 where a backend does not count."""

    def count() -> int:
        return sum(_number(group) for group in groups)

    try:
        count()
    except RuntimeError:
        return lambda: 0
    return count


def watch(module: nn.Module, stopwatch: Stopwatch, hook: Wrap) -> None:
    """Pause the stopwatch while FSDP communicates around `module`; each hook is wrapped by `hook`."""

    def pause(_: Any = None) -> None:
        stopwatch.pause()

    def resume(_: Any = None) -> None:
        stopwatch.resume()

    def before_gather(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        stopwatch.pause()
        for tensor in _differentiable((args, kwargs)):
            _on_gradient(tensor, resume)

    def after_gather(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        stopwatch.resume()
        for tensor in _differentiable((args, kwargs)):
            _on_gradient(tensor, pause)

    def after_forward(module: nn.Module, args: tuple[Any, ...], outputs: Any) -> None:
        for tensor in _differentiable(outputs):
            first = _on_gradient(tensor, pause)
            # Before FSDP's, which is there already.
            tensor._backward_hooks.move_to_end(first.id, last=False)  # type: ignore[union-attr]
            _on_gradient(tensor, resume)

    module.register_forward_pre_hook(hook(before_gather), prepend=True, with_kwargs=True)
    module.register_forward_pre_hook(hook(after_gather), with_kwargs=True)
    module.register_forward_hook(hook(after_forward))


def _on_gradient(tensor: torch.Tensor, call: Callable[[Any], None]) -> Any:
    return tensor.register_hook(call)  # type: ignore[no-untyped-call, unused-ignore]


def _differentiable(values: Any) -> list[torch.Tensor]:
    if not torch.is_grad_enabled():
        return []
    return [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
