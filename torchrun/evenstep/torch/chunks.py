"""Rows of batches, whatever they are made of: counted, cut out and put together again.

A chunk is a tensor, an array, or a list of one thing a row (text, numbers, what no tensor holds); or a dict, list or
tuple of such parts, all with the same number of rows. A list or tuple that holds tensors, arrays or further containers
is one of parts.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from typing import Any

import torch


class Samples(list[Any]):
    """Samples that are not collated yet: one a row, whatever they are."""


def count(chunk: Any) -> int:
    """Give the rows of a chunk. Raises ValueError where that is not one number."""
    counts = set()
    for part in _parts(chunk):
        if not hasattr(part, "__len__") or isinstance(part, (str, bytes)) or getattr(part, "ndim", 1) == 0:
            raise ValueError(f"{type(part).__name__} where rows were expected")
        counts.add(len(part))
    if len(counts) != 1:
        raise ValueError(f"parts with {' and '.join(map(str, sorted(counts))) or 'no'} rows")
    return counts.pop()


def cut(chunk: Any, low: int, high: int) -> Any:
    """Give rows `low` to `high` - 1."""
    return _map(lambda part: type(part)(part[low:high]) if isinstance(part, Samples) else part[low:high], chunk)


def join(chunks: list[Any]) -> Any:
    """Put chunks of the same make together, one behind the other."""
    return chunks[0] if len(chunks) == 1 else _map(lambda *parts: _join(parts), *chunks)


def _join(parts: tuple[Any, ...]) -> Any:
    first = parts[0]
    if isinstance(first, torch.Tensor):
        return torch.cat(parts)
    if _is_array(first):
        return sys.modules["numpy"].concatenate(parts)
    return type(first)(row for part in parts for row in part)


def _map(function: Callable[..., Any], first: Any, *others: Any) -> Any:
    """Give what `first` is made of with each part of it, and those of `others` in its place, put through `function`."""
    if isinstance(first, Mapping):
        new = {key: _map(function, value, *(other[key] for other in others)) for key, value in first.items()}
        if type(first) is dict:
            return new
        copied: Any = copy(first)
        for key, value in new.items():
            copied[key] = value
        return copied
    if not _is_container(first):
        return function(first, *others)
    items = [_map(function, *those) for those in zip(first, *others, strict=True)]
    return type(first)(*items) if hasattr(first, "_fields") else type(first)(items)


def _parts(chunk: Any) -> Iterator[Any]:
    if isinstance(chunk, Mapping) or _is_container(chunk):
        for item in chunk.values() if isinstance(chunk, Mapping) else chunk:
            yield from _parts(item)
    else:
        yield chunk


def _is_container(value: Any) -> bool:
    """Say whether a list or tuple is one of parts, and not of rows."""
    if not isinstance(value, (list, tuple)) or isinstance(value, Samples):
        return False
    return any(isinstance(item, (torch.Tensor, Mapping, list, tuple)) or _is_array(item) for item in value)


def _is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)
