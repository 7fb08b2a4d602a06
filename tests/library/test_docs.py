"""The examples in Python of docs/library.md run as they are, in their order."""

import doctest
import logging
import re
from pathlib import Path

import pytest
from tiny import options

import aptool
from aptool.config import load_recipe

ROOT = Path(aptool.__file__).parents[1]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture
def tiny_presets(monkeypatch):
    """Presets train the tiny systems of the other tests."""

    def tiny(preset, overrides=()):
        return load_recipe(preset, [*options(preset), *overrides])

    monkeypatch.setattr("aptool.models.initialization.load_recipe", tiny)


@pytest.fixture
def loggers():
    """The state of logging, put back."""
    root, own = logging.getLogger(), logging.getLogger("aptool")
    before, level = list(root.handlers), own.level
    yield
    root.handlers[:] = before
    own.setLevel(level)


@pytest.mark.usefixtures("folder", "tiny_presets", "loggers")
@pytest.mark.parametrize(("page", "examples"), [("docs/library.md", 16)])
def test_the_examples_run(page, examples, tmp_path):
    file = ROOT / page
    if not file.is_file():
        pytest.skip("the package is installed without its docs")
    namespace = {}
    runner = doctest.DocTestRunner()

    for number, block in enumerate(BLOCK.findall(file.read_text(encoding="utf-8"))):
        if ">>>" in block:
            test = doctest.DocTestParser().get_doctest(block, namespace, f"block {number}", page, 0)
            told = []
            runner.run(test, out=told.append, clear_globs=False)
            namespace.update(test.globs)
            assert not told, "".join(told)
        else:
            exec(compile(block, f"{page}, block {number}", "exec"), namespace)

    assert runner.summarize(verbose=False).attempted >= examples
    assert len((tmp_path / "dev.run").read_text().splitlines()) == 120
    assert len((tmp_path / "fused.run").read_text().splitlines()) == 120
    assert namespace["model"].folder == Path("models/wikiqa")
