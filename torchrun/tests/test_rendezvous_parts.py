"""The parts of the rendezvous by themselves."""

import logging
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from evenstep import binary
from evenstep.rendezvous.private_server import PrivateServer
from evenstep.rendezvous.settings import Settings


def make_executable(path: Path, script: str = "exit 0") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_the_entry_point_loads_no_torch() -> None:
    check = "import sys; from evenstep.rendezvous import get_creator; get_creator(); sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True)


def test_settings_come_from_the_flag_before_the_environment() -> None:
    environ = {"EVENSTEP_ADDR": "unix:/run/core", "EVENSTEP_POLICY": "auto", "EVENSTEP_WORKLOAD": ""}
    more = {"EVENSTEP_AGENT_ADDR": "unix:/a", "EVENSTEP_NODE_RANK": "3", "EVENSTEP_JOB": "slurm-7"}
    assert Settings.read({}, environ | more) == Settings("unix:/run/core", "auto", None, None, "unix:/a", 3, "slurm-7")
    config = {"core": "unix:/run/a core", "policy": "of-a-plugin", "workload": "a.b:c/d@1+2-3", "timeout": 900}
    config["plugin_dir"] = "/opt/plugins"
    assert Settings.read(config, environ) == Settings(
        "unix:/run/a core", "of-a-plugin", "a.b:c/d@1+2-3", "/opt/plugins"
    )


@pytest.mark.parametrize(
    ("config", "environ", "message"),
    [
        ({"core": "host:7000"}, {}, "core in --rdzv-conf: 'host:7000' is not valid; give unix:/PATH"),
        ({"core": "unix:core.sock"}, {}, "core in --rdzv-conf: 'unix:core.sock' is not valid; give unix:/PATH"),
        ({}, {"EVENSTEP_ADDR": "tcp:a:1"}, "EVENSTEP_ADDR: 'tcp:a:1' is not valid; give unix:/PATH (tcp: is not supp"),
        ({"policy": "Auto"}, {}, "policy in --rdzv-conf: 'Auto' is not valid; give one of auto, equal, lbbsp-cpu"),
        ({"plugin_dir": "plugins"}, {}, "plugin_dir in --rdzv-conf: 'plugins' is not valid; give /PATH of a folder"),
        ({"workload": "a b"}, {}, "workload in --rdzv-conf: 'a b' is not valid; give 1 to 128 of A-Za-z0-9._:/@+-"),
        ({"workload": "a\n"}, {}, "workload in --rdzv-conf: 'a\\n' is not valid; give 1 to 128 of A-Za-z0-9._:/@+-"),
        ({}, {"EVENSTEP_NODE_RANK": "-1"}, "EVENSTEP_NODE_RANK: '-1' is not valid; give a whole number from 0 to"),
        ({"workload": "a" * 129}, {}, "give 1 to 128 of A-Za-z0-9._:/@+-"),
    ],
)
def test_a_bad_setting_is_named(config: dict[str, str], environ: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match="is not valid") as error:
        Settings.read(config, environ)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_the_environment_is_set_for_a_launch_only(monkeypatch: pytest.MonkeyPatch, evenstep_binary: Path) -> None:
    from torch.distributed.elastic.rendezvous import RendezvousParameters

    from evenstep.rendezvous import get_creator

    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "")
    monkeypatch.setenv("EVENSTEP_WORKLOAD", "mine")
    before = dict(os.environ)
    handler = get_creator()(RendezvousParameters("evenstep", "", "none", 1, 1, workload="given"))
    handler.next_rendezvous()
    assert os.environ["EVENSTEP_WORKLOAD"] == "given"
    # A second launch in this process would take it for a shared core.
    assert os.environ["EVENSTEP_ADDR"].startswith("unix:/")
    assert handler.shutdown()
    assert dict(os.environ) == before | {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


@pytest.mark.parametrize(
    ("places", "ranks"),
    [
        ([2, 0, 1], [2, 0, 1]),
        ([10, 30, 20, 0], [1, 3, 2, 0]),
        ([1, 0, 1, 0], [2, 0, 3, 1]),  # two agents on a node stay as torch has them
        ([2, None, 1], [0, 1, 2]),
        ([None], [0]),
    ],
)
def test_agents_are_ranked_by_the_places_of_their_nodes(places: list[int | None], ranks: list[int]) -> None:
    from evenstep.rendezvous.handler import _ranks

    assert _ranks(places) == ranks


def test_the_binary_is_looked_for_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_wheel = tmp_path / "wheel" / "evenstep"
    monkeypatch.setattr(binary, "_IN_WHEEL", in_wheel)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.delenv("EVENSTEP_BINARY", raising=False)
    with pytest.raises(FileNotFoundError, match=r"no evenstep binary at .*wheel/evenstep or on PATH"):
        binary.find()
    on_path = make_executable(tmp_path / "path" / "evenstep")
    assert binary.find() == on_path
    make_executable(in_wheel)
    assert binary.find() == in_wheel
    named = tmp_path / "named"
    monkeypatch.setenv("EVENSTEP_BINARY", str(named))
    with pytest.raises(FileNotFoundError, match=r"EVENSTEP_BINARY: .*named is not an executable file"):
        binary.find()
    make_executable(named)
    assert binary.find() == named


def test_the_cores_folder_is_private_and_its_path_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, evenstep_binary: Path
) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    core = PrivateServer(evenstep_binary, "serve")
    try:
        folder = Path(core.address.removeprefix("unix:")).parent
        assert long not in folder.parents
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert core.reachable
        shutil.rmtree(folder)
        assert not core.reachable
    finally:
        core.stop()
    assert not folder.exists()
    core.stop()


def test_a_core_that_keeps_dying_is_given_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    dying = make_executable(tmp_path / "evenstep", "echo listening $4; kill -9 $$")
    with caplog.at_level(logging.WARNING):
        core = PrivateServer(dying, "serve")
        core._watcher.join(20)
    assert not core.reachable
    core.stop()
    last = "evenstep: the core keeps dying (signal 9); batch sizes stay as they are"
    assert caplog.messages == ["evenstep: the core died (signal 9); starting it again"] * 5 + [last]


def test_a_core_that_does_not_end_is_killed(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    deaf = make_executable(tmp_path / "evenstep", f"echo $$ > {pid_file}; echo listening $4; exec sleep 60")
    core = PrivateServer(deaf, "serve")
    core.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)
