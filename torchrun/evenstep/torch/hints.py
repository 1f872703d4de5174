"""What the node's agent says of this worker's device: how fast it runs, how fast it could, and why it does not.

Asked on a thread of its own, so that no step waits for it. Without an agent nothing is known, and nothing else changes.
"""

import contextlib
import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from evenstep.report import Hints

if TYPE_CHECKING:
    from evenstep.v1.devices_pb2 import Device

# Loaders fork their workers beside gRPC's threads; with its fork support on, such a fork hangs.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

_METHOD = "/evenstep.plugin.devices.v1.Devices/Probe"
_PAUSE = 1.0  # seconds between two questions; the agent looks as often
_PATIENCE = 2.0  # seconds for an answer


class DeviceHints:
    """Asks the agent now and then."""

    def __init__(self, address: str, device: torch.device) -> None:
        """Ask the agent at `address` for the device that this worker trains on."""
        self._address = address
        self._uuid = _uuid(device)
        self._newest = Hints()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="evenstep-hints", daemon=True)
        self._thread.start()

    def read(self) -> Hints:
        """Give the newest."""
        return self._newest

    def close(self) -> None:
        """End the thread, which may still wait for an answer."""
        self._closed.set()

    def _run(self) -> None:
        import grpc

        from evenstep.v1 import devices_pb2 as wire

        with grpc.insecure_channel(self._address) as channel:
            probe = channel.unary_unary(
                _METHOD,
                request_serializer=wire.ProbeRequest.SerializeToString,
                response_deserializer=wire.ProbeResponse.FromString,
            )
            while not self._closed.is_set():
                found = Hints()
                with contextlib.suppress(grpc.RpcError):
                    found = pick(probe(wire.ProbeRequest(), timeout=_PATIENCE).devices, self._uuid)
                self._newest = found
                self._closed.wait(_PAUSE)


def pick(devices: "Sequence[Device]", uuid: str) -> Hints:
    """Choose the device with the UUID, for no UUID the CPUs."""
    for device in devices:
        mine = device.uuid.partition("-")[2] == uuid if uuid else device.kind == "cpu"
        if mine:
            return Hints(device.sm_clock_mhz, device.sm_clock_max_mhz, tuple(device.throttle))
    return Hints()


def _uuid(device: torch.device) -> str:
    """Give the UUID that the driver knows a CUDA device by; empty for CPUs."""
    if device.type != "cuda":
        return ""
    # Not in all versions of torch. What no device has is never found.
    return str(getattr(torch.cuda.get_device_properties(device), "uuid", "unknown"))
