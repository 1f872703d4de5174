"""What the user asked of us: our keys of `--rdzv-conf`, else variables that mean the same. Other keys are c10d's."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

POLICIES = "auto", "equal", "lbbsp-cpu", "lbbsp-gpu-analytic", "lbbsp-gpu-tuning"
"""What is built into the core, as `sizing.Kinds` in Go lists it; plugins add others, which only the core knows."""


@dataclass(frozen=True)
class Settings:
    """Each `None` where the user said nothing."""

    core: str | None
    """The address of a shared core, which makes a private one needless."""
    policy: str | None
    workload: str | None
    plugin_dir: str | None = None
    """The folder of the plugins of what torchrun starts."""
    agent: str | None = None
    """The address of this node's agent, which is not looked for then."""
    node_rank: int | None = None
    """This node's place in the order in which whoever placed the job lists its nodes, from 0."""
    job: str | None = None
    """What whoever placed the job calls it; the core may know of it already."""

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
        policies = f"one of {', '.join(POLICIES)}, observe, or the name of a policy plugin"
        policy = read("policy", "EVENSTEP_POLICY", r"[a-z0-9][a-z0-9-]{0,62}", policies)
        workload = read("workload", "EVENSTEP_WORKLOAD", r"[A-Za-z0-9._:/@+-]{1,128}", "1 to 128 of A-Za-z0-9._:/@+-")
        plugin_dir = read("plugin_dir", "EVENSTEP_PLUGIN_DIR", "/.+", "/PATH of a folder")
        agent = read("agent", "EVENSTEP_AGENT_ADDR", "unix:/.+", "unix:/PATH")
        place = read("node_rank", "EVENSTEP_NODE_RANK", "[0-9]{1,6}", "a whole number from 0 to 999999")
        node_rank = None if place is None else int(place)
        return cls(core, policy, workload, plugin_dir, agent, node_rank, environ.get("EVENSTEP_JOB") or None)
