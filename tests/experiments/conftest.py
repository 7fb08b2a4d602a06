"""A matrix written as a file and run by its command."""

import pytest


@pytest.fixture
def run_matrix(aptool, tmp_path, monkeypatch):
    """Runs `aptool matrix` on a file of this text, in the folder of the test."""
    monkeypatch.chdir(tmp_path)

    def run(text):
        (tmp_path / "eval.toml").write_text(text)
        return aptool("matrix", "eval.toml", "--output", "out")

    return run
