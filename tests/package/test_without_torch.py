"""Data tools, evaluation, fusion and reports work in an installation without PyTorch."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).with_name("without_torch.py")
ROOT = SCRIPT.parents[2]
TABLE = """
[collections.tiny]
path = "{collection}"
split = "test"
[systems.random]
baseline = "random"
[systems.bm25]
baseline = "bm25"
[[rows]]
collection = "tiny"
systems = ["random", "bm25"]
"""


def test_evaluation_and_reports_need_no_pytorch(aptool, collection_folder, tmp_path):
    (tmp_path / "eval.toml").write_text(TABLE.format(collection=collection_folder), encoding="utf-8")
    assert aptool("matrix", tmp_path / "eval.toml", "--output", tmp_path / "matrix").code == 0

    finished = subprocess.run(
        [sys.executable, str(SCRIPT), "--block", "matrix"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
    )

    assert finished.returncode == 0, finished.stderr[-2000:]
