"""Plain text that every Python brings along: the source of some of its own modules."""

import argparse
import inspect
import json.decoder
import tarfile
import textwrap
import zipfile

import torch
from torch.utils.data import Dataset

MODULES = (argparse, json.decoder, tarfile, textwrap, zipfile)
LENGTH = 48  # bytes of a line that are looked at


class Lines(Dataset[dict[str, torch.Tensor]]):
    """Lines of text as bytes, each labelled with the module that it is from."""

    def __init__(self) -> None:
        lines = [
            (line, label) for label, module in enumerate(MODULES) for line in inspect.getsource(module).splitlines()
        ]
        self.lines = [(line.strip().encode()[:LENGTH], label) for line, label in lines if len(line.strip()) > 3]

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        line, label = self.lines[index]
        ids = torch.tensor(list(line.ljust(LENGTH, b"\0")))
        return {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": torch.tensor(label)}


class Windows(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Windows of all the text, and the same moved by one: what comes next."""

    def __init__(self) -> None:
        text = "".join(inspect.getsource(module) for module in MODULES).encode("ascii", "replace")
        self.text = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()

    def __len__(self) -> int:
        return (len(self.text) - 1) // LENGTH

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        low = index * LENGTH
        return self.text[low : low + LENGTH], self.text[low + 1 : low + LENGTH + 1]
