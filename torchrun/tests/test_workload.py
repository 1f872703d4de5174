"""The keys under which the core keeps how fast devices are."""

import os
import re

import pytest
import torch
from torch import nn

from evenstep.torch.workload import _ranges, describe, workload


def test_a_workload_is_what_the_user_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENSTEP_WORKLOAD", "resnet50/a@1")
    assert workload(nn.Linear(3, 4)) == "resnet50/a@1"


def test_else_it_is_script_parameters_and_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EVENSTEP_WORKLOAD", raising=False)
    main = __import__("__main__")
    monkeypatch.setattr(main, "__spec__", None)
    monkeypatch.setattr(main, "__file__", "/home/user/my train.py")
    assert workload(nn.Linear(3, 4)) == "my_train.py:16:float32"
    half = nn.Sequential(nn.Linear(3, 4).to(torch.bfloat16), nn.LayerNorm(4))
    assert workload(half) == "my_train.py:24:bfloat16"
    assert workload(nn.ReLU()) == "my_train.py:0:none"
    monkeypatch.setattr(main, "__file__", "é" * 300 + ".py")
    assert re.fullmatch("[A-Za-z0-9._:/@+-]{128}", workload(nn.Linear(3, 4)))


@pytest.mark.parametrize(
    ("numbers", "text"), [([0], "0"), ([0, 1, 2, 5], "0-2,5"), ([1, 3, 4], "1,3-4"), ([7, 9], "7,9")]
)
def test_cores_are_written_as_ranges(numbers: list[int], text: str) -> None:
    assert _ranges(numbers) == text


def test_a_share_of_a_cpu_is_a_device_of_its_own() -> None:
    cores = sorted(os.sched_getaffinity(0))
    whole = describe(torch.device("cpu"))
    try:
        os.sched_setaffinity(0, {cores[0]})
        share = describe(torch.device("cpu"))
    finally:
        os.sched_setaffinity(0, cores)
    assert share.id == f"{share.node}/cpu{cores[0]}"
    assert share.type == whole.type != ""
    assert (share.id != whole.id) == (len(cores) > 1)
