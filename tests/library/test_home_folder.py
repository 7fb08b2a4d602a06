"""A leading ~ is the home folder in every path that a user gives."""

from pathlib import Path

import pytest

import aptool as library
from aptool.paths import location

RUN = {"q1": {"a": 0.2, "b": 0.7}}
QRELS = {"q1": {"a": 0, "b": 1}}
POOLS = {"q1": ("who wrote it?", {"a": "Nobody knows.", "b": "She wrote it."})}


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The home folder; the current folder is another one, and must stay empty."""
    home, current = tmp_path / "home", tmp_path / "current"
    for folder in (home, current):
        folder.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(current)
    yield home
    assert list(current.iterdir()) == []


def test_the_library_saves_and_loads_below_the_home_folder(home, model_folder):
    library.Run(RUN).save("~/mine.run")
    library.Qrels(QRELS).save(Path("~/mine.qrels"))
    library.Pools(POOLS).save("~/new/mine.pools.parquet")
    library.load(model_folder).save("~/model")
    library.score("~/new/*.parquet", "~/model", "~/scored.run")

    names = {"mine.run", "mine.qrels", "new", "model", "scored.run"}
    assert names <= {path.name for path in home.iterdir()}
    assert library.Run.load("~/mine.run").to_dict() == RUN
    assert library.evaluate("~/mine.qrels", "~/mine.run").means["MAP"] == 1.0
    assert library.Pools.load("~/new").to_dict() == POOLS
    assert library.Run.load("~/scored.run").to_dict().keys() == POOLS.keys()


def test_a_folder_named_tilde_is_written_as_dot_slash_tilde(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    library.Run(RUN).save("./~/mine.run")

    assert (tmp_path / "~" / "mine.run").is_file()
    assert location(location("./~/mine.run")) == tmp_path / "~" / "mine.run"
    assert location("~backup.run") == Path("~backup.run")
