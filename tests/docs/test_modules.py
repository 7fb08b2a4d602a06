"""Modules and files that Markdown files mention exist."""

import re
import subprocess

import pytest
from pages import ROOT, pages

FOLDERS = ("", "aptool", "tests", "tests/models", "tests/cluster")
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)")
MODULE = re.compile(r"`(\w+(?:/\w+)*\.py)`")


@pytest.mark.parametrize("page", [*pages(), "CONTRIBUTING.md"])
def test_the_modules_exist(page):
    names = set(MODULE.findall((ROOT / page).read_text(encoding="utf-8")))

    assert [name for name in names if not any((ROOT / folder / name).exists() for folder in FOLDERS)] == []


def test_the_links_between_files_resolve():
    """The strict build checks docs, which links to generated pages."""
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    links = {
        (path, link)
        for path in listed.stdout.split()
        if not path.startswith("docs/")
        for link in LINK.findall((ROOT / path).read_text(encoding="utf-8"))
    }

    assert [(path, link) for path, link in links if not ((ROOT / path).parent / link).exists()] == []
