"""CONTRIBUTING.md names tests of each promise of docs/reliability.md; they and those of SECURITY.md exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`(?:tests/)?([\w/]+\.py)::(\w+)`")


def table(text: str, title: str) -> dict[str, str]:
    """The second column of a table of a section, by the first."""
    section = text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    return {row[0].replace("**", ""): row[-1] for row in rows[1:]}


def test_each_promise_names_a_test():
    promises = table((ROOT / "docs" / "reliability.md").read_text(encoding="utf-8"), "Promises")
    tests = table((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), "Tests of the promises")

    assert len(promises) > 10
    assert len(promises) == len(tests)
    for promise, name in zip(promises, tests, strict=True):
        assert promise.startswith(name)
    assert all(NAMED.search(entry) for entry in tests.values())


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "SECURITY.md"])
def test_the_named_tests_exist(page):
    named = NAMED.findall((ROOT / page).read_text(encoding="utf-8"))
    assert named
    for file, name in named:
        tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, (
            f"{file}::{name}"
        )
