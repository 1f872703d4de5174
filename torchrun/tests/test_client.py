"""Any loop joins, without torch: report what a step cost, get the sizes of the next."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import evenstep
from evenstep.client import Client
from launch import eventually
from scripted_core import ScriptedCore

EXAMPLE = Path(__file__).parents[2] / "examples" / "numpy" / "train.py"


def test_the_numpy_example_balances_uneven_workers_and_trains_as_one_process(evenstep_binary: Path) -> None:
    environment = {**os.environ, "EVENSTEP_BINARY": str(evenstep_binary)}
    environment.pop("EVENSTEP_ADDR", None)
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)], env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    last = done.stdout.splitlines()[-2]
    first, second = map(int, re.findall(r"\d+", last.partition("sizes")[2]))
    assert first + second == 64
    assert abs(second - 16) <= 5, done.stdout
    assert float(done.stdout.split()[-1]) < 1e-12
    assert done.stderr == ""


def test_it_needs_no_torch() -> None:
    code = "import sys, evenstep; evenstep.Client; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_reports_go_out_and_sizes_come_back() -> None:
    with ScriptedCore(lambda opening, report: [10, 6]) as core, evenstep.Client(2, 16, address=core.address) as client:
        assert client.sizes == (8, 8)
        assert eventually(lambda: client.report([0.1, 0.2]) == (10, 6))
        assert client.report([0.1, 0.2], [9, 5], ahead=2) == (10, 6)
        eventually(lambda: len(core.reports[-1:]) and core.reports[-1].next_free_step == core.reports[-1].step + 3)
    assert [worker.samples for worker in core.reports[0].workers] == [8, 8]
    assert [worker.samples for worker in core.reports[-1].workers] == [9, 5]


def test_no_core_leaves_the_sizes_as_they_are(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Client(3, 16, address=f"unix:{tmp_path}/none.sock", quantum=2) as client:
        assert [client.report([0.1, 0.2, 0.3]) for _ in range(100)] == [(6, 6, 4)] * 100
        eventually(lambda: caplog.messages)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"workers": 0}, "workers: there is none"),
        ({"quantum": 3}, "quantum: 3 does not divide"),
        ({"least": 9}, "global_batch: 16 is below 2 workers times 9"),
        ({"address": "tcp:localhost:1"}, "address: 'tcp:localhost:1' is not valid"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        Client(**{"workers": 2, "global_batch": 16, **arguments})  # type: ignore[arg-type]
