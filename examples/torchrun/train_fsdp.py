"""A transformer on characters, in shards, with checkpoints by DCP. The lines that Evenstep asks for are marked.

torchrun --nproc-per-node=2 --rdzv-backend=evenstep examples/torchrun/train_fsdp.py
"""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader

import evenstep.torch as evenstep
from texts import LENGTH, Windows


class Characters(nn.Module):
    """Says which byte comes next."""

    def __init__(self, width: int = 64, layers: int = 2) -> None:
        super().__init__()
        self.bytes = nn.Embedding(256, width)
        self.places = nn.Parameter(torch.zeros(LENGTH, width))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True) for _ in range(layers)
        )
        self.head = nn.Linear(width, 256)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH, device=text.device)
        hidden = self.bytes(text) + self.places
        for layer in self.layers:
            hidden = layer(hidden, src_mask=mask, is_causal=True)
        return self.head(hidden)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--global-batch", type=int, default=128)
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--replicas", type=int, default=1, help="above 1: HSDP, that many replicas of the shards")
    parser.add_argument(
        "--checkpoint", help="folder of checkpoints, one every 20 batches, of which the newest is continued"
    )
    args = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    if device == "cuda":
        torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    shape = (args.replicas, dist.get_world_size() // args.replicas)
    mesh = init_device_mesh(device, shape, mesh_dim_names=("replicate", "shard"))
    mesh = mesh if args.replicas > 1 else mesh["shard"]

    torch.manual_seed(0)
    dataset, model = Windows(), Characters().to(device)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    sampler = evenstep.BalancedBatchSampler(dataset, args.global_batch)  # 1
    loader = DataLoader(dataset, batch_sampler=sampler)  # 2
    evenstep.balance(model, sampler)  # 3
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    def states() -> dict[str, object]:
        states = get_state_dict(model, optimizer)
        return {"model": states[0], "optimizer": states[1], "sampler": sampler}  # 4: DCP saves and loads it like these

    # What DCP writes last is the metadata.
    found = [file.parent for file in Path(args.checkpoint).glob("*/.metadata")] if args.checkpoint else []
    if found:
        loaded = states()
        dcp.load(loaded, checkpoint_id=max(found, key=lambda folder: folder.stat().st_mtime))
        set_state_dict(model, optimizer, model_state_dict=loaded["model"], optim_state_dict=loaded["optimizer"])

    for epoch in range(sampler.epoch, args.epochs):
        sampler.set_epoch(epoch)
        for step, (text, following) in enumerate(loader, 1):
            last = step % args.accumulate == 0
            model.set_requires_gradient_sync(last)
            logits = model(text.to(device))
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), following.to(device).flatten()) / args.accumulate
            loss.backward()
            if last:
                optimizer.step()
                optimizer.zero_grad()
            if step % 20 == 0:
                if dist.get_rank() == 0:
                    print(f"epoch {epoch}: loss {loss.item() * args.accumulate:.4f}, batch sizes {sampler.batch_sizes}")
                if args.checkpoint:
                    dcp.save(
                        states(), checkpoint_id=Path(args.checkpoint, f"{epoch}-{sampler.state_dict()['position']}")
                    )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
