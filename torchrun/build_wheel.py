"""Puts `evenstep`, its plugins and Nomad's into the wheel, which makes it one for this machine's kind of processor."""

import platform
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BinaryHook(BuildHookInterface):  # type: ignore[type-arg]
    """Includes what `make build` put into `build` as `evenstep/bin`."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the binaries, but not to an editable install, which takes them from where they were built."""
        if version == "editable":
            return
        for name in ("evenstep", "plugins/evenstep-devices-nvml", "nomad-plugins/evenstep-device"):
            binary = Path(self.root).parent / "build" / name
            if not binary.is_file():
                self.app.abort(f"{binary} is missing; `make wheel` builds it and then the wheel")
            build_data["force_include"][str(binary)] = f"evenstep/bin/{name}"
        build_data["pure_python"] = False
        # evenstep is static, so the C library's version does not matter and neither does Python's. Its plugin is not:
        # where it does not run there are no hints about GPUs, and no harm.
        build_data["tag"] = f"py3-none-manylinux_2_17_{platform.machine()}"
