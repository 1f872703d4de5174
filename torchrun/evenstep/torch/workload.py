"""What is trained, and on what: the keys under which the core keeps how fast devices are."""

import os
import platform
import re
import socket
import sys
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn

_MOST = 128  # characters of a key


def workload(model: nn.Module) -> str:
    """Give EVENSTEP_WORKLOAD, else script:parameters:precision, such as `train.py:25557032:float32`.

    The precision is that of most parameters; a script that is run with autocast and without needs a name for each.
    """
    named = os.environ.get("EVENSTEP_WORKLOAD")
    if named:
        return named
    counts: Counter[str] = Counter()
    for parameter in model.parameters():
        counts[str(parameter.dtype).removeprefix("torch.")] += parameter.numel()
    precision = counts.most_common(1)[0][0] if counts else "none"
    tail = f":{counts.total()}:{precision}"
    script = re.sub(r"[^A-Za-z0-9._@+-]", "_", _script())
    return script[: _MOST - len(tail)] + tail


def _script() -> str:
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name:  # python -m package.module
        return str(spec.name).removesuffix(".__main__")
    return Path(getattr(main, "__file__", None) or sys.argv[0] or "python").name


@dataclass(frozen=True)
class Device:
    """What a rank trains on."""

    node: str
    type: str  # the vendor's model name
    id: str  # its own; empty where it is not known
    memory_bytes: int  # 0 where it is not known


def describe(device: torch.device) -> Device:
    """Describe a device. A share of a CPU is known by its host and the cores that this process may run on."""
    node = socket.gethostname()
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        uuid = str(getattr(properties, "uuid", ""))
        return Device(node, properties.name, f"GPU-{uuid}" if uuid else "", properties.total_memory)
    return Device(node, _processor(), f"{node}/cpu{_ranges(sorted(os.sched_getaffinity(0)))}"[:256], 0)


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name" and value.strip():
                return value.strip()[:256]
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _ranges(numbers: list[int]) -> str:
    """Write 0, 1, 2, 5 as 0-2,5."""
    starts = [numbers[0], *(after for before, after in pairwise(numbers) if after != before + 1)]
    ends = [*(before for before, after in pairwise(numbers) if after != before + 1), numbers[-1]]
    return ",".join(f"{start}-{end}" if start < end else str(start) for start, end in zip(starts, ends, strict=True))
