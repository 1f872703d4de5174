"""What all tests share: the binary that they run against."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def evenstep_binary() -> Path:
    binary = Path(os.environ.get("EVENSTEP_BINARY", ""))
    if not binary.is_file():
        pytest.fail("EVENSTEP_BINARY: not set to a binary; `make build` makes build/evenstep", pytrace=False)
    return binary.absolute()
