"""A fixture that runs `aptool matrix`."""

import pytest


@pytest.fixture
def run_matrix(aptool, tmp_path, monkeypatch):
    """A function that writes a table of experiments and runs `aptool matrix` on it."""
    monkeypatch.chdir(tmp_path)

    def run(text, *more):
        (tmp_path / "eval.toml").write_text(text)
        return aptool("matrix", "eval.toml", "--output", "out", *more)

    return run
