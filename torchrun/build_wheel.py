"""Puts the `evenstep` binary into the wheel, which makes it one for this machine's kind of processor."""

import platform
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BinaryHook(BuildHookInterface):  # type: ignore[type-arg]
    """Includes `build/evenstep` of the repository as `evenstep/bin/evenstep`."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the binary, but not to an editable install, which takes it from where it was built."""
        if version == "editable":
            return
        binary = Path(self.root).parent / "build" / "evenstep"
        if not binary.is_file():
            self.app.abort(f"{binary} is missing; `make wheel` builds it and then the wheel")
        build_data["force_include"][str(binary)] = "evenstep/bin/evenstep"
        build_data["pure_python"] = False
        # The binary is static, so the C library's version does not matter and neither does Python's.
        build_data["tag"] = f"py3-none-manylinux_2_17_{platform.machine()}"
