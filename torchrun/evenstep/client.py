"""A client for training loops of any framework: report what a step cost, get the batch sizes of the next."""

import logging
import os
import uuid
from collections.abc import Sequence
from types import TracebackType

from evenstep import binary
from evenstep.core import Core
from evenstep.rendezvous.private_server import PrivateServer
from evenstep.report import Row
from evenstep.v1 import balancer_pb2 as wire

_log = logging.getLogger("evenstep")


class Client:
    """Right-sizes the batches of a job; one process of the job has it, and tells the other workers their sizes.

    Each gradient, the mean over a worker's samples, is to be weighted by n_i / N, so that the sum over workers is that
    of the whole batch. A core that is gone or hangs leaves the sizes as they are. Used as a context, it closes itself.
    """

    def __init__(
        self,
        workers: int | Sequence[str],
        global_batch: int,
        *,
        address: str | None = None,
        quantum: int = 1,
        least: int = 1,
        policy: str = "",
        workload: str = "",
    ) -> None:
        """Connect to the core at `address`, else at EVENSTEP_ADDR (unix:/PATH), else to one of its own.

        `workers` is their number, or the types of their devices, as the vendors name them. Batch sizes are at least
        `least`, multiples of `quantum`, and sum to `global_batch`. `policy` and `workload` are as in --rdzv-conf.
        Raises ValueError, naming the argument, where no sizes fit.
        """
        types = [""] * workers if isinstance(workers, int) else list(workers)
        if not types:
            raise ValueError("workers: there is none; give one or more")
        if quantum < 1 or global_batch % quantum:
            raise ValueError(
                f"quantum: {quantum} does not divide the global batch of {global_batch}; give one that does"
            )
        least = max(1, -(-least // quantum)) * quantum
        if len(types) * least > global_batch:
            raise ValueError(f"global_batch: {global_batch} is below {len(types)} workers times {least}; give more")
        each, rest = divmod(global_batch // quantum, len(types))
        self._sizes = tuple(quantum * (each + (at < rest)) for at in range(len(types)))
        self._step = 0
        self._server: PrivateServer | None = None
        self._core: Core | None = None
        address = address or os.environ.get("EVENSTEP_ADDR") or self._start_core()
        if address is None:
            return
        if not address.startswith("unix:/"):
            raise ValueError(f"address: {address!r} is not valid; give unix:/PATH (tcp: is not supported yet)")
        opening = wire.Open(
            job=f"client-{uuid.uuid4().hex}",
            global_batch=global_batch,
            quantum=quantum,
            workers=[wire.Worker(device_type=kind, min_batch_size=least) for kind in types],
            policy=policy,
            workload=workload,
        )
        self._core = Core(address, opening, lambda: self._sizes)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Batch sizes of the next step, one per worker."""
        return self._sizes

    def report(
        self, seconds: Sequence[float], samples: Sequence[float] | None = None, *, ahead: int = 0
    ) -> tuple[int, ...]:
        """Report what the step at hand cost each worker, and give the batch sizes of the next. Never blocks.

        `seconds` are compute times without the wait for other workers, 0 where not measured; `samples` is what was
        computed in them, by default the sizes given for this step. `ahead` is for how many steps after this one batches
        were drawn already; sizes then are for the step after those.
        """
        samples = self._sizes if samples is None else samples
        if len(seconds) != len(self._sizes) or len(samples) != len(self._sizes):
            raise ValueError(f"seconds, samples: not one for each of the {len(self._sizes)} workers; give so many")
        if self._core is not None:
            rows = [Row(ahead + 1, n, t) for n, t in zip(samples, seconds, strict=True)]
            self._core.report(self._step, self._step + ahead + 1, rows)
            self._sizes = self._core.newest() or self._sizes
        self._step += 1
        return self._sizes

    def close(self) -> None:
        """End the stream, and the core where it is our own. Harmless when done before."""
        if self._core is not None:
            self._core.close()
        if self._server is not None:
            self._server.stop()
        self._core = self._server = None

    def __enter__(self) -> "Client":
        """Give itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def _start_core(self) -> str | None:
        try:
            self._server = PrivateServer(binary.find(), "serve")
        except OSError as error:
            _log.warning("evenstep: no core, so batch sizes stay equal: %s", error)
            return None
        return self._server.address
