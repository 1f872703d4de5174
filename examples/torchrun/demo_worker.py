"""One rank of the demo: trains the same network in several arms, in alternating short rounds.

The arms see the same samples in the same steps with the same weights; they differ in who computes how many of them:

- one arm per policy, by which Evenstep decides; `equal` stays with equal batch sizes
- one arm per fixed allocation that it is given

Rank 0 prints one JSON line a round and arm.
"""

import argparse
import json
import logging
import os
import time
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import evenstep.torch as evenstep
from mnist import images, network


class Arm:
    """A training of its own under one way to choose batch sizes: a policy, or sizes that stay."""

    def __init__(
        self, name: str, dataset: TensorDataset, global_batch: int, policy: str, sizes: list[int] | None = None
    ) -> None:
        self.name = name
        self._dataset = dataset
        torch.manual_seed(0)
        # How Evenstep is told, by any launcher: the policy, and the sizes to start from. `equal` keeps those.
        os.environ["EVENSTEP_POLICY"] = policy
        os.environ.pop("EVENSTEP_BATCH_SIZES", None)
        if sizes is not None:
            os.environ["EVENSTEP_BATCH_SIZES"] = ",".join(map(str, sizes))
        self.sampler = evenstep.BalancedBatchSampler(dataset, global_batch, seed=0, drop_last=True)
        self._model = evenstep.balance(DistributedDataParallel(network()), self.sampler)
        self._optimizer = torch.optim.Adam(self._model.parameters(), lr=1e-3)
        self._batches = self._endless()
        self.step()  # the first forward meets the core, while the environment is this arm's

    def _endless(self) -> Iterator[list[torch.Tensor]]:
        epoch = 0
        while True:
            self.sampler.set_epoch(epoch)
            yield from DataLoader(self._dataset, batch_sampler=self.sampler)
            epoch += 1

    def step(self) -> float:
        """Train one step; give this rank's loss, weighted so that the ranks' mean is the loss of the global batch."""
        pixels, digits = next(self._batches)
        self._optimizer.zero_grad()
        loss = cross_entropy(self._model(pixels), digits)
        loss.backward()
        self._optimizer.step()
        return loss.item() * len(digits) * dist.get_world_size() / self.sampler.global_batch_size

    def round(self, steps: int) -> dict[str, object]:
        """Train `steps` steps; give their seconds, losses, batch sizes and compute times."""
        dist.barrier()
        seconds, losses, measured = [], [], []
        begun = time.perf_counter()
        for _ in range(steps):
            losses.append(self.step())
            seconds.append(time.perf_counter() - begun)
            begun += seconds[-1]
            measured.append(self.sampler.measured)
        means = torch.tensor(losses, dtype=torch.float64)
        dist.all_reduce(means)
        return {
            "arm": self.name,
            "seconds": seconds,
            "losses": (means / dist.get_world_size()).tolist(),
            "batch_sizes": self.sampler.batch_sizes,
            "measured": measured,
        }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--global-batch", type=int, required=True)
    parser.add_argument("--policies", nargs="*", default=[])
    parser.add_argument("--fixed", nargs="*", default=[], help="batch sizes joined by commas")
    args = parser.parse_args()

    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[int(os.environ["RANK"])]})
    torch.set_num_threads(1)
    logging.getLogger("evenstep").setLevel(logging.ERROR)
    dist.init_process_group("gloo")
    dataset = images()
    arms = [Arm(policy, dataset, args.global_batch, policy) for policy in args.policies]
    for sizes in args.fixed:
        arms.append(Arm(f"fixed {sizes}", dataset, args.global_batch, "equal", [int(n) for n in sizes.split(",")]))
    for number in range(args.rounds):
        for arm in arms:
            record = arm.round(args.steps // 2 if arm.name.startswith("fixed") else args.steps)
            if dist.get_rank() == 0:
                print(json.dumps({"round": number, **record}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
