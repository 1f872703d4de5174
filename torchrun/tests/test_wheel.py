"""The wheel alone is enough: it brings the binary, the entry point and the types."""

import json
import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

PACKAGE = Path(__file__).parent.parent


def test_a_fresh_environment_needs_the_wheel_only(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path), str(PACKAGE)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("evenstep-*.whl")
    plugin_binary = PACKAGE.parent / "build/plugins/evenstep-devices-nvml"
    symbols = subprocess.run(["objdump", "-T", plugin_binary], check=True, capture_output=True, text=True).stdout
    needs = max(map(int, re.findall(r"\(GLIBC_2\.(\d+)", symbols)))
    assert f"-py3-none-manylinux_2_{max(17, needs)}_" in wheel.name
    names = zipfile.ZipFile(wheel).namelist()
    plugin = "evenstep/bin/plugins/evenstep-devices-nvml"
    nomads = "evenstep/bin/nomad-plugins/evenstep-device"
    assert {"evenstep/bin/evenstep", plugin, nomads, "evenstep/py.typed", "evenstep/v1/balancer_pb2.py"} <= set(names)
    assert not [name for name in names if "test" in name]

    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", wheel], check=True)
    # torch and gRPC are 5 GB; they are lent by the environment of the tests, whose own evenstep is not.
    (site,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    (site / "lent.pth").write_text("".join(f"{path}\n" for path in sys.path if path.endswith("-packages")))

    # Each binary starts, and evenstep finds the plugin beside it.
    binary = site / "evenstep" / "bin" / "evenstep"
    listed = subprocess.run([binary, "plugins"], check=True, capture_output=True, text=True).stdout
    assert re.search(rf"^devices +nvml +\S+ +ok +{site}", listed, re.MULTILINE), listed

    report = tmp_path / "report"
    worker = PACKAGE / "tests" / "ranks" / "rendezvous_worker.py"
    torchrun = [python, "-m", "torch.distributed.run", "--rdzv-backend=evenstep", worker, report]
    bare = {name: value for name, value in os.environ.items() if not name.startswith("EVENSTEP_")}
    subprocess.run(torchrun, check=True, env=bare, cwd=tmp_path, timeout=60)
    assert json.loads(report.read_text())["SOCKET_THERE"]
