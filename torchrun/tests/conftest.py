"""What all tests share: the binary that they run against."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def evenstep_binary() -> Path:
    named = os.environ.get("EVENSTEP_BINARY", "")
    if not Path(named).is_file():
        pytest.fail(f"EVENSTEP_BINARY: {named!r} is not a file; give the path of the evenstep binary", pytrace=False)
    return Path(named).absolute()
