"""The stream from rank 0 to the core, on a thread of its own.

Nothing here can stop a step: a core that is gone, hangs or answers nonsense leaves the batch sizes as they are. A lost
stream is opened again with the sizes then in force.
"""

import contextlib
import logging
import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence

# Loaders fork their workers beside gRPC's threads; with its fork support on, such a fork hangs.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import grpc

from evenstep.report import Row
from evenstep.v1 import balancer_pb2 as wire

_log = logging.getLogger("evenstep")

_METHOD = "/evenstep.v1.Balancer/Balance"
# Another try cannot help where the core says that the request is wrong, or knows no such service.
_FINAL = {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.UNIMPLEMENTED}
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0  # seconds between two tries
_REASONS = 16  # of a device that the core takes
_UNANSWERED = 64  # reports kept for a core that does not take them; the next ones are dropped


class Core:
    """A job's stream, as rank 0 sees it."""

    def __init__(self, address: str, opening: wire.Open, sizes: Callable[[], Sequence[int]]) -> None:
        """Connect to `address` in the background. `opening` says what the job is, `sizes` what is in force."""
        self._address = address
        self._opening = opening
        self._sizes = sizes
        self._lock = threading.Lock()
        self._newest: tuple[int, ...] | None = None
        self._reports: queue.Queue[wire.BalanceRequest | None] = queue.Queue(_UNANSWERED)
        self._closed = threading.Event()
        self._call: grpc.Call | None = None
        self._reopening = False
        self._opened = threading.Event()  # the core has said what the job starts from
        self._troubled = False  # the loss of the core has been told
        self._doubted = False  # a malformed allocation has been told
        self.reason = ""  # of the allocation in force
        self._version = 1  # of the allocation told last
        self._thread = threading.Thread(target=self._run, name="evenstep-core", daemon=True)
        self._thread.start()

    def report(self, step: int, next_free_step: int, rows: Sequence[Row]) -> None:
        """Send what `step` cost. Never blocks; dropped where the core does not keep up."""
        report = wire.StepReport(
            step=step,
            next_free_step=next_free_step,
            workers=[
                wire.WorkerReport(
                    rank=rank,
                    compute_seconds=row.seconds,
                    samples=row.samples,
                    cpu_available=row.cpu or None,
                    memory_available_bytes=row.memory or None,
                    sm_clock_mhz=row.hints.clock or None,
                    sm_clock_max_mhz=row.hints.clock_max or None,
                    throttle_reasons=row.hints.throttle[:_REASONS],
                    device_memory_used_bytes=row.used or None,
                    wait_seconds=row.wait or None,
                )
                for rank, row in enumerate(rows)
            ],
        )
        with contextlib.suppress(queue.Full):
            self._reports.put_nowait(wire.BalanceRequest(report=report))

    def reopen(self, opening: wire.Open) -> None:
        """Open the stream anew, as another job."""
        with self._lock:  # an answer to the job that it was may be too large for the job that it is
            self._opening, self._reopening, self._newest = opening, True, None
        if self._call is not None:
            self._call.cancel()

    def start(self, seconds: float) -> tuple[int, ...] | None:
        """Wait for the sizes that the core starts the job with, so long; None where it leaves them as they are."""
        self._opened.wait(seconds)
        return self.newest()

    def newest(self) -> tuple[int, ...] | None:
        """Take the newest allocation that was not taken yet."""
        with self._lock:
            sizes, self._newest = self._newest, None
        return sizes

    def close(self) -> None:
        """End the stream and its thread."""
        self._closed.set()
        if self._call is not None:
            self._call.cancel()
        if threading.current_thread() is not self._thread:  # the garbage collector calls from anywhere
            self._thread.join(timeout=2)

    def _run(self) -> None:
        pause = _FIRST_PAUSE
        while not self._closed.is_set():
            try:
                for response in self._stream():
                    pause = _FIRST_PAUSE
                    self._accept(response)
            except grpc.RpcError as error:
                code, details = error.code(), error.details()
                if self._closed.is_set():
                    return
                if self._reopening:
                    self._reopening = False
                    continue
                if code in _FINAL:
                    _log.warning("evenstep: the core refused the job: %s; batch sizes stay as they are", details)
                    return
                if not self._troubled:
                    self._troubled = True
                    _log.warning(
                        "evenstep: no answer from the core at %s (%s); training goes on with the batch sizes in force",
                        self._address,
                        details,
                    )
            self._closed.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _stream(self) -> Iterator[wire.BalanceResponse]:
        """Open one stream and give its responses until it breaks."""
        reports = self._reports = queue.Queue(_UNANSWERED)
        opening = wire.Open()
        opening.CopyFrom(self._opening)
        opening.batch_sizes[:] = self._sizes()
        opening.choose_start = opening.choose_start and not self._opened.is_set()

        def requests() -> Iterator[wire.BalanceRequest]:
            yield wire.BalanceRequest(open=opening)
            while (report := reports.get()) is not None:
                yield report

        with grpc.insecure_channel(self._address) as channel:
            balance = channel.stream_stream(
                _METHOD,
                request_serializer=wire.BalanceRequest.SerializeToString,
                response_deserializer=wire.BalanceResponse.FromString,
            )
            self._call = call = balance(requests())
            try:
                if not self._closed.is_set():
                    yield from call
            finally:
                call.cancel()
                # Its thread sits in reports.get(); a full queue makes room for the word that ends it.
                while True:
                    try:
                        reports.put_nowait(None)
                        break
                    except queue.Full:
                        reports.get_nowait()

    def _accept(self, response: wire.BalanceResponse) -> None:
        if response.HasField("opened"):
            if self._troubled:
                self._troubled = False
                _log.warning("evenstep: the core is back")
            if not self._opened.is_set():
                if self._opening.choose_start and response.opened.HasField("allocation"):
                    self._take(response.opened.allocation)
                self._opened.set()
            return
        self._take(response.allocation)

    def _take(self, allocation: wire.Allocation) -> None:
        self.reason = allocation.reason
        with self._lock:
            fault = self._fault(allocation)
            if fault is None:
                self._newest = tuple(allocation.batch_sizes)
        if fault is None:
            if allocation.version != self._version:
                self._version = allocation.version
                _log.info("evenstep: batch sizes %s: %s", list(allocation.batch_sizes), allocation.reason)
        elif not self._doubted:
            self._doubted = True
            _log.warning("evenstep: ignored a malformed allocation from the core: %s", fault)

    def _fault(self, allocation: wire.Allocation) -> str | None:
        sizes, workers = allocation.batch_sizes, self._opening.workers
        if len(sizes) != len(workers):
            return f"batch_sizes: {len(sizes)} sizes for {len(workers)} workers"
        if sum(sizes) != self._opening.global_batch:
            return f"batch_sizes: they sum to {sum(sizes)}, not to the global batch {self._opening.global_batch}"
        quantum = max(1, self._opening.quantum)
        for rank, (size, worker) in enumerate(zip(sizes, workers, strict=True)):
            if size % quantum:
                return f"batch_sizes[{rank}]: {size} is no multiple of the quantum {quantum}"
            if size < worker.min_batch_size:
                return f"batch_sizes[{rank}]: {size} is below the minimum {worker.min_batch_size}"
            if 0 < worker.max_batch_size < size:
                return f"batch_sizes[{rank}]: {size} is above the maximum {worker.max_batch_size}"
        return None
