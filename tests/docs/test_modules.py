"""Modules that the docs mention exist."""

import re

import pytest
from pages import ROOT, pages

FOLDERS = ("", "aptool", "tests", "tests/models", "tests/cluster")
MODULE = re.compile(r"`(\w+(?:/\w+)*\.py)`")


@pytest.mark.parametrize("page", [*pages(), "CONTRIBUTING.md"])
def test_the_modules_exist(page):
    names = set(MODULE.findall((ROOT / page).read_text(encoding="utf-8")))

    assert [name for name in names if not any((ROOT / folder / name).exists() for folder in FOLDERS)] == []
