"""What the user asked of us in ``--rdzv-conf``. The keys of c10d pass by."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_POLICIES = ("auto", "equal")
_WORKLOAD = re.compile(r"[A-Za-z0-9._:/@+-]{1,128}")
_ADDRESS = re.compile(r"unix:/.+|tcp:.+:[0-9]+")


@dataclass(frozen=True)
class Settings:
    """Our keys, each ``None`` where the user said nothing."""

    core: str | None
    """The address of a shared core."""
    policy: str | None
    workload: str | None

    @classmethod
    def read(cls, config: Mapping[str, Any], environ: Mapping[str, str]) -> "Settings":
        """Check what is given; ``ValueError`` names the field and what would be right."""
        core, field = config.get("core"), "core in --rdzv-conf"
        if core is None:
            core, field = environ.get("EVENSTEP_ADDR") or None, "EVENSTEP_ADDR"
        # A relative path would mean another socket on another agent.
        _check(core is None or _ADDRESS.fullmatch(str(core)), field, core, "unix:/PATH or tcp:HOST:PORT")
        policy = config.get("policy")
        _check(policy is None or policy in _POLICIES, "policy in --rdzv-conf", policy, " or ".join(_POLICIES))
        workload = config.get("workload")
        _check(
            workload is None or _WORKLOAD.fullmatch(str(workload)),
            "workload in --rdzv-conf",
            workload,
            "1 to 128 of A-Z a-z 0-9 . _ : / @ + -",
        )
        return cls(core, policy, workload)


def _check(right: object, field: str, value: object, wanted: str) -> None:
    if not right:
        raise ValueError(f"{field}: {value!r} is not valid; give {wanted}")
