"""The Python examples of docs/library.md and of the public docstrings."""

import doctest
import inspect
import logging
import re
import shutil
from pathlib import Path

import pytest
from tiny import options

import aptool
from aptool.config import load_recipe, parse_overrides

ROOT = Path(aptool.__file__).parents[1]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
# Methods for other modules of the package.
INTERNAL = {"Model.system", "Pools.batches", "Pools.on_disk"} | {
    f"Collection.{name}" for name in ("batches", "pools_file", "qrels_file", "verify")
}


def public():
    """The public classes, their public methods, and the public functions, by name."""
    for name in sorted(set(dir(aptool)) - {"__version__", "load"}):  # `load` is another name of Model
        value = getattr(aptool, name)
        yield name, value
        for method in vars(value) if inspect.isclass(value) else ():
            if not method.startswith("_") and inspect.isroutine(getattr(value, method)):
                yield f"{name}.{method}", getattr(value, method)


@pytest.fixture
def tiny_presets(monkeypatch):
    """Replace the presets by tiny systems."""

    def tiny(preset, overrides=()):
        return load_recipe(preset, parse_overrides(options(preset)) | parse_overrides(overrides))

    monkeypatch.setattr("aptool.execution.load_recipe", tiny)


@pytest.fixture
def loggers():
    """Restore the state of logging after the test."""
    root, logger = logging.getLogger(), logging.getLogger("aptool")
    before, level = list(root.handlers), logger.level
    yield
    root.handlers[:] = before
    logger.setLevel(level)


@pytest.mark.usefixtures("folder", "tiny_presets", "loggers")
@pytest.mark.parametrize(("page", "examples"), [("docs/library.md", 16)])
def test_examples_of_the_docs_run(page, examples, tmp_path):
    file = ROOT / page
    if not file.is_file():
        pytest.skip("the package is installed without its docs")
    namespace = {}
    runner = doctest.DocTestRunner()

    for number, block in enumerate(BLOCK.findall(file.read_text(encoding="utf-8"))):
        if ">>>" in block:
            test = doctest.DocTestParser().get_doctest(block, namespace, f"block {number}", page, 0)
            failures = []
            runner.run(test, out=failures.append, clear_globs=False)
            namespace.update(test.globs)
            assert not failures, "".join(failures)
        else:
            exec(compile(block, f"{page}, block {number}", "exec"), namespace)

    assert runner.summarize(verbose=False).attempted >= examples
    assert len((tmp_path / "dev.run").read_text().splitlines()) == 120
    assert len((tmp_path / "fused.run").read_text().splitlines()) == 120
    assert namespace["model"].folder == Path("models/wikiqa")


@pytest.mark.usefixtures("folder", "tiny_presets")
def test_examples_of_the_docstrings_run(tmp_path):
    shutil.copytree(tmp_path / "models" / "tiny", tmp_path / "models" / "wikiqa")
    names = {"aptool": aptool}
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    finder = doctest.DocTestFinder(recurse=False)
    without, failures = [], []

    for name, value in public():
        tests = [test for test in finder.find(value, name, globs=dict(names)) if test.examples]
        if not tests and name not in INTERNAL:
            without.append(name)
        for test in tests:
            runner.run(test, out=failures.append)

    assert not without
    assert not failures, "".join(failures)
