"""The handler: torch's own c10d rendezvous, and around it what the workers of a round need to find their core."""

import copy
import json
import logging
import os
import re
import secrets
import sys
import uuid
from collections.abc import Mapping

from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
)
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import create_backend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import create_handler as create_c10d_handler

from evenstep import agent, binary
from evenstep.lifeline import pid_namespace
from evenstep.rendezvous.private_server import PrivateServer
from evenstep.rendezvous.settings import Settings

_log = logging.getLogger(__name__)


def create_handler(params: RendezvousParameters) -> "EvenstepRendezvousHandler":
    """Join the rendezvous that `params` names."""
    try:
        settings = Settings.read(params.config, os.environ)
        params = _with_endpoint(params)
    except ValueError as error:
        # torchrun prints a traceback for every exception but this one.
        print(f"evenstep: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    # With the agents' store shared, torch keeps addresses from one round to the next: workers that come back meet
    # stale ones, and an agent that joins waits for one that nobody writes.
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    backend, store = create_backend(params)
    inner = create_c10d_handler(store, backend, params)
    return EvenstepRendezvousHandler(inner, store, settings, params.local_addr)


def _with_endpoint(params: RendezvousParameters) -> RendezvousParameters:
    """Make one node without an endpoint what `--standalone` makes it: a free port of this host and a fresh run id."""
    if params.endpoint:
        return params
    if params.max_nodes > 1:
        nodes = params.max_nodes if params.min_nodes == params.max_nodes else f"{params.min_nodes}:{params.max_nodes}"
        raise ValueError(
            "--rdzv-endpoint is empty, and several nodes must share one; on every node: torchrun"
            f" --nnodes={nodes} --rdzv-backend=evenstep --rdzv-endpoint=HOST:PORT --rdzv-id=ID ..."
        )
    params = copy.copy(params)
    # A file store without an endpoint makes a file of its own.
    if params.get("store_type") != "file":
        params.endpoint = "localhost:0"
    params.run_id = str(uuid.uuid4())
    params.local_addr = params.local_addr or "localhost"
    return params


class EvenstepRendezvousHandler(RendezvousHandler):
    """Leaves the rendezvous to torch, and at the end of each round sets the environment that its workers inherit.

    Where each agent knows its node's place in the plan, workers are numbered in that order: the batch sizes that the
    job starts with are planned for ranks. The agent of group rank 0 starts the private core, unless a shared one is
    named, and tells the others its address. Each starts an agent of evenstep for its workers, unless one runs on the
    node for all.
    """

    def __init__(self, inner: RendezvousHandler, store: Store, settings: Settings, address: str | None) -> None:
        """Wrap `inner`, whose rounds all see `store`. Others reach this host at `address`, or else by its name."""
        self._address = address
        self._inner = inner
        self._store = store
        self._settings = settings
        self._core: PrivateServer | None = None
        self._agent: PrivateServer | None = None
        self._environment_before: dict[str, str | None] = {}

    def get_backend(self) -> str:
        """Return the name that `--rdzv-backend` chose us by."""
        return "evenstep"

    def next_rendezvous(self) -> RendezvousInfo:
        """Wait for the next round and prepare its workers' environment, which torchrun copies from this process."""
        info = self._inner.next_rendezvous()
        # torch gives each round a store of its own, so nobody can read what another round said.
        round_store = PrefixStore("evenstep", info.store)
        info = self._in_order(info, round_store)
        if info.rank == 0:
            round_store.set("round", json.dumps({"job": self._name_job(), "core": self._provide_core()}))
        else:
            self._stop_core()
        agreed = json.loads(round_store.get("round"))
        environment = {
            "EVENSTEP_JOB": agreed["job"],
            "EVENSTEP_ADDR": agreed["core"],
            "EVENSTEP_AGENT_ADDR": self._provide_agent() if agreed["core"] else None,
            "EVENSTEP_POLICY": self._settings.policy,
            "EVENSTEP_WORKLOAD": self._settings.workload,
            # A worker asks the kernel to end it with this process, so that none outlives a kill -9 of torchrun.
            "EVENSTEP_AGENT_PID": str(os.getpid()),
            "EVENSTEP_PID_NAMESPACE": pid_namespace(),
            # gRPC's fork handlers may hang the children that a DataLoader forks, which have no use for gRPC.
            "GRPC_ENABLE_FORK_SUPPORT": "0",
        }
        for name in environment:
            self._environment_before.setdefault(name, os.environ.get(name))
        _set_environment(environment)
        return info

    def is_closed(self) -> bool:
        """Ask torch's handler."""
        return self._inner.is_closed()

    def set_closed(self) -> None:
        """Tell torch's handler."""
        self._inner.set_closed()  # type: ignore[no-untyped-call]

    def num_nodes_waiting(self) -> int:
        """Ask torch's handler."""
        return self._inner.num_nodes_waiting()

    def get_run_id(self) -> str:
        """Ask torch's handler."""
        return self._inner.get_run_id()

    def shutdown(self) -> bool:
        """End the private servers and torch's handler, and leave the environment to the next launch of this process."""
        self._stop_core()
        if self._agent is not None:
            self._agent.stop()
            self._agent = None
        _set_environment(self._environment_before)
        return self._inner.shutdown()

    def _in_order(self, info: RendezvousInfo, round_store: Store) -> RendezvousInfo:
        """Give this agent the group rank that its node's place in the plan makes it, the same way on all of them."""
        place = self._settings.node_rank
        round_store.set(f"place/{info.rank}", json.dumps(place))
        if info.rank == 0:
            places = [json.loads(round_store.get(f"place/{rank}")) for rank in range(info.world_size)]
            round_store.set("ranks", json.dumps(_ranks(places)))
        ranks = json.loads(round_store.get("ranks"))
        rank = ranks[info.rank]
        # Where rank 0 stays where it is, so do the address and the port at which its workers meet.
        meeting = info.bootstrap_store_info
        if ranks[0] != 0 or meeting is None:
            meeting = RendezvousStoreInfo.build(rank, round_store, self._address)
        return RendezvousInfo(info.store, rank, info.world_size, meeting)

    def _name_job(self) -> str:
        """Name this attempt as no other one is named, be it under the same run id on the same core."""
        attempt = PrefixStore(f"evenstep.{self.get_run_id()}", self._store).add("rounds", 1)
        printable = re.sub(r"[^!-~]", "_", self._settings.job or self.get_run_id())
        return f"{printable[:200]}/{attempt}-{secrets.token_hex(4)}"

    def _provide_core(self) -> str | None:
        if self._settings.core:
            return self._settings.core
        if self._core is None or not self._core.reachable:
            self._stop_core()
            try:
                self._core = PrivateServer(binary.find(), "serve", self._settings.plugin_dir)
            except OSError as error:
                _log.warning("evenstep: no core, so batch sizes stay equal: %s", error)
                return None
        return self._core.address

    def _provide_agent(self) -> str | None:
        there = self._settings.agent or agent.find()
        if there:
            return there
        if self._agent is None or not self._agent.reachable:
            if self._agent is not None:
                self._agent.stop()
            try:
                self._agent = PrivateServer(binary.find(), "agent", self._settings.plugin_dir)
            except OSError as error:
                self._agent = None
                _log.warning("evenstep: no agent, so the core will not know of devices: %s", error)
                return None
        return self._agent.address

    def _stop_core(self) -> None:
        if self._core is not None:
            self._core.stop()
            self._core = None


def _ranks(places: list[int | None]) -> list[int]:
    """Give the new rank of each agent by torch's: in the order of their places, or as they are where one has none."""
    known = [place for place in places if place is not None]
    if len(known) < len(places):
        return list(range(len(places)))
    ranks = [0] * len(places)
    for new, old in enumerate(sorted(range(len(places)), key=lambda rank: (known[rank], rank))):
        ranks[old] = new
    return ranks


def _set_environment(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
