"""A newcomer's path: the page of the first five minutes, line by line, in an empty environment.

``pip install "aptool[report]"`` installs a wheel of this checkout, and the tested versions
of everything else.
"""

import os
import re
import subprocess
import sys

import pytest
from pages import ROOT, blocks, run_script

pytestmark = pytest.mark.docs


def test_the_first_five_minutes(tmp_path):
    wheels = tmp_path / "wheels"
    build = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(wheels), str(ROOT)]
    subprocess.run([sys.executable, *build], check=True, timeout=300)
    script = "\n".join(block.text for block in blocks("docs/start.md") if block.language == "sh")
    folder = tmp_path / "newcomer"
    folder.mkdir()
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}

    environment = {
        **clean,
        # Beside the folders that this machine has wheels in, if it has any.
        "PIP_FIND_LINKS": f"{wheels} {os.environ.get('PIP_FIND_LINKS', '')}",
        "PIP_CONSTRAINT": str(ROOT / "constraints.txt"),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    finished = run_script(script, folder, environment, timeout=1800)

    assert finished.returncode == 0, finished.stderr
    shown = finished.stdout
    assert re.search(r"^test\.run +\d+ +0\.\d{4} \[0\.\d{4}, 0\.\d{4}\]", shown, re.MULTILINE)
    assert "p-values" in shown
    assert shown.splitlines()[-3].startswith("In this folder: a collection, ")
