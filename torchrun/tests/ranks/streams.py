"""Trains on streams of their own for each rank: streams.py FOLDER, which is for files.

Each rank notes the rows of each of its batches. One process then trains on those of all ranks together.
"""

import contextlib
import importlib.util
import json
import sys
import tarfile
from collections.abc import Iterable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset, default_collate, get_worker_info

import evenstep.torch as evenstep
from framework_case import FEATURES, GLOBAL_BATCH, LABELS, Witness, net, optimizer

ROWS, PASSES, SHARDS = 200, 2, 8


class Stream(IterableDataset[Any]):
    """The rows from `first` in steps of `stride`, shared among a loader's workers."""

    def __init__(self, first: int, stride: int) -> None:
        self.mine = range(first, ROWS, stride)

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        mine = self.mine if worker is None else self.mine[worker.id :: worker.num_workers]
        for row in mine:
            yield {"row": row, "x": FEATURES[row], "y": LABELS[row]}


def plain(folder: Path) -> Stream:
    return Stream(dist.get_rank(), dist.get_world_size())


def unbalanced(folder: Path) -> Stream:
    """All rows are rank 1's, but for every tenth."""
    every = list(range(0, ROWS, 10))
    stream = plain(folder)
    stream.mine = every if dist.get_rank() == 0 else sorted({*range(ROWS)} - {*every})  # type: ignore[assignment]
    return stream


def webdataset(folder: Path) -> Any:
    import webdataset as wds

    shards = [str(folder / f"{shard}.tar") for shard in range(SHARDS)]
    if dist.get_rank() == 0:
        for shard, path in enumerate(shards):
            with tarfile.open(path, "w") as file:
                for row in range(shard, ROWS, SHARDS):
                    data = str(row).encode()
                    info = tarfile.TarInfo(f"{row:04}.cls")
                    info.size = len(data)
                    file.addfile(info, BytesIO(data))
    dist.barrier()
    data = wds.WebDataset(shards, shardshuffle=False, nodesplitter=wds.split_by_node)
    rows = data.decode().map(lambda sample: (sample["cls"], FEATURES[sample["cls"]], LABELS[sample["cls"]]))
    return wds.WebLoader(rows.batched(5), batch_size=None, num_workers=2)


def datasets(folder: Path) -> Any:
    from datasets import load_dataset
    from datasets.distributed import split_dataset_by_node

    files = [str(folder / f"{shard}.jsonl") for shard in range(SHARDS)]
    if dist.get_rank() == 0:
        for shard, path in enumerate(files):
            lines = (json.dumps({"row": row, "text": f"row {row}"}) for row in range(shard, ROWS, SHARDS))
            Path(path).write_text("\n".join(lines))
    dist.barrier()
    stream = load_dataset("json", data_files=files, split="train", streaming=True)
    mine = split_dataset_by_node(stream, rank=dist.get_rank(), world_size=dist.get_world_size())
    return DataLoader(mine, batch_size=7, num_workers=2)


def batches(loader: Iterable[Any]) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    for batch in loader:
        rows = batch["row"] if isinstance(batch, dict) else batch[0]
        if isinstance(batch, dict) and "x" in batch:
            yield rows, batch["x"], batch["y"]
        else:
            if isinstance(batch, dict):
                assert batch["text"] == [f"row {row}" for row in rows]
            yield rows, FEATURES[rows], LABELS[rows]


def train(
    case: str, loader: Iterable[Any], window: int = 1, collate: Any = None, wrap: Any = DistributedDataParallel
) -> None:
    ours, reference = net(), net()
    source = evenstep.rebatch(loader, GLOBAL_BATCH, collate=collate)
    model = evenstep.balance(wrap(ours), source)
    sgd, alone = optimizer(ours), optimizer(reference)
    witness, totals, lost, twice, dry, batch = Witness([]), [], 0, 0, 0, 0
    for _ in range(PASSES):
        seen: set[int] = set()
        everyone: list[Any] = [None] * dist.get_world_size()
        for rows, x, y in batches(source):
            witness.saw(len(rows))
            batch += 1
            mine = [row for row in rows.tolist() if row not in seen]
            dry += not mine
            seen |= {*mine}
            dist.all_gather_object(everyone, mine)
            whole = torch.tensor([row for one in everyone for row in one])
            totals.append(len(whole))
            last = batch % window == 0
            with contextlib.nullcontext() if last else model.no_sync():
                (nn.functional.cross_entropy(model(x), y) / window).backward()
            (nn.functional.cross_entropy(reference(FEATURES[whole]), LABELS[whole]) / window).backward()
            if last:
                for each in (sgd, alone):
                    each.step()
                    each.zero_grad()
                witness.differ(ours, list(reference.parameters()))
        dist.all_gather_object(everyone, sorted(seen))
        lost += ROWS - len({row for one in everyone for row in one})
        twice += sum(map(len, everyone)) - len({row for one in everyone for row in one})
    counts = torch.tensor([dry])
    dist.all_reduce(counts)
    witness.tell(case, totals=totals, lost=lost, twice=twice, dry=int(counts))


def without_rows() -> None:
    """Each rank reads an empty stream; the others have one row, so the first step is theirs."""
    stream = Stream(0, 1)
    stream.mine = range(1 - dist.get_rank())
    source = evenstep.rebatch(DataLoader(stream, batch_size=4), GLOBAL_BATCH)
    error = ""
    try:
        next(iter(source))
    except RuntimeError as refused:
        error = str(refused)
    errors: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(errors, error)
    Witness([]).tell("no row", errors=errors)


def main() -> None:
    folder = Path(sys.argv[1])
    dist.init_process_group("gloo")
    train("plain", DataLoader(plain(folder), batch_size=8))
    train("workers", DataLoader(plain(folder), batch_size=3, num_workers=2))
    train("window 2", DataLoader(plain(folder), batch_size=50), window=2)
    train("collated", DataLoader(plain(folder), batch_size=8, collate_fn=list), collate=default_collate)
    train("unbalanced streams", DataLoader(unbalanced(folder), batch_size=8))
    for name, loader in (("webdataset", webdataset), ("datasets", datasets)):
        if importlib.util.find_spec(name) is not None:
            train(name, loader(folder))
    if importlib.util.find_spec("accelerate") is not None:
        from accelerate import Accelerator

        train("accelerate", DataLoader(plain(folder), batch_size=8), wrap=Accelerator(cpu=True).prepare)
    without_rows()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
