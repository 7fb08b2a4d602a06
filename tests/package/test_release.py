"""The checks before a release."""

import importlib.util
import subprocess
from pathlib import Path

import pytest

from aptool.version import __version__

SCRIPT = Path(__file__).parents[2] / "jobs" / "check_release.py"


@pytest.fixture
def release(tmp_path, monkeypatch):
    """The module under test, in a repository with a changelog that begins with a release."""
    spec = importlib.util.spec_from_file_location("check_release", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "install_command", 'pip install "aptool[{}]"'.format)
    (tmp_path / "CHANGELOG.md").write_text(f"# Changes\n\n## {__version__}, 2026-01-31\n", encoding="utf-8")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "-qm", "x")
    return module


def git(folder, *arguments):
    subprocess.run(["git", *arguments], cwd=folder, check=True)


def test_consistent_version_has_no_problem(release):
    assert release.problems(__version__) == []


def test_inconsistent_version_is_a_problem(release):
    assert release.problems("9.9.9") == [
        f"aptool/version.py: {__version__}; expected 9.9.9",
        f"CHANGELOG.md: '{__version__}, 2026-01-31'; expected '9.9.9, YYYY-MM-DD' as the first heading",
    ]
    assert release.problems("9.9")[0] == "VERSION='9.9': expected three numbers, such as 0.3.0"


def test_uncommitted_files_are_a_problem(release, tmp_path):
    (tmp_path / "new.txt").touch()
    git(tmp_path, "mv", "CHANGELOG.md", "OLD.md")
    (tmp_path / "CHANGELOG.md").write_text((tmp_path / "OLD.md").read_text(encoding="utf-8"))

    assert release.problems(__version__) == [
        "files are not committed: CHANGELOG.md -> OLD.md, CHANGELOG.md, new.txt"
    ]
