"""A core that answers by script, over real gRPC: for what the real one never does, or not often enough."""

import gc
import itertools
import random
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

import grpc

from evenstep.v1 import balancer_pb2 as wire

Script = Callable[[wire.Open, wire.StepReport], list[int] | None]


class ScriptedCore:
    """Serves the Balancer; `script` gives the batch sizes that answer a report, None for no answer.

    Used as a context: it listens inside. `openings` and `reports` hold what came, in order.
    """

    def __init__(self, script: Script, address: str | None = None) -> None:
        self.script = script
        self.openings: list[wire.Open] = []
        self.reports: list[wire.StepReport] = []
        self._folder = tempfile.TemporaryDirectory(prefix="evenstep-test-")
        self.address = address or f"unix:{Path(self._folder.name) / 'core.sock'}"
        self._lock = threading.Lock()

    def __enter__(self) -> "ScriptedCore":
        self._server = grpc.server(ThreadPoolExecutor(32))
        handler = grpc.stream_stream_rpc_method_handler(
            self._balance,
            request_deserializer=wire.BalanceRequest.FromString,
            response_serializer=wire.BalanceResponse.SerializeToString,
        )
        service = grpc.method_handlers_generic_handler("evenstep.v1.Balancer", {"Balance": handler})
        self._server.add_generic_rpc_handlers((service,))
        self._server.add_insecure_port(self.address)
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop(grace=None).wait()
        del self._server
        gc.collect()  # a loader's worker that is forked later would hang where it collects a server
        self._folder.cleanup()

    def _balance(
        self, requests: Iterator[wire.BalanceRequest], context: grpc.ServicerContext
    ) -> Iterator[wire.BalanceResponse]:
        opening = next(requests).open
        with self._lock:
            self.openings.append(opening)
        yield wire.BalanceResponse(opened=wire.Opened(core_version="scripted", policy="auto"))
        for version, request in enumerate(requests, 1):
            report = request.report
            with self._lock:
                self.reports.append(report)
            sizes = self.script(opening, report)
            if sizes is not None:
                allocation = wire.Allocation(version=version, from_step=report.next_free_step, answers_step=report.step)
                allocation.batch_sizes[:] = sizes
                yield wire.BalanceResponse(allocation=allocation)


def random_sizes(opening: wire.Open, report: wire.StepReport) -> list[int]:
    """A new allocation each step, each rank with at least the minimum, in multiples of the quantum."""
    chance = random.Random(report.step)
    quantum = max(1, opening.quantum)
    workers, least = len(opening.workers), -(-opening.workers[0].min_batch_size // quantum)
    spare = opening.global_batch // quantum - workers * least
    cuts = sorted(chance.randint(0, spare) for _ in range(workers - 1))
    return [quantum * (high - low + least) for low, high in itertools.pairwise([0, *cuts, spare])]
