"""The checks before a release."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from aptool.version import RELEASED, __version__

SCRIPT = Path(__file__).parents[2] / "jobs" / "check_release.py"


@pytest.fixture
def release(tmp_path, monkeypatch):
    """The module under test, in a repository with a changelog that begins with a release."""
    spec = importlib.util.spec_from_file_location("check_release", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "RELEASED", True)
    (tmp_path / "CHANGELOG.md").write_text(f"# Changes\n\n## {__version__}, 2026-01-31\n", encoding="utf-8")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "-qm", "x")
    return module


def git(folder, *arguments):
    subprocess.run(["git", *arguments], cwd=folder, check=True)


def test_consistent_version_has_no_problem(release):
    assert release.problems(__version__) == []


def test_script_fails_only_with_a_problem(release, tmp_path, monkeypatch):
    monkeypatch.setattr(release, "RELEASED", RELEASED)
    (tmp_path / "jobs").mkdir()
    shutil.copy(SCRIPT, tmp_path / "jobs")
    git(tmp_path, "add", ".")
    git(tmp_path, "-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "-qm", "y")
    command = [sys.executable, tmp_path / "jobs" / SCRIPT.name]

    ready = subprocess.run([*command, __version__], capture_output=True, text=True)
    other = subprocess.run([*command, "9.9.9"], capture_output=True, text=True)

    assert (ready.returncode, ready.stdout) == (0 if RELEASED else 1, "")
    assert ready.stderr.splitlines() == release.problems(__version__)
    assert other.returncode == 1
    assert other.stderr.splitlines() == release.problems("9.9.9")


def test_inconsistent_version_is_a_problem(release):
    assert release.problems("9.9.9") == [
        f"aptool/version.py: {__version__}; expected 9.9.9",
        f"CHANGELOG.md: '{__version__}, 2026-01-31'; expected '9.9.9, YYYY-MM-DD' as the first heading",
    ]
    assert release.problems("9.9")[0] == "VERSION='9.9': expected three numbers, such as 0.3.0"


def test_installation_from_a_copy_is_a_problem(release, monkeypatch):
    monkeypatch.setattr(release, "RELEASED", False)

    assert release.problems(__version__) == ["aptool/version.py: RELEASED is False; expected True"]


def test_uncommitted_files_are_a_problem(release, tmp_path):
    (tmp_path / "new.txt").touch()
    git(tmp_path, "mv", "CHANGELOG.md", "OLD.md")
    (tmp_path / "CHANGELOG.md").write_text((tmp_path / "OLD.md").read_text(encoding="utf-8"))

    assert release.problems(__version__) == [
        "files are not committed: CHANGELOG.md -> OLD.md, CHANGELOG.md, new.txt"
    ]
