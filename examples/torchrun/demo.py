"""The demo: what Evenstep gains on this machine, on a real training under torchrun.

Two workers train a network on MNIST images, each on a core of its own. Beside the second one run two other programs, as
on a shared cluster, so it gets about a third of its core. Three ways to choose batch sizes train in alternating short
rounds, so that the noise of the machine hits all alike: equal sizes, Evenstep, and a few fixed allocations around the
min-max of the speed curves measured before. The best of those is the ideal. Evenstep starts with what the core learned
of each worker's core in that first run, and in demos before. Further policies train beside them when --policies names
some.

Writes demo.json and demo.png into the folder given by --out.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evenstep import binary

WORKER = Path(__file__).with_name("demo_worker.py")
GLOBAL_BATCH = 384
LEARNING_ROUNDS, ROUNDS, STEPS = 2, 8, 16
SPREAD = 12  # samples between two of the fixed allocations
SMOOTH = 12  # steps over which the loss is averaged

# One thread a worker; and freed memory is kept: whether glibc gives large tensors back to the kernel at each step, to
# fault them in again, depends on what lies beside them, and made a worker's steps 40 % longer in some rounds.
SETTINGS = {"OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}

Record = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build"), help="folder of demo.json and demo.png")
    parser.add_argument(
        "--rounds",
        type=int,
        default=ROUNDS,
        help=f"rounds of {STEPS} steps, half as many with fixed allocations (default %(default)s)",
    )
    parser.add_argument(
        "--policies", nargs="+", default=[], metavar="POLICY", help="further policies to train under (lbbsp-cpu ...)"
    )
    args = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise SystemExit("demo: this machine has one core; the demo needs two")
    try:
        binary.find()
    except OSError as error:
        raise SystemExit(f"demo: {error}") from None
    args.out.mkdir(parents=True, exist_ok=True)
    with busy_program(cores[1]), busy_program(cores[1]):
        print(f"Measuring how fast each worker is; two programs share core {cores[1]} with worker 1.", flush=True)
        learned = list(train(LEARNING_ROUNDS, ["equal", "auto"], []))
        fixed = around(minmax(curves(learned)))
        print("Training in rounds: equal batches, Evenstep, and fixed allocations to find the ideal.", flush=True)
        policies = ["equal", *args.policies, "auto"]
        records = list(train(args.rounds, policies, fixed))
    result = summary(records, policies)
    (args.out / "demo.json").write_text(json.dumps(result, indent=2) + "\n")
    print(table(result))
    plot(records, result, args.out / "demo.png")
    print(f"Written: {args.out / 'demo.json'}, {args.out / 'demo.png'}")


@contextmanager
def busy_program(core: int) -> Iterator[None]:
    """Run a program that never sleeps on `core`; it ends with this one, whatever ends that."""
    source = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])}); parent = os.getppid()\n"
    source += "while os.getppid() == parent: sum(range(100_000))"
    # A session of its own, as torchrun gives its workers: Linux may divide a core among sessions first.
    program = subprocess.Popen([sys.executable, "-c", source, str(core)], start_new_session=True)
    try:
        yield
    finally:
        program.kill()
        program.wait()


def train(rounds: int, policies: Sequence[str], fixed: Sequence[Sequence[int]]) -> Iterator[Record]:
    """Run one torchrun and give its records, with a live line of progress."""
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node=2",
        "--rdzv-backend=evenstep",
        str(WORKER),
    ]
    command += [f"--rounds={rounds}", f"--steps={STEPS}", f"--global-batch={GLOBAL_BATCH}"]
    command += ["--policies", *policies, "--fixed", *(",".join(map(str, sizes)) for sizes in fixed)]
    torchrun = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **SETTINGS})
    total, done = rounds * (len(policies) + len(fixed)), 0
    assert torchrun.stdout is not None
    try:
        for line in torchrun.stdout:
            record = json.loads(line)
            done += 1
            progress(
                f"{done}/{total} rounds  {record['arm']:18}  {statistics.mean(record['seconds']) * 1e3:6.1f} ms a step"
            )
            yield record
    except BaseException:
        torchrun.send_signal(signal.SIGTERM)
        raise
    finally:
        torchrun.wait()
        progress("")
    if torchrun.returncode != 0:
        raise SystemExit(f"demo: torchrun exited {torchrun.returncode}; see above")


def progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
    elif text:
        print(text, file=sys.stderr, flush=True)


def curves(records: Sequence[Record]) -> list[dict[int, float]]:
    """Give each worker's median compute seconds by batch size."""
    times: list[dict[int, list[float]]] = [defaultdict(list), defaultdict(list)]
    for record in records:
        for ranks in record["measured"][2:]:
            for rank, (samples, seconds) in enumerate(ranks):
                if seconds > 0:
                    times[rank][round(samples)].append(seconds)
    return [{n: statistics.median(t) for n, t in by_size.items() if len(t) >= 3} for by_size in times]


def minmax(by_size: Sequence[dict[int, float]]) -> list[int]:
    """Ask `evenstep size` for the allocation that finishes first under these curves."""
    workers = []
    for rank, curve in enumerate(by_size):
        sizes = sorted(curve)
        rising = [max(curve[n] for n in sizes if n <= size) for size in sizes]
        workers.append({"id": str(rank), "points": [list(point) for point in zip(sizes, rising, strict=True)]})
    problem = json.dumps({"global_batch": GLOBAL_BATCH, "workers": workers})
    answer = subprocess.run([binary.find(), "size"], input=problem, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise SystemExit(f"demo: {answer.stderr.strip()}")
    return list(json.loads(answer.stdout)["batch_sizes"].values())


def around(sizes: Sequence[int]) -> list[list[int]]:
    first = [sizes[0] + step * SPREAD for step in (-3, -2, -1, 0, 1, 2, 3)]
    return [[n, GLOBAL_BATCH - n] for n in first if 2 <= n <= GLOBAL_BATCH - 2]


def summary(records: Sequence[Record], policies: Sequence[str]) -> dict[str, Any]:
    by_arm: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        by_arm[record["arm"]].append(record)
    # The first rounds are where Evenstep learns; they count for the time to a loss, not for the time of a step.
    settled = {arm: rounds[len(rounds) // 4 :] for arm, rounds in by_arm.items()}
    step = {arm: step_seconds(rounds) for arm, rounds in settled.items()}
    best = min((arm for arm in step if arm.startswith("fixed")), key=lambda arm: step[arm])
    target, to_loss = seconds_to_loss(by_arm)
    equal, balanced, ideal = step["equal"], step["auto"], step[best]
    workers = {arm: per_worker(settled[arm]) for arm in ("equal", "auto", best)}
    # Against the ideal of the same round, since the machine may be another one later.
    first, ideal_then = (statistics.median(by_arm[arm][0]["seconds"][:10]) for arm in ("auto", best))
    rates = [worker["batch_size"] / worker["compute_seconds"] for worker in workers["auto"]]
    return {
        "equal_step_seconds": equal,
        "balanced_step_seconds": balanced,
        "ideal_step_seconds": ideal,
        "equal_seconds_to_loss": to_loss["equal"],
        "balanced_seconds_to_loss": to_loss["auto"],
        "loss": target,
        "gain": 1 - balanced / equal,
        "first_ten_steps_seconds": first,
        "first_ten_steps_over_ideal": first / ideal_then,
        "share_of_ideal": (equal - balanced) / (equal - ideal),
        "whole_batch_over_total_speed_seconds": GLOBAL_BATCH / sum(rates),
        "ideal_arm": best,
        "fixed_step_seconds": {arm: seconds for arm, seconds in step.items() if arm.startswith("fixed")},
        "workers": workers,
        "policies": [outcome(policy, by_arm, best) for policy in policies],
        "ideal": outcome(best, by_arm, best),
    }


def step_seconds(rounds: Sequence[Record]) -> float:
    """Give the median step; the first of a round follows other trainings."""
    return statistics.median(s for r in rounds for s in r["seconds"][1:])


def outcome(arm: str, by_arm: dict[str, list[Record]], best: str) -> dict[str, Any]:
    """Say what became of a training, in the second half of its rounds but for the total: some policies learn slowly."""
    late = {name: by_arm[name][len(by_arm[name]) // 2 :] for name in ("equal", arm, best)}
    equal, mine, ideal = (step_seconds(late[name]) for name in ("equal", arm, best))
    return {
        "policy": arm,
        "step_seconds": mine,
        "gain": 1 - mine / equal,
        "share_of_ideal": (equal - mine) / (equal - ideal),
        "workers": per_worker(late[arm]),
        "total_seconds": sum(s for r in by_arm[arm] for s in r["seconds"]),
        "steps": sum(len(r["seconds"]) for r in by_arm[arm]),
    }


def per_worker(rounds: Sequence[Record]) -> list[dict[str, float]]:
    """Give each worker's median batch size and compute seconds."""
    ranks = zip(*(ranks for r in rounds for ranks in r["measured"][2:] if ranks), strict=True)
    return [
        {
            "batch_size": statistics.median(n for n, _ in rank),
            "compute_seconds": statistics.median(seconds for _, seconds in rank if seconds > 0),
        }
        for rank in ranks
    ]


def history(rounds: Sequence[Record]) -> tuple[list[float], list[float]]:
    """Give (seconds since the start, loss averaged over the last steps) after each step of an arm."""
    seconds = [s for r in rounds for s in r["seconds"]]
    losses = [loss for r in rounds for loss in r["losses"]]
    ends = [sum(seconds[: i + 1]) for i in range(SMOOTH - 1, len(seconds))]
    return ends, [statistics.mean(losses[i - SMOOTH + 1 : i + 1]) for i in range(SMOOTH - 1, len(losses))]


def seconds_to_loss(by_arm: dict[str, list[Record]]) -> tuple[float, dict[str, float]]:
    """Give the lowest loss that both trainings reached, and the seconds that each took to it."""
    histories = {arm: history(by_arm[arm]) for arm in ("equal", "auto")}
    target = max(min(losses) for _, losses in histories.values())
    return target, {
        arm: next(end for end, loss in zip(ends, losses, strict=True) if loss <= target)
        for arm, (ends, losses) in histories.items()
    }


def table(result: dict[str, Any]) -> str:
    rows = [("", "step", "worker 0", "worker 1", f"to loss {result['loss']:.3f}")]
    for arm, name, key in (
        ("equal", "equal batches", "equal"),
        ("auto", "Evenstep", "balanced"),
        (result["ideal_arm"], "ideal (measured)", "ideal"),
    ):
        to_loss = result.get(f"{key}_seconds_to_loss")
        cells = row(result[f"{key}_step_seconds"], result["workers"][arm])
        rows.append((name, *cells, f"{to_loss:.1f} s" if to_loss else ""))
    for policy in result["policies"]:
        if policy["policy"] not in ("equal", "auto"):
            rows.append((policy["policy"], *row(policy["step_seconds"], policy["workers"]), ""))
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, (18, 10, 16, 16, 16), strict=True)) for row in rows
    ]
    faster = result["equal_seconds_to_loss"] / result["balanced_seconds_to_loss"]
    lines += [
        "",
        f"A step takes {result['gain']:.0%} less time, and the same loss is reached {faster:.2f} times as fast.",
        f"That is {result['share_of_ideal']:.0%} of the way from equal batches to the ideal; "
        f"N over the workers' total speed: {result['whole_batch_over_total_speed_seconds'] * 1e3:.1f} ms.",
        f"Its first ten steps, which start from profiles: {result['first_ten_steps_over_ideal']:.2f} of the ideal.",
    ]
    return "\n".join(line.rstrip() for line in lines)


def row(step: float, workers: Sequence[dict[str, float]]) -> list[str]:
    cells = [f"{worker['batch_size']:.0f} in {worker['compute_seconds'] * 1e3:.0f} ms" for worker in workers]
    return [f"{step * 1e3:.1f} ms", *cells]


def plot(records: Sequence[Record], result: dict[str, Any], file: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    names = ["equal", "Evenstep", "ideal"]
    heights = [result[f"{key}_step_seconds"] * 1e3 for key in ("equal", "balanced", "ideal")]
    bars = left.bar(names, heights, color=["#b0b0b0", "#1f77b4", "#9ecae1"])
    left.bar_label(bars, fmt="%.0f ms")
    left.set(title="time of a step", ylabel="milliseconds")
    for arm, name, color in (("equal", "equal batches", "#808080"), ("auto", "Evenstep", "#1f77b4")):
        right.plot(*history([r for r in records if r["arm"] == arm]), label=name, color=color)
    right.axhline(result["loss"], color="black", linewidth=0.5, linestyle=":")
    right.set(title="training loss", xlabel="seconds of training", ylabel="loss")
    right.legend()
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=150)


if __name__ == "__main__":
    main()
