"""Where the `evenstep` binary is: `$EVENSTEP_BINARY`, else the one in this wheel, else the one on `PATH`."""

import os
import shutil
from pathlib import Path

_IN_WHEEL = Path(__file__).parent / "bin" / "evenstep"


def find() -> Path:
    """Return the binary; `FileNotFoundError` says in one line where it was looked for."""
    named = os.environ.get("EVENSTEP_BINARY")
    if named:
        # Whoever names one wants no other, so that a slip is not papered over.
        if not _is_executable(Path(named)):
            raise FileNotFoundError(f"EVENSTEP_BINARY: {named} is not an executable file")
        return Path(named)
    if _is_executable(_IN_WHEEL):
        return _IN_WHEEL
    on_path = shutil.which("evenstep")
    if on_path is None:
        raise FileNotFoundError(f"no evenstep binary at {_IN_WHEEL} or on PATH; name one in EVENSTEP_BINARY")
    return Path(on_path)


def _is_executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
