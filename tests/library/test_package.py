"""The public names of the package and their lazy imports; ``typed.py`` has their types."""

import subprocess
import sys

import pytest

import aptool

HEAVY = {
    *("torch", "polars", "numpy", "pyarrow", "ray", "click", "pandas", "matplotlib", "transformers"),
}

NAMES = {
    *("AptoolError", "Collection", "Model", "Pools", "Qrels", "Run", "__version__"),
    *("bm25_run", "compare", "evaluate", "fuse", "learn_fusion", "load", "score", "train"),
}


def test_public_names_exist():
    assert set(dir(aptool)) == set(aptool.__all__) == NAMES
    for name in NAMES:
        assert getattr(aptool, name) is not None


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'aptool' has no attribute 'Modle'"):
        _ = aptool.Modle


@pytest.mark.parametrize(
    ("names", "unneeded"),
    [("dir(aptool), aptool.AptoolError", HEAVY), ("aptool.Run", {"torch", "ray", "click"})],
    ids=["package", "Run"],
)
def test_a_name_imports_only_what_it_needs(names, unneeded, tmp_path):
    code = f"import sys, aptool; {names}; print(*{{name.partition('.')[0] for name in sys.modules}})"

    command = [sys.executable, "-c", code]
    finished = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)

    assert "aptool" in finished.stdout.split()
    assert not set(finished.stdout.split()) & unneeded
