"""The wording check of `make lint`."""

import subprocess
import sys
from pathlib import Path

import pytest

CHECK = Path(__file__).parent.parent / "tools" / "check_wording.py"


@pytest.fixture
def check(tmp_path):
    def run(name, text):
        path = tmp_path / name
        path.write_text(text)
        finished = subprocess.run([sys.executable, CHECK, path], capture_output=True, text=True, timeout=60)
        assert finished.stderr == ""
        lines = finished.stdout.splitlines()
        assert finished.returncode == (1 if any("warning" not in line for line in lines) else 0)
        return [line.split(":", 1)[1] for line in lines]

    return run


def test_clean_files_pass(check):
    assert check("page.md", "# Scores\n\nThroughput is in pairs per second.\n") == []
    assert check("code.py", '"""Count the pairs."""\n\ncount = 1  # pairs per row group\n') == []


def test_phrase_is_reported_with_its_line(check):
    (line,) = check("page.md", "Fast.\n\nIt scores 100 pairs a second.\n")

    assert line.startswith("3: 'pairs a second': write per")


def test_comments_strings_and_names_are_checked(check):
    source = (
        'found = 1\n\n\ndef score(wanted: int) -> str:\n    """Score anew."""\n    return "x"  # likewise\n'
    )

    assert [line.split("'")[1] for line in check("code.py", source)] == [
        "anew",
        "likewise",
        "found",
        "wanted",
    ]


def test_a_name_is_a_warning_and_no_error(check):
    (line,) = check("code.py", "found = 1\n")

    assert line.startswith("1: warning: 'found': write a noun")


def test_code_is_not_checked(check):
    assert check("page.md", "```python\nfound = anew\n```\n") == []
    assert check("code.py", "items = [anew for anew_item in rows]\n".replace("anew_item", "anew")) == []
