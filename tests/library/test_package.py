"""The public names of the package: lazy imports and types."""

import subprocess
import sys

import pytest

import aptool

HEAVY = {
    "torch",
    "polars",
    "numpy",
    "pyarrow",
    "ray",
    "click",
    "pandas",
    "matplotlib",
    "transformers",
}

NAMES = {
    *("AptoolError", "Collection", "Model", "Pools", "Qrels", "Run", "__version__"),
    *("bm25_run", "compare", "evaluate", "fuse", "learn_fusion", "load", "score", "train"),
}

SNIPPET = """
import aptool

data = aptool.Collection("data/wikiqa")
model: aptool.Model = aptool.train(data, preset="ap-cnn", seed=0, set={"training.epochs": 1})
best: tuple[int, float] = model.rank("who?", ["she", "he"])[0]
run: aptool.Run = model.run(data.pools("dev"))
qrels: aptool.Qrels = data.qrels("dev")
means: dict[str, float] = dict(aptool.evaluate(qrels, run, ["AP"]).means)
p: float = aptool.compare(aptool.bm25_run(data.pools("dev")), run, qrels, "AP")[0].p
aptool.fuse([run, aptool.Run({"q": {"a": 1.0}})]).save("fused.run", tag="fused")
reveal_type(aptool.score("dev.pools.parquet", model=model, output="dev.run").pairs)
"""

# Each line has a type error.
WRONG = """
import aptool
aptool.load(7)
aptool.train(aptool.Collection("x"), seed="0")
aptool.load("x").rank(["who?"], "she")
aptool.Run({}, 7)
aptool.Qrels("x.qrels", "mine")
aptool.evaluate({}, {}, ["AP"]).measn
aptool.compare({}, {}, {}, "AP")[0].pvalue
"""

# Following imports of other libraries would take half a minute.
CONFIGURATION = """
[mypy]
strict = true
follow_imports = silent
ignore_missing_imports = true

[mypy-torch.*,polars.*,numpy.*,pyarrow.*,transformers.*,tokenizers.*,safetensors.*,ray.*,jinja2.*]
follow_imports = skip
"""


def in_new_process(code, folder):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=folder, check=True
    ).stdout.split()


def test_public_names_exist():
    assert set(dir(aptool)) == NAMES
    for name in NAMES:
        assert getattr(aptool, name) is not None


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'aptool' has no attribute 'Modle'"):
        _ = aptool.Modle


def test_importing_the_package_imports_nothing_heavy(tmp_path):
    code = "import sys, aptool; dir(aptool); print(*{name.partition('.')[0] for name in sys.modules})"

    loaded = set(in_new_process(code, tmp_path))

    assert "aptool" in loaded
    assert not loaded & HEAVY


@pytest.mark.parametrize(("name", "unneeded"), [("Run", {"torch", "ray", "click"}), ("AptoolError", HEAVY)])
def test_a_name_imports_only_what_it_needs(name, unneeded, tmp_path):
    code = f"import sys, aptool; aptool.{name}; print(*{{name.partition('.')[0] for name in sys.modules}})"

    assert not set(in_new_process(code, tmp_path)) & unneeded


def test_type_checkers_know_the_library(tmp_path):
    pytest.importorskip("mypy")
    (tmp_path / "snippet.py").write_text(SNIPPET)
    (tmp_path / "wrong.py").write_text(WRONG)

    (tmp_path / "mypy.ini").write_text(CONFIGURATION)
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "snippet.py", "wrong.py"],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
    )

    errors = [line.split(":")[:2] for line in checked.stdout.splitlines() if ": error:" in line]
    wrong = range(3, 1 + len(WRONG.splitlines()))
    assert sorted({(file, int(line)) for file, line in errors}) == [("wrong.py", n) for n in wrong], (
        checked.stdout
    )
    assert 'Revealed type is "int"' in checked.stdout.replace("builtins.", "")
