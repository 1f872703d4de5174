"""Puts `evenstep`, its plugins and Nomad's into the wheel, which makes it one for this machine's kind of processor."""

import platform
import re
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BinaryHook(BuildHookInterface):  # type: ignore[type-arg]
    """Includes what `make build` put into `build` as `evenstep/bin`."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the binaries, but not to an editable install, which takes them from where they were built."""
        if version == "editable":
            return
        libc = _OLDEST_LIBC
        for name in ("evenstep", "plugins/evenstep-devices-nvml", "nomad-plugins/evenstep-device"):
            binary = Path(self.root).parent / "build" / name
            if not binary.is_file():
                self.app.abort(f"{binary} is missing; `make wheel` builds it and then the wheel")
            build_data["force_include"][str(binary)] = f"evenstep/bin/{name}"
            libc = max(libc, _libc_of(binary))
        build_data["pure_python"] = False
        # Python's version does not matter, and most is static. The plugin for GPUs needs a C library as new as that
        # which it was linked to.
        build_data["tag"] = f"py3-none-manylinux_2_{libc}_{platform.machine()}"


_OLDEST_LIBC = 17  # of glibc 2, that a tag can name for all processors


def _libc_of(binary: Path) -> int:
    """Give the glibc 2 that a program needs, by the versions of the symbols that it imports; 0 for a static one."""
    return max((int(minor) for minor in re.findall(rb"\0GLIBC_2\.(\d+)", binary.read_bytes())), default=0)
