"""The package loads no framework before it is used."""

import subprocess
import sys

LOOK = """
import sys, evenstep.torch
names = "accelerate", "transformers", "lightning", "pytorch_lightning", "webdataset", "datasets"
print(*(name for name in names if name in sys.modules))
"""


def test_importing_the_package_imports_no_framework() -> None:
    done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
