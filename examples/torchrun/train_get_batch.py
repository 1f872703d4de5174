"""A GPT on characters, of a script that draws its own batches. The lines that Evenstep asks for are marked.

torchrun --nproc-per-node=2 --rdzv-backend=evenstep examples/torchrun/train_get_batch.py
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import evenstep.torch as evenstep
from texts import Windows


@dataclass
class GPTConfig:
    block_size: int = 32
    vocabulary: int = 256
    layers: int = 2
    heads: int = 4
    width: int = 64


class GPT(nn.Module):
    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.places = nn.Embedding(config.block_size, config.width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(config.width, config.heads, 4 * config.width, 0.0, "gelu", batch_first=True)
            for _ in range(config.layers)
        )
        self.head = nn.Linear(config.width, config.vocabulary)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        length = tokens.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=tokens.device)
        hidden = self.tokens(tokens) + self.places(torch.arange(length, device=tokens.device))
        for block in self.blocks:
            hidden = block(hidden, src_mask=mask, is_causal=True)
        logits = self.head(hidden)
        return logits, cross_entropy(logits.flatten(0, 1), targets.flatten())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=16, help="rows of a device in a forward, with equal batches")
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--checkpoint", help="file to continue from where it exists, written with each evaluation")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(1337)
    config = GPTConfig()
    text = Windows().text
    parts = {"train": text[: len(text) * 9 // 10], "val": text[len(text) * 9 // 10 :]}
    feed = evenstep.Feed(args.batch * dist.get_world_size(), seed=1337)  # 1

    def get_batch(part: str) -> tuple[torch.Tensor, torch.Tensor]:
        data = parts[part]
        ix = feed.randint(len(data) - config.block_size)  # 2, was: torch.randint(..., (args.batch,))
        x = torch.stack([data[i : i + config.block_size] for i in ix])
        y = torch.stack([data[i + 1 : i + 1 + config.block_size] for i in ix])
        return x, y

    gpt = GPT(config)
    optimizer = torch.optim.AdamW(gpt.parameters(), lr=1e-3)
    first = 0
    if args.checkpoint and Path(args.checkpoint).exists():
        state = torch.load(args.checkpoint)
        gpt.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        feed.load_state_dict(state["feed"])  # 3, with checkpoints
        first = state["step"]
    model = evenstep.balance(DistributedDataParallel(gpt), feed)  # 4

    @torch.no_grad()
    def estimate_loss() -> dict[str, float]:
        model.eval()
        means = {part: torch.stack([gpt(*get_batch(part))[1] for _ in range(5)]).mean().item() for part in parts}
        model.train()
        return means

    x, y = get_batch("train")
    for step in range(first, args.steps + 1):
        if step % 50 == 0 and dist.get_rank() == 0:
            losses = estimate_loss()
            print(f"step {step}: train {losses['train']:.4f}, val {losses['val']:.4f}, {feed.batch_sizes}", flush=True)
            if args.checkpoint:
                state = {"model": gpt.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
                torch.save({**state, "feed": feed.state_dict()}, args.checkpoint)  # 5, with checkpoints
        for micro in range(args.accumulate):
            model.require_backward_grad_sync = micro + 1 == args.accumulate
            _, loss = model(x, y)
            x, y = get_batch("train")  # while the device is busy with the forward
            (loss / args.accumulate).backward()
        nn.utils.clip_grad_norm_(gpt.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
