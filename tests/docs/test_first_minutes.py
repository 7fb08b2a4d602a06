"""The commands of docs/start.md run in an empty environment.

aptool is installed from a copy of this checkout, with the tested versions of its dependencies. A tiny encoder
replaces the encoder of the hub.
"""

import os
import re
import shutil
import urllib.request

import pytest
from networks import write_network
from pages import ROOT, blocks, run_script

ENCODER = "sentence-transformers/all-MiniLM-L6-v2"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"


def start_page() -> str:
    """The commands of the page as one bash script."""
    script = "\n".join(block.text for block in blocks("docs/start.md") if block.language == "sh")
    assert f" --index-url {CPU_INDEX} &&\n" in script
    return script if _is_reachable(CPU_INDEX) else script.replace(f" --index-url {CPU_INDEX}", "")


def _is_reachable(url: str) -> bool:
    """Whether the package index of PyTorch answers; else pip uses its configured index."""
    try:
        with urllib.request.urlopen(f"{url}/", timeout=10):
            return True
    except OSError:
        return False


@pytest.mark.docs
@pytest.mark.timeout(0)  # the commands have a time limit
def test_the_start_page(tmp_path):
    folder = tmp_path / "aptool"
    for name in ("aptool", "examples", "schemas"):
        shutil.copytree(
            ROOT / name, folder / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
        )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    write_network(folder / ENCODER, positions=512)
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment = {
        **clean,
        "PIP_CONSTRAINT": str(ROOT / "constraints.txt"),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "HF_HUB_OFFLINE": "1",
    }

    finished = run_script(start_page(), folder, environment, timeout=1800)

    assert finished.returncode == 0, finished.stderr
    shown = finished.stdout
    assert re.search(r"^bm25\.run +78 +0\.3088 \[", shown, re.MULTILINE)
    assert "minimum detectable difference" in shown
