"""Under fully_shard, uneven batches train as one process on the whole batch does, and continue from checkpoints."""

from typing import Any

import pytest

from framework_case import STEPS, check, ranks


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = str(tmp_path_factory.mktemp("checkpoints"))
    four = ranks("sharded.py", folder, "four", workers=4)
    return four | ranks("sharded.py", folder, "first") | ranks("sharded.py", folder, "rest")


@pytest.mark.parametrize("case", ["window 1", "window 2", "hybrid, window 2"])
def test_continues_in_mid_epoch(found: dict[str, dict[str, Any]], case: str) -> None:
    window = int(case[-1])
    updates = -(-STEPS // window)
    check(found[f"first {case}"], steps=updates + 2, batches=STEPS + 2 * window)
    check(found[f"rest {case}"], steps=3 * updates, batches=2 * STEPS - 2 * window)
