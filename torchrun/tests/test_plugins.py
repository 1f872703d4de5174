"""A policy plugin in Python, as docs/plugins.md has it, balances a real job."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from job import Job
from test_balance import STEPS, last_rank_spared, ran_whole, rank_0_spared

PACKAGE = Path(__file__).parent.parent


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a plugin folder with the code of the docs in it, for this Python."""
    (code,) = re.findall(r"```python\n#![^\n]*\n(.*?)```", (PACKAGE.parent / "docs/plugins.md").read_text(), re.DOTALL)
    made = tmp_path / "plugins"
    made.mkdir(mode=0o755)
    plugin = made / "evenstep-policy-proportional"
    plugin.write_text(f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(PACKAGE)!r})\n{code}")
    plugin.chmod(0o755)
    return made


def test_the_docs_plugin_balances_a_job(new_job: Callable[..., Job], folder: Path) -> None:
    job = new_job()
    flags = ("--nproc-per-node=2", f"--rdzv-conf=policy=proportional,plugin_dir={folder}")
    assert job.start(*flags, script="uneven.py", worker=str(STEPS)).wait(120) == 0
    found = ran_whole(job)
    assert last_rank_spared(found[STEPS // 2 - 1])
    assert rank_0_spared(found[STEPS - 1])
    assert job.said() == []
    assert "a policy plugin failed" not in job.errors.read_text()
    assert list(job.runtime.iterdir()) == []
    assert processes(folder) == []


def test_the_docs_plugin_is_well(evenstep_binary: Path, folder: Path) -> None:
    command = [evenstep_binary, "plugins", "--plugin-dir", folder]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert re.search(r"^policy +proportional +1\.0\.0 +ok ", listed, re.MULTILINE), listed
    assert processes(folder) == []


def processes(folder: Path) -> list[str]:
    """Give the command lines that name the folder."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                line = Path(f"/proc/{name}/cmdline").read_text()
            except OSError:
                continue
            if str(folder) in line and "evenstep-policy" in line:
                found.append(line)
    return found
