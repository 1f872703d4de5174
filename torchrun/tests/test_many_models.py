"""Many models trained one after another in one process leave nothing open."""

from launch import records, run
from scripted_core import ScriptedCore, random_sizes

MODELS, SETTLED = 10, 4  # the first make what all share


def test_models_that_are_gone_hold_no_files_and_no_threads() -> None:
    with ScriptedCore(random_sizes) as core:
        out, _ = run("many_models.py", str(MODELS), EVENSTEP_ADDR=core.address)
    for rank in range(2):
        lines = [line for line in records(out) if line["rank"] == rank]
        assert len(lines) == MODELS
        assert max(line["difference"] for line in lines) < 1e-12
        first, last = lines[SETTLED], lines[-1]
        # A group of a model's own held five files and three threads.
        assert last["files"] <= first["files"] + 2
        assert last["threads"] <= first["threads"] + 2
