"""What the user asked of us: our keys of `--rdzv-conf`, else variables that mean the same. Other keys are c10d's."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

POLICIES = "auto", "equal", "lbbsp-cpu", "lbbsp-gpu-analytic", "lbbsp-gpu-tuning"
"""What the core takes; `sizing.Kinds` in the Go core lists them."""


@dataclass(frozen=True)
class Settings:
    """Each `None` where the user said nothing."""

    core: str | None
    """The address of a shared core, which makes a private one needless."""
    policy: str | None
    workload: str | None

    @classmethod
    def read(cls, config: Mapping[str, Any], environ: Mapping[str, str]) -> "Settings":
        """Check what is given; `ValueError` names the field and what would be right."""

        def read(key: str, variable: str, pattern: str, wanted: str) -> str | None:
            field, value = f"{key} in --rdzv-conf", config.get(key)
            if value is None:
                field, value = variable, environ.get(variable) or None
            if value is not None and not re.fullmatch(pattern, value):
                raise ValueError(f"{field}: {value!r} is not valid; give {wanted}")
            return value

        # A relative path would name another socket on another agent.
        core = read("core", "EVENSTEP_ADDR", "unix:/.+", "unix:/PATH (tcp: is not supported yet)")
        policy = read("policy", "EVENSTEP_POLICY", "|".join(POLICIES), "one of " + ", ".join(POLICIES))
        workload = read("workload", "EVENSTEP_WORKLOAD", r"[A-Za-z0-9._:/@+-]{1,128}", "1 to 128 of A-Za-z0-9._:/@+-")
        return cls(core, policy, workload)
