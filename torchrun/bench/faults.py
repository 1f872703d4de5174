"""The fault bench: real torchrun trainings against faults at random moments. Run by `make faults`; prints a table.

Usage: faults.py [--faults N] [--seed S]. Each training is of two ranks, in float64, on the real core or on one that
lies (see `Liar`). Faults that kill no rank must leave the final weights within 1e-10 of those of one process on whole
batches; where a rank or torchrun dies, training goes on from the last checkpoint, and the samples' order must be that
of one process. A training that is not over in time counts as a hang. Exits 1 where any fault had another outcome.
"""

import argparse
import collections
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import grpc

from evenstep.v1 import balancer_pb2 as wire

RANK = Path(__file__).with_name("faults_rank.py")
DEADLINE = 180.0  # seconds of a training; a quiet one takes ten
PER_TRAINING = 40
PAUSE = 10.0  # seconds of a paused rank

OF_THE_CORE = ("core killed", "core stopped and continued", "disk full", "socket removed")
LIES = ("late", "never", "twice", "stale", "wrong sum", "wrong length", "negative", "huge")
OF_A_RANK = ("clock set back", "rank paused")
DEADLY = ("rank killed", "torchrun told to end")


class Liar:
    """A core that answers with sizes at random, or in the way that is asked for next."""

    def __init__(self, address: str, chance: random.Random) -> None:
        self._chance = chance
        self._lie = ""
        self._last: list[int] = []
        self.told = threading.Event()
        self._server = grpc.server(ThreadPoolExecutor(16), options=[("grpc.max_send_message_length", -1)])
        handler = grpc.stream_stream_rpc_method_handler(
            self._balance,
            request_deserializer=wire.BalanceRequest.FromString,
            response_serializer=wire.BalanceResponse.SerializeToString,
        )
        service = grpc.method_handlers_generic_handler("evenstep.v1.Balancer", {"Balance": handler})
        self._server.add_generic_rpc_handlers((service,))
        self._server.add_insecure_port(address)
        self._server.start()

    def lie(self, how: str) -> None:
        """Answer the next report so."""
        self.told.clear()
        self._lie = how

    def stop(self) -> None:
        self._server.stop(grace=None).wait()

    def _balance(self, requests: Any, context: grpc.ServicerContext) -> Any:
        opening = next(requests).open
        yield wire.BalanceResponse(opened=wire.Opened(core_version="liar", policy="auto"))
        for version, request in enumerate(requests, 1):
            lie, self._lie = self._lie, ""
            for sizes in self._answers(opening, lie):
                answer = wire.Allocation(version=version, from_step=request.report.next_free_step)
                answer.answers_step = request.report.step
                answer.batch_sizes[:] = sizes
                if lie == "huge":
                    answer.reason = "x" * (32 << 20)
                yield wire.BalanceResponse(allocation=answer)
            if lie:
                self.told.set()

    def _answers(self, opening: wire.Open, lie: str) -> list[list[int]]:
        total, least = opening.global_batch, opening.workers[0].min_batch_size
        first = self._chance.randint(least, total - least)
        sizes, before = [first, total - first], self._last
        self._last = sizes
        if lie == "late":
            time.sleep(2 * self._chance.random())
        return {
            "never": [],
            "twice": [sizes, sizes],
            "stale": [before or sizes],
            "wrong sum": [[first, total - first + 1]],
            "wrong length": [[total]],
            "negative": [[(first - total) % (1 << 32), 2 * total - first]],
        }.get(lie, [sizes])


class Training:
    """One torchrun, and the faults that it meets."""

    def __init__(self, folder: Path, liar: bool, seed: int, restarts: int, fakes_time: bool) -> None:
        self.folder, self.chance = folder, random.Random(seed)
        self.runtime = Path(tempfile.mkdtemp(prefix="f-", dir="/tmp"))
        self.report = folder / "report"
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("EVENSTEP_")},
            "EVENSTEP_BINARY": os.environ["EVENSTEP_BINARY"],
            "XDG_RUNTIME_DIR": str(self.runtime),
            "XDG_STATE_HOME": str(folder),
            "OMP_NUM_THREADS": "1",
            "EVENSTEP_FAULTS_UNTIL": str(folder / "until"),
        }
        library = _libfaketime()
        self.clock = folder / "clock"
        if library and fakes_time:
            self.clock.write_text("+0")
            self.environment |= {
                "EVENSTEP_FAULTS_PRELOAD": library,
                "FAKETIME_TIMESTAMP_FILE": str(self.clock),
                "FAKETIME_NO_CACHE": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            }
        self.liar = Liar(f"unix:{self.runtime}/liar.sock", self.chance) if liar else None
        if liar:
            self.environment["EVENSTEP_ADDR"] = f"unix:{self.runtime}/liar.sock"
        self.restarts = restarts
        self.torchrun = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        options = ["--nproc-per-node=2", "--rdzv-backend=evenstep", f"--max-restarts={self.restarts}"]
        command = [sys.executable, "-m", "torch.distributed.run", *options, str(RANK), str(self.report)]
        with (self.folder / "errors").open("ab") as errors:
            return subprocess.Popen(command, env=self.environment, stderr=errors, start_new_session=True)

    def steps(self) -> int:
        return sum(1 for _ in self.report.open()) if self.report.exists() else 0

    def wait_for_steps(self, more: int) -> bool:
        """Wait until so many lines were added; False where the training is over or hangs."""
        goal, deadline = self.steps() + more, time.monotonic() + 60
        while self.steps() < goal:
            if self.torchrun.poll() is not None or time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        time.sleep(0.05 * self.chance.random())
        return True

    def meet(self, fault: str) -> None:
        """Inject one fault. ProcessLookupError where what it strikes is not there."""
        if fault in LIES:
            assert self.liar is not None
            self.liar.lie(fault)
            self.liar.told.wait(20)
        elif fault == "core killed":
            os.kill(self._core(), signal.SIGKILL)
        elif fault == "core stopped and continued":
            core = self._core()
            os.kill(core, signal.SIGSTOP)
            time.sleep(2 * self.chance.random())
            os.kill(core, signal.SIGCONT)
        elif fault == "disk full":
            core = self._core()
            resource.prlimit(core, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        elif fault == "socket removed":
            for socket in self.runtime.glob("evenstep-*/core.sock"):
                socket.unlink()
        elif fault == "clock set back":
            self.clock.write_text(f"-{self.chance.randint(1, 1_000_000)}")
        elif fault == "rank paused":
            pid = self.chance.choice(self._ranks())
            os.kill(pid, signal.SIGSTOP)
            time.sleep(PAUSE)
            os.kill(pid, signal.SIGCONT)
        elif fault == "rank killed":
            os.kill(self.chance.choice(self._ranks()), signal.SIGKILL)
        elif fault == "torchrun told to end":
            self.torchrun.send_signal(signal.SIGTERM)
            self.torchrun.wait(60)
            self.torchrun = self._start()

    def end(self) -> tuple[str, list[dict[str, Any]]]:
        """Let the training finish; give what became of it, empty where it is over as it should, and its lines."""
        (self.folder / "until").touch()
        try:
            status = self.torchrun.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            return "hang", []
        if status != 0:
            return f"torchrun exited {status}", []
        return "", [json.loads(line) for line in self.report.read_text().splitlines() if line.endswith("}")]

    def clean(self) -> None:
        if self.torchrun.poll() is None:
            self.torchrun.kill()
        for pid in self._processes():
            os.kill(pid, signal.SIGKILL)
        if self.liar:
            self.liar.stop()
        shutil.rmtree(self.runtime, ignore_errors=True)

    def _processes(self) -> list[int]:
        mark = f"XDG_RUNTIME_DIR={self.runtime}".encode()
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]
        return [pid for pid in pids if mark in _read(pid, "environ").split(b"\0")]

    def _ranks(self) -> list[int]:
        found = [pid for pid in self._processes() if str(RANK).encode() in _read(pid, "cmdline").split(b"\0")[1:3]]
        found = [pid for pid in found if b"torch.distributed.run" not in _read(pid, "cmdline")]
        if not found:
            raise ProcessLookupError("no rank")
        return found

    def _core(self) -> int:
        deadline = time.monotonic() + 5  # one that was killed comes back
        while time.monotonic() < deadline:
            for pid in self._processes():
                if _read(pid, "cmdline").split(b"\0")[1:3] == [b"serve", b"--private"]:
                    return pid
            time.sleep(0.1)
        raise ProcessLookupError("the core died too often")


def _read(pid: int, file: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes()
    except OSError:
        return b""


def _libfaketime() -> str | None:
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    return str(found[0]) if found else None


def outcome(lines: list[dict[str, Any]], killed: bool) -> str:
    """Say what is wrong with a training that is over; empty where nothing is."""
    newest: dict[tuple[int, int], dict[int, list[int]]] = collections.defaultdict(dict)
    for line in lines:
        if "samples" in line:
            at = line["epoch"], line["position"]
            if line["rank"] in newest[at] and not killed:
                return "a step was trained twice"
            newest[at][line["rank"]] = line["samples"]
    (last,) = [line for line in lines if "expected" in line][-1:] or [None]
    if last is None:
        return "no end was reported"
    for epoch in range(last["epochs"]):
        samples = [
            sample
            for at in sorted(newest)
            if at[0] == epoch
            for rank in sorted(newest[at])
            for sample in newest[at][rank]
        ]
        if samples != last["order"][epoch][: len(samples)] or (epoch + 1 < last["epochs"] and not samples):
            return "samples lost, doubled or in another order"
        if epoch + 1 < last["epochs"] and len(samples) != len(last["order"][epoch]):
            return "samples lost"
    worst = max(abs(a - b) for a, b in zip(last["weights"], last["expected"], strict=True))
    return "" if worst < 1e-10 else f"weights differ by {worst:.1e}"


def plan(count: int, chance: random.Random) -> list[tuple[bool, int, list[str]]]:
    """Give (liar, restarts, faults) of each training."""
    trainings = []
    left = count
    kinds = [(False, OF_THE_CORE + OF_A_RANK), (True, LIES), (False, DEADLY), (True, (*LIES, *OF_A_RANK))]
    turn = 0
    decks: dict[int, list[str]] = {}
    while left > 0:
        liar, names = kinds[turn % len(kinds)]
        number = min(left, 4 if names is DEADLY else PER_TRAINING)
        faults = []
        paused = 0
        while len(faults) < number:
            deck = decks.setdefault(turn % len(kinds), [])
            if not deck:
                deck.extend(chance.sample(names, len(names)))
            fault = deck.pop()
            if fault == "rank paused" and (paused := paused + 1) > 1:
                continue
            faults.append(fault)
        trainings.append((liar, 9 if names is DEADLY else 0, faults))
        left -= number
        turn += 1
    return trainings


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    chance = random.Random(args.seed)
    table: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    begun = time.monotonic()
    for number, (liar, restarts, faults) in enumerate(plan(args.faults, chance)):
        with tempfile.TemporaryDirectory() as folder:
            training = Training(Path(folder), liar, args.seed * 1000 + number, restarts, "clock set back" in faults)
            met, bad = [], ""
            try:
                for fault in faults:
                    if not training.wait_for_steps(2 * chance.randint(1, 5)):
                        bad = "hang" if training.torchrun.poll() is None else "torchrun ended"
                        break
                    if fault == "clock set back" and not training.clock.exists():
                        table[fault]["not injected: no libfaketime"] += 1
                        continue
                    try:
                        training.meet(fault)
                    except ProcessLookupError as error:
                        table[fault][f"not injected: {error}"] += 1
                        continue
                    met.append(fault)
                ended, lines = training.end()
                bad = bad or ended or outcome(lines, killed=restarts > 0)
            finally:
                if bad:
                    sys.stderr.write((Path(folder) / "errors").read_text()[:6000])
                training.clean()
            for fault in met:
                table[fault][bad or "as undisturbed"] += 1
            print(f"training {number}: {len(met)} faults: {bad or 'as undisturbed'}", flush=True)
    injected = 0
    print(f"\n{'fault':<28} {'injected':>8}  outcome")
    for fault in (*OF_THE_CORE, *LIES, *OF_A_RANK, *DEADLY):
        for what, times in table[fault].items():
            print(f"{fault:<28} {times:>8}  {what}")
            injected += 0 if what.startswith("not injected") else times
    bad = {what for counts in table.values() for what in counts} - {"as undisturbed"}
    bad = {what for what in bad if not what.startswith("not injected")}
    print(f"{injected} faults in {time.monotonic() - begun:.0f} s")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
