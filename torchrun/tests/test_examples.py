"""The example and the demo run as the README says."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "torchrun"
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--rdzv-backend=evenstep")


def run(*command: str, binary: Path) -> str:
    env = {**os.environ, "EVENSTEP_BINARY": str(binary), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_example_trains_and_continues_from_its_checkpoint(tmp_path: Path, evenstep_binary: Path) -> None:
    train = (*TORCHRUN, str(EXAMPLES / "train.py"), f"--checkpoint={tmp_path / 'checkpoint'}")
    first = run(*train, "--epochs=1", binary=evenstep_binary)
    assert first.startswith("epoch 0: loss")
    again = run(*train, "--epochs=2", binary=evenstep_binary)
    assert again.startswith("epoch 1: loss")
    assert "epoch 0" not in again


@pytest.mark.parametrize(("framework", "module"), [("accelerate", "accelerate"), ("fsdp", "torch")])
def test_a_frameworks_example_continues_from_its_checkpoint(
    tmp_path: Path, evenstep_binary: Path, framework: str, module: str
) -> None:
    pytest.importorskip(module)
    train = (*TORCHRUN, str(EXAMPLES / f"train_{framework}.py"), f"--checkpoint={tmp_path / 'checkpoint'}")
    first = run(*train, "--epochs=1", binary=evenstep_binary)
    assert first.startswith("epoch 0: loss")
    again = run(*train, "--epochs=2", binary=evenstep_binary)
    assert "epoch 1: loss" in again
    assert again.count("epoch 0") <= first.count("epoch 0") // 2


@pytest.mark.parametrize("script", ["train_lightning.py", "train_fabric.py"])
def test_lightnings_examples_continue_from_their_checkpoints(
    tmp_path: Path, evenstep_binary: Path, script: str
) -> None:
    pytest.importorskip("lightning")
    train = (*TORCHRUN, str(EXAMPLES / script), f"--checkpoint={tmp_path / 'checkpoint'}")
    assert "epoch 0: loss" in run(*train, "--epochs=1", binary=evenstep_binary)
    assert "epoch 1: loss" in run(*train, "--epochs=2", binary=evenstep_binary)


def test_the_example_that_draws_its_own_batches_continues(tmp_path: Path, evenstep_binary: Path) -> None:
    train = (*TORCHRUN, str(EXAMPLES / "train_get_batch.py"), "--batch=4", f"--checkpoint={tmp_path / 'checkpoint'}")
    assert run(*train, "--steps=50", binary=evenstep_binary).startswith("step 0: train")
    assert run(*train, "--steps=100", binary=evenstep_binary).startswith("step 50: train")


def test_the_example_of_a_stream_trains(evenstep_binary: Path) -> None:
    train = (*TORCHRUN, str(EXAMPLES / "train_stream.py"), "--epochs=1")
    assert run(*train, binary=evenstep_binary).startswith("epoch 0: loss")


def test_the_trainers_example_trains(tmp_path: Path, evenstep_binary: Path) -> None:
    pytest.importorskip("transformers")
    train = (*TORCHRUN, str(EXAMPLES / "train_trainer.py"), f"--out={tmp_path}", "--epochs=1")
    assert "'train_loss'" in run(*train, binary=evenstep_binary)
    assert list(tmp_path.glob("checkpoint-*"))


def test_the_demo_writes_what_it_measured(tmp_path: Path, evenstep_binary: Path) -> None:
    demo = (sys.executable, str(EXAMPLES / "demo.py"), f"--out={tmp_path}", "--rounds=1", "--policies", "lbbsp-cpu")
    table = run(*demo, binary=evenstep_binary)
    assert "equal batches" in table
    assert "ideal (measured)" in table
    result = json.loads((tmp_path / "demo.json").read_text())
    for field in ("equal_step", "balanced_step", "ideal_step", "equal", "balanced"):
        suffix = "_seconds" if field.endswith("step") else "_seconds_to_loss"
        assert result[field + suffix] > 0
    assert [outcome["policy"] for outcome in result["policies"]] == ["equal", "lbbsp-cpu", "auto"]
    assert all(sum(w["batch_size"] for w in outcome["workers"]) > 0 for outcome in result["policies"])
    assert (tmp_path / "demo.png").stat().st_size > 10_000
