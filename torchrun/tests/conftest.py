"""What all tests share: the binary that they run against, and jobs that leave nothing behind."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from job import Job


@pytest.fixture(scope="session")
def evenstep_binary() -> Path:
    named = os.environ.get("EVENSTEP_BINARY", "")
    if not Path(named).is_file():
        pytest.fail(f"EVENSTEP_BINARY: {named!r} is not a file; give the path of the evenstep binary", pytrace=False)
    return Path(named).absolute()


@pytest.fixture(autouse=True)
def state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what cores learn out of the user's files, and tests from each other's."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def new_job(tmp_path: Path, evenstep_binary: Path) -> Iterator[Callable[..., Job]]:
    jobs: list[Job] = []

    def make(**environment: str) -> Job:
        folder = tmp_path / str(len(jobs))
        folder.mkdir()
        jobs.append(Job(folder, {"EVENSTEP_BINARY": str(evenstep_binary), **environment}))
        return jobs[-1]

    yield make
    for job in jobs:
        job.end()


@pytest.fixture
def job(new_job: Callable[..., Job]) -> Job:
    return new_job()
