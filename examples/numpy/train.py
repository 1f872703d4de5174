"""A training loop without any framework: linear regression in NumPy, by worker processes that are not equally fast.

    python examples/numpy/train.py

The main process holds the weights and an `evenstep.Client`. In each step it gives worker i the next n_i samples, gets
back their mean gradient and how long it took, and adds up n_i / N times that.
"""

import multiprocessing
import time
from multiprocessing.connection import Connection

import numpy as np

import evenstep

SAMPLES, FEATURES, GLOBAL_BATCH, EPOCHS = 4096, 16, 64, 3
SECONDS_PER_ROW = (0.0002, 0.0006)  # the second worker is three times as slow


def work(jobs: Connection, seconds_per_row: float) -> None:
    """Answer (x, y, weights) with the mean gradient and its compute time, until None comes."""
    while (job := jobs.recv()) is not None:
        begun = time.perf_counter()
        x, y, weights = job
        gradient = 2 * x.T @ (x @ weights - y) / len(x)
        time.sleep(seconds_per_row * len(x))
        jobs.send((gradient, time.perf_counter() - begun))


def main() -> None:
    """Train, and compare with training in one process."""
    chance = np.random.default_rng(0)
    x = chance.normal(size=(SAMPLES, FEATURES))
    y = x @ chance.normal(size=FEATURES)
    ends = [multiprocessing.Pipe() for _ in SECONDS_PER_ROW]
    workers = [
        multiprocessing.Process(target=work, args=(theirs, seconds), daemon=True)
        for (_, theirs), seconds in zip(ends, SECONDS_PER_ROW, strict=True)
    ]
    for worker in workers:
        worker.start()
    pipes = [ours for ours, _ in ends]
    weights, alone = np.zeros(FEATURES), np.zeros(FEATURES)
    with evenstep.Client(len(workers), GLOBAL_BATCH, least=2) as client:
        sizes = client.sizes
        for epoch in range(EPOCHS):
            order = np.random.default_rng(epoch).permutation(SAMPLES)
            for low in range(0, SAMPLES, GLOBAL_BATCH):
                batch = order[low : low + GLOBAL_BATCH]
                shares = np.split(batch, np.cumsum(sizes)[:-1])
                for pipe, share in zip(pipes, shares, strict=True):
                    pipe.send((x[share], y[share], weights))
                answers = [pipe.recv() for pipe in pipes]
                for share, (gradient, _) in zip(shares, answers, strict=True):
                    weights = weights - 0.01 * len(share) / GLOBAL_BATCH * gradient
                alone = alone - 0.01 * 2 * x[batch].T @ (x[batch] @ alone - y[batch]) / len(batch)
                sizes = client.report([seconds for _, seconds in answers])
            print(f"epoch {epoch}: loss {np.mean((x @ weights - y) ** 2):.3g}, batch sizes {list(sizes)}", flush=True)
    for pipe in pipes:
        pipe.send(None)
    print(f"largest difference from one process: {np.abs(weights - alone).max():.1e}")


if __name__ == "__main__":
    main()
