"""The examples of docs/library.md run as they are, in their order."""

import doctest
import logging
import re
from pathlib import Path

import pytest
from tiny import options

import aptool
from aptool.config import load_recipe

PAGE = Path(aptool.__file__).parents[1] / "docs" / "library.md"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture
def tiny_presets(monkeypatch):
    """Presets train the tiny systems of the other tests."""

    def tiny(preset, overrides=()):
        return load_recipe(preset, [*options(preset), *overrides])

    monkeypatch.setattr("aptool.library.training.load_recipe", tiny)


@pytest.fixture
def loggers():
    """The state of logging, put back."""
    root, own = logging.getLogger(), logging.getLogger("aptool")
    before, level = list(root.handlers), own.level
    yield
    root.handlers[:] = before
    own.setLevel(level)


@pytest.mark.usefixtures("folder", "tiny_presets", "loggers")
def test_the_examples_run(tmp_path):
    if not PAGE.is_file():
        pytest.skip("the package is installed without its docs")
    namespace = {}
    runner = doctest.DocTestRunner()

    for number, block in enumerate(BLOCK.findall(PAGE.read_text(encoding="utf-8"))):
        if ">>>" in block:
            test = doctest.DocTestParser().get_doctest(block, namespace, f"block {number}", str(PAGE), 0)
            told = []
            runner.run(test, out=told.append, clear_globs=False)
            namespace.update(test.globs)
            assert not told, "".join(told)
        else:
            exec(compile(block, f"{PAGE}, block {number}", "exec"), namespace)

    assert runner.summarize(verbose=False).attempted > 15
    assert len((tmp_path / "dev.run").read_text().splitlines()) == 120
    assert len((tmp_path / "fused.run").read_text().splitlines()) == 120
    assert namespace["model"].folder == Path("models/wikiqa")
